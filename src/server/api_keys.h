#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <vector>

namespace quire::server {

// The keys that requests may bring, and the tenant that each of them stands for. Any thread.
class ApiKeys {
 public:
  // None: everybody may. Throws LoadError for a key that no request could bring.
  explicit ApiKeys(const std::vector<std::string>& keys);

  // Keys that were there before keep their tenant. The list must not become empty: that would open
  // the server.
  void replace(const std::vector<std::string>& keys);

  bool empty() const { return size() == 0; }
  size_t size() const;
  // The tenant of the key: a random number, never 0. How long this takes says nothing of the keys:
  // they are looked up by a digest with a salt that nobody knows. It does not grow with their
  // number, and neither does how long replace() keeps it waiting.
  std::optional<uint64_t> find(std::string_view given) const;
  // Its place among the keys that were given, from 1; 0: it is none of them.
  size_t place_of(std::string_view given) const;

 private:
  using Digest = std::array<unsigned char, 32>;
  struct Tenant {
    uint64_t number = 0;
    size_t place = 0;
  };
  using Tenants = std::map<Digest, Tenant>;

  Digest digest_of(std::string_view key) const;
  Tenant look_up(std::string_view given) const;
  Tenants tenants_of(const std::vector<std::string>& keys) const;

  const Digest salt_;
  mutable std::shared_mutex mutex_;
  Tenants tenants_;
};

// The keys of a key file: one a line, without the blanks around it; empty lines and those that
// begin with # do not count. Throws LoadError, naming `name` and the line, for a bad key or none.
std::vector<std::string> parse_key_file(std::string_view text, const std::string& name);

// Throws LoadError, naming `source` and not the key, for one that is empty or has blanks or control
// characters.
void check_api_key(std::string_view key, const std::string& source);

}  // namespace quire::server
