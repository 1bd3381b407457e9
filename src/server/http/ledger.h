#pragma once
#include <array>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace quire::server::http {

// What memory is held for.
enum class Held { kBodies, kDocuments, kPrompts, kAnswers, kGrammars, kTokenising };
inline constexpr size_t kHeldKinds = 6;
const char* held_name(Held kind);

// The one account of the bytes that clients make the server hold beside weights and KV memory:
// request bodies from their first byte on, parsed documents, the ids of prompts and what else every
// choice keeps of its request, answers that are collected or not sent yet, grammars with the tables
// that their masks build up, what tokenising takes while it works. A charge that does not
// fit is refused before the memory is taken. Thread-safe.
//
// Fair: kOwnBytes of every connection come from nobody else's share, so that small requests go
// through whatever others hold. The rest is shared; all connections of one owner together get at
// most half of what the other owners leave. So there is room for one that comes, however many have
// taken theirs: half of all, a quarter, an eighth.
class Ledger {
 public:
  static constexpr size_t kOwnBytes = 32u << 10;

  // `max_connections` times kOwnBytes, but at most half of `max_bytes`, are set aside.
  Ledger(size_t max_bytes, size_t max_connections);

  size_t held() const;
  size_t held(Held kind) const;
  // The most that one connection can ever hold.
  size_t limit_of_one() const { return limit_of_owner_ + own_bytes_; }
  // Bytes given back in large pieces since the last call, if they are at least `bytes`; 0 if not.
  size_t take_released(size_t bytes);
  // The same for all pieces, since the last call of either that returned some.
  size_t take_all_released(size_t bytes);

 private:
  friend class Account;

  const size_t own_bytes_, shared_limit_, limit_of_owner_;
  mutable std::mutex mutex_;
  size_t shared_ = 0;        // held from the shared part
  size_t released_ = 0;      // since take_released()
  size_t all_released_ = 0;  // since either
  std::array<size_t, kHeldKinds> by_kind_{};
  std::map<std::string, size_t> by_owner_;  // of the shared part
};

// What one connection holds, and for whom. Thread-safe.
class Account {
 public:
  Account(std::shared_ptr<Ledger> ledger, std::string owner);
  Account(const Account&) = delete;
  Account& operator=(const Account&) = delete;

  bool try_add(Held kind, size_t bytes);
  // For what is already there and small, such as an error's text.
  void add(Held kind, size_t bytes);
  void remove(Held kind, size_t bytes);
  bool would_fit(size_t bytes) const;
  size_t held() const;
  size_t limit() const { return ledger_->limit_of_one(); }
  std::string owner() const;
  // From now on everything is held for `owner`, what is there already too.
  void set_owner(const std::string& owner);

 private:
  bool fits(size_t bytes) const;
  void book(Held kind, size_t bytes);
  void take_from_owner(size_t shared);
  size_t shared_part(size_t held) const;

  const std::shared_ptr<Ledger> ledger_;
  // Guarded by the ledger's mutex:
  std::string owner_;
  size_t held_ = 0;
};

// Bytes of an account that are given back with the object. Movable.
class Charge {
 public:
  Charge() = default;
  Charge(std::shared_ptr<Account> account, Held kind) : account_(std::move(account)), kind_(kind) {}
  Charge(Charge&& other) noexcept { swap(other); }
  Charge& operator=(Charge&& other) noexcept {
    Charge taken(std::move(other));
    swap(taken);
    return *this;
  }
  ~Charge() { release(); }

  size_t bytes() const { return bytes_; }
  bool try_add(size_t bytes) {
    if (!account_->try_add(kind_, bytes)) return false;
    bytes_ += bytes;
    return true;
  }
  void release() {
    if (bytes_ > 0) account_->remove(kind_, std::exchange(bytes_, 0));
  }

 private:
  void swap(Charge& other) noexcept {
    std::swap(account_, other.account_);
    std::swap(kind_, other.kind_);
    std::swap(bytes_, other.bytes_);
  }

  std::shared_ptr<Account> account_;
  Held kind_ = Held::kBodies;
  size_t bytes_ = 0;
};

}  // namespace quire::server::http
