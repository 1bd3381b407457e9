#include "server/api_keys.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <algorithm>
#include <mutex>
#include <random>

#include "base/check.h"
#include "base/error.h"
#include "base/trimmed.h"

namespace quire::server {
namespace {

// Random, so that nobody can name another tenant, in a cache_salt say.
uint64_t new_tenant() {
  std::random_device random;
  const uint64_t high = random();
  return high << 32 | random() | 1;
}

std::array<unsigned char, 32> new_salt() {
  std::array<unsigned char, 32> salt{};
  QUIRE_CHECK(RAND_bytes(salt.data(), static_cast<int>(salt.size())) == 1);
  return salt;
}

}  // namespace

ApiKeys::ApiKeys(const std::vector<std::string>& keys) : salt_(new_salt()) {
  for (const std::string& key : keys) check_api_key(key, "an API key");
  tenants_ = tenants_of(keys);
}

ApiKeys::Digest ApiKeys::digest_of(std::string_view key) const {
  Digest digest{};
  const auto* data = reinterpret_cast<const unsigned char*>(key.data());
  const unsigned char* made = HMAC(EVP_sha256(), salt_.data(), static_cast<int>(salt_.size()), data,
                                   key.size(), digest.data(), nullptr);
  QUIRE_CHECK(made != nullptr);
  return digest;
}

ApiKeys::Tenants ApiKeys::tenants_of(const std::vector<std::string>& keys) const {
  Tenants tenants;
  for (size_t i = 0; i < keys.size(); ++i) {
    const Digest digest = digest_of(keys[i]);
    if (tenants.contains(digest)) continue;  // given twice
    const auto known = tenants_.find(digest);
    const uint64_t number = known != tenants_.end() ? known->second.number : new_tenant();
    tenants.emplace(digest, Tenant{number, i + 1});
  }
  return tenants;
}

// One thread at a time; only requests, which read, come beside it.
void ApiKeys::replace(const std::vector<std::string>& keys) {
  QUIRE_CHECK(!keys.empty());
  for (const std::string& key : keys) check_api_key(key, "an API key");
  Tenants tenants = tenants_of(keys);
  const std::scoped_lock lock(mutex_);
  tenants_.swap(tenants);
}

size_t ApiKeys::size() const {
  const std::shared_lock lock(mutex_);
  return tenants_.size();
}

ApiKeys::Tenant ApiKeys::look_up(std::string_view given) const {
  const Digest digest = digest_of(given);
  const std::shared_lock lock(mutex_);
  const auto found = tenants_.find(digest);
  return found != tenants_.end() ? found->second : Tenant();
}

std::optional<uint64_t> ApiKeys::find(std::string_view given) const {
  const Tenant tenant = look_up(given);
  return tenant.place > 0 ? std::optional(tenant.number) : std::nullopt;
}

size_t ApiKeys::place_of(std::string_view given) const { return look_up(given).place; }

std::vector<std::string> parse_key_file(std::string_view text, const std::string& name) {
  std::vector<std::string> keys;
  if (constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF"; text.starts_with(kByteOrderMark))
    text.remove_prefix(kByteOrderMark.size());
  for (int number = 1; !text.empty(); ++number) {
    const size_t end = text.find('\n');
    const std::string_view line = trimmed(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.empty() || line.starts_with('#')) continue;
    check_api_key(line, name + " line " + std::to_string(number));
    keys.emplace_back(line);
  }
  if (keys.empty()) throw LoadError(name + " has no key; write one a line");
  return keys;
}

void check_api_key(std::string_view key, const std::string& source) {
  if (key.empty())
    throw LoadError(source + " is empty, which would let everybody in; is a variable not set?");
  if (key.find(' ') != std::string_view::npos)
    throw LoadError(source + " has a blank in it; a key is one word of printable ASCII");
  const auto is_bad = [](char c) { return c <= ' ' || c >= 0x7f; };
  if (std::any_of(key.begin(), key.end(), is_bad))
    throw LoadError(source +
                    " has other characters than printable ASCII, which no request could send");
}

}  // namespace quire::server
