#pragma once
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace quire::formats {

struct IntRange {
  int64_t min = std::numeric_limits<int64_t>::min();
  int64_t max = std::numeric_limits<int64_t>::max();
};

// Bounds of a real number; `min` itself is allowed only if `min_inclusive`.
struct RealRange {
  double min = std::numeric_limits<double>::lowest();
  double max = std::numeric_limits<double>::max();
  bool min_inclusive = true;
};

// What a model multiplies or divides by: outside of it numbers become infinite, or nothing is left
// of them, in the floats that it computes in.
inline constexpr RealRange kFactors{.min = 1e-9, .max = 1e12};
// What norms add, so that a row of zeros is divided by something.
inline constexpr RealRange kEpsilons{.min = 1e-20, .max = 1.0};

// Other names of keys, by their whole path, for messages.
using KeyNames = std::map<std::string, std::string, std::less<>>;

// Typed access to the keys of a JSON object in a model's folder. A key that is null counts as
// absent, as in transformers. A value of the wrong type or out of range throws LoadError naming the
// file and the key. Views the objects, which must outlive it.
class ConfigReader {
 public:
  // Keys that `object` lacks are looked up in `fallback`. `path` goes before keys in messages
  // ("rope_scaling."), and a key in `names` has the other name before it.
  ConfigReader(std::string file, const json::object& object, const json::object* fallback = nullptr,
               std::string path = {}, const KeyNames* names = nullptr);

  const json::object& object() const { return *object_; }
  const json::value* find(std::string_view key) const;
  // The object under `key`, or null if absent.
  const json::object* find_object(std::string_view key) const;
  // A reader of `object`, which lies under `key`, for messages that name the whole path.
  ConfigReader inside(std::string_view key, const json::object& object) const;

  // 4096.0 counts as the integer 4096.
  std::optional<int64_t> find_int(std::string_view key, IntRange range = {}) const;
  std::optional<double> find_double(std::string_view key, RealRange range = {}) const;
  std::optional<bool> find_bool(std::string_view key) const;
  std::optional<std::string> find_string(std::string_view key) const;
  std::vector<std::string> get_strings(std::string_view key) const;
  std::vector<double> get_doubles(std::string_view key, RealRange range = {}) const;
  // One integer or a list of them; empty if absent.
  std::vector<int64_t> get_ints(std::string_view key, IntRange range = {}) const;

  int64_t require_int(std::string_view key, IntRange range = {}) const;
  double require_double(std::string_view key, RealRange range = {}) const;

  [[noreturn]] void fail(std::string_view key, const std::string& why) const;

 private:
  [[noreturn]] void fail_type(std::string_view key, const json::value& value,
                              const char* wanted) const;
  const json::array* find_array(std::string_view key, const char* wanted) const;
  int64_t as_int(std::string_view key, const json::value& value, IntRange range) const;
  double as_double(std::string_view key, const json::value& value, RealRange range) const;
  std::string as_string(std::string_view key, const json::value& value) const;

  std::string file_;
  const json::object* object_;
  const json::object* fallback_;
  std::string path_;
  const KeyNames* names_;
};

// The object in the JSON file at `file`. Throws LoadError.
json::value read_json_object(const std::string& file, const JsonLimits& limits = {});

}  // namespace quire::formats
