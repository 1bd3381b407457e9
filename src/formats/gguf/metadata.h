#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "formats/config_reader.h"
#include "formats/gguf/gguf.h"

namespace quire::formats {

// Typed access to the metadata of a GGUF file, which remembers what was asked for. A value of the
// wrong type or out of range throws LoadError naming the file and the key. Views the entries.
class GgufMetadata {
 public:
  GgufMetadata(std::string file, const std::vector<GgufEntry>& entries);

  const std::string& file() const { return file_; }
  bool has(const std::string& key) const { return entries_.contains(key); }

  // One integer; of an array whose elements are all the same, that one.
  std::optional<int64_t> find_int(const std::string& key, IntRange range = {}) const;
  std::optional<double> find_double(const std::string& key, RealRange range = {}) const;
  std::optional<bool> find_bool(const std::string& key) const;
  std::optional<std::string> find_string(const std::string& key) const;
  int64_t require_int(const std::string& key, IntRange range = {}) const;
  std::string require_string(const std::string& key) const;

  // Arrays; null if there is none. Integers and bools are ints.
  const std::vector<std::string>* find_strings(const std::string& key) const;
  const std::vector<int64_t>* find_ints(const std::string& key) const;
  const std::vector<double>* find_doubles(const std::string& key) const;

  // Keys with this prefix.
  std::vector<std::string> keys(std::string_view prefix) const;
  // Those that nothing asked for.
  std::vector<std::string> unread(std::string_view prefix) const;
  const GgufValue* find(const std::string& key) const;

  [[noreturn]] void fail(const std::string& key, const std::string& why) const;

 private:
  std::string file_;
  std::map<std::string, const GgufValue*, std::less<>> entries_;
  mutable std::set<std::string, std::less<>> read_;
};

}  // namespace quire::formats
