#include "server/api_keys.h"

#include <algorithm>
#include <mutex>
#include <random>

#include "base/check.h"
#include "base/error.h"
#include "base/trimmed.h"
#include "server/auth.h"

namespace quire::server {
namespace {

// Random, so that nobody can name another tenant, in a cache_salt say.
uint64_t new_tenant() {
  std::random_device random;
  const uint64_t high = random();
  return high << 32 | random() | 1;
}

}  // namespace

ApiKeys::ApiKeys(const std::vector<std::string>& keys) {
  for (const std::string& key : keys) check_api_key(key, "an API key");
  entries_ = make_entries(keys);
}

std::vector<ApiKeys::Entry> ApiKeys::make_entries(const std::vector<std::string>& keys) const {
  std::vector<Entry> entries;
  for (const std::string& key : keys) {
    const auto is_it = [&](const Entry& entry) { return entry.key == key; };
    if (std::any_of(entries.begin(), entries.end(), is_it)) continue;  // given twice
    const auto known = std::find_if(entries_.begin(), entries_.end(), is_it);
    entries.push_back({key, known != entries_.end() ? known->tenant : new_tenant()});
  }
  return entries;
}

void ApiKeys::replace(const std::vector<std::string>& keys) {
  QUIRE_CHECK(!keys.empty());
  for (const std::string& key : keys) check_api_key(key, "an API key");
  const std::scoped_lock lock(mutex_);
  entries_ = make_entries(keys);
}

size_t ApiKeys::size() const {
  const std::shared_lock lock(mutex_);
  return entries_.size();
}

std::optional<uint64_t> ApiKeys::find(std::string_view given) const {
  const std::shared_lock lock(mutex_);
  uint64_t tenant = 0;
  for (const Entry& entry : entries_) {
    const uint64_t mask = 0 - static_cast<uint64_t>(equal_in_constant_time(given, entry.key));
    tenant |= mask & entry.tenant;
  }
  return tenant != 0 ? std::optional(tenant) : std::nullopt;
}

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
  const auto is_bad = [](char c) { return c <= ' ' || c >= 0x7f; };
  if (std::any_of(key.begin(), key.end(), is_bad))
    throw LoadError(source +
                    " has other characters than printable ASCII, which no request could send");
}

}  // namespace quire::server
