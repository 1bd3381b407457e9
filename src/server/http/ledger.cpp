#include "server/http/ledger.h"

#include <algorithm>

namespace quire::server::http {
namespace {

// Smaller blocks are used again soon. But not a grammar's, which are small and many.
constexpr size_t kWorthReturning = 256u << 10;

}  // namespace

const char* held_name(Held kind) {
  switch (kind) {
    case Held::kBodies:
      return "bodies";
    case Held::kDocuments:
      return "documents";
    case Held::kPrompts:
      return "prompts";
    case Held::kAnswers:
      return "answers";
    case Held::kGrammars:
      return "grammars";
    case Held::kTokenising:
      return "tokenising";
  }
  return "?";
}

Ledger::Ledger(size_t max_bytes, size_t max_connections)
    : own_bytes_(std::min(kOwnBytes, max_bytes / 2 / std::max<size_t>(1, max_connections))),
      shared_limit_(max_bytes - own_bytes_ * max_connections),
      limit_of_owner_(shared_limit_ / 2) {}

size_t Ledger::held() const {
  const std::scoped_lock lock(mutex_);
  size_t sum = 0;
  for (const size_t bytes : by_kind_) sum += bytes;
  return sum;
}

size_t Ledger::held(Held kind) const {
  const std::scoped_lock lock(mutex_);
  return by_kind_[static_cast<size_t>(kind)];
}

size_t Ledger::take_released(size_t bytes) {
  const std::scoped_lock lock(mutex_);
  if (released_ < bytes) return 0;
  all_released_ = 0;
  return std::exchange(released_, 0);
}

size_t Ledger::take_all_released(size_t bytes) {
  const std::scoped_lock lock(mutex_);
  if (all_released_ < bytes) return 0;
  released_ = 0;
  return std::exchange(all_released_, 0);
}

Account::Account(std::shared_ptr<Ledger> ledger, std::string owner)
    : ledger_(std::move(ledger)), owner_(std::move(owner)) {}

size_t Account::shared_part(size_t held) const {
  return held - std::min(held, ledger_->own_bytes_);
}

bool Account::fits(size_t bytes) const {
  const size_t more = shared_part(held_ + bytes) - shared_part(held_);
  if (more == 0) return true;
  const auto found = ledger_->by_owner_.find(owner_);
  const size_t of_owner = found == ledger_->by_owner_.end() ? 0 : found->second;
  const size_t of_others = std::min(ledger_->shared_ - of_owner, ledger_->shared_limit_);
  return of_owner + more <= (ledger_->shared_limit_ - of_others) / 2;
}

void Account::book(Held kind, size_t bytes) {
  const size_t more = shared_part(held_ + bytes) - shared_part(held_);
  held_ += bytes;
  ledger_->by_kind_[static_cast<size_t>(kind)] += bytes;
  if (more == 0) return;
  ledger_->shared_ += more;
  ledger_->by_owner_[owner_] += more;
}

void Account::take_from_owner(size_t shared) {
  const auto found = ledger_->by_owner_.find(owner_);
  if ((found->second -= shared) == 0) ledger_->by_owner_.erase(found);
}

std::string Account::owner() const {
  const std::scoped_lock lock(ledger_->mutex_);
  return owner_;
}

void Account::set_owner(const std::string& owner) {
  const std::scoped_lock lock(ledger_->mutex_);
  if (owner == owner_) return;
  const size_t shared = shared_part(held_);
  if (shared > 0) take_from_owner(shared);
  owner_ = owner;
  if (shared > 0) ledger_->by_owner_[owner_] += shared;
}

size_t Account::held() const {
  const std::scoped_lock lock(ledger_->mutex_);
  return held_;
}

bool Account::would_fit(size_t bytes) const {
  const std::scoped_lock lock(ledger_->mutex_);
  return fits(bytes);
}

bool Account::try_add(Held kind, size_t bytes) {
  const std::scoped_lock lock(ledger_->mutex_);
  if (!fits(bytes)) return false;
  book(kind, bytes);
  return true;
}

void Account::add(Held kind, size_t bytes) {
  const std::scoped_lock lock(ledger_->mutex_);
  book(kind, bytes);
}

void Account::remove(Held kind, size_t bytes) {
  const std::scoped_lock lock(ledger_->mutex_);
  const size_t less = shared_part(held_) - shared_part(held_ - bytes);
  held_ -= bytes;
  ledger_->by_kind_[static_cast<size_t>(kind)] -= bytes;
  ledger_->all_released_ += bytes;
  if (bytes >= kWorthReturning || kind == Held::kGrammars) ledger_->released_ += bytes;
  if (less == 0) return;
  ledger_->shared_ -= less;
  take_from_owner(less);
}

}  // namespace quire::server::http
