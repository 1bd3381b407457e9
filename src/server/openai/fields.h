#pragma once
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "server/errors.h"

namespace quire::server::openai {

// Codes of fields at fault, as OpenAI's API has them.
inline constexpr const char* kInvalidValue = "invalid_value";
inline constexpr const char* kInvalidType = "invalid_type";

// Reads the fields of a JSON object and remembers the first thing that is wrong with them, with
// the field's name. Absent and null fields are the same. After an error the getters still return
// (nothing or some default), so that a parser needs one check at its end.
class Fields {
 public:
  // `path` is put before the names in errors: "messages[0]." and the like.
  explicit Fields(const json::object& object, std::string path = {})
      : object_(object), path_(std::move(path)) {}

  bool ok() const { return !error_.has_value(); }
  const ApiError& error() const { return *error_; }

  std::string name(std::string_view key) const { return path_ + std::string(key); }
  const json::object& all() const { return object_; }
  const json::value* find(std::string_view key) const;  // null if absent
  bool has(std::string_view key) const { return find(key) != nullptr; }

  std::optional<bool> boolean(std::string_view key);
  bool flag(std::string_view key, bool fallback) { return boolean(key).value_or(fallback); }
  std::optional<int64_t> integer(std::string_view key,
                                 int64_t min = std::numeric_limits<int64_t>::min(),
                                 int64_t max = std::numeric_limits<int64_t>::max());
  // Finite numbers in [min, max].
  std::optional<float> number(std::string_view key, double min, double max);
  std::optional<std::string> string(std::string_view key, size_t max_bytes = SIZE_MAX);
  const json::array* array(std::string_view key, int64_t max_size);
  const json::object* object(std::string_view key);

  // Refuses a field that we know but do not support, unless its value is one that changes nothing.
  void unsupported(std::string_view key);
  void unsupported_unless(std::string_view key, const json::value& harmless);

  // Refuses a field that nobody reads, and all with other names than these.
  void unknown(std::string_view key);
  void only(std::initializer_list<std::string_view> names);

  // The codes are OpenAI's; what clients of other APIs read has none of them.
  void fail(std::string_view key, const std::string& message, const char* code = kInvalidValue);
  void fail(ApiError error);
  void missing(std::string_view key);                               // "is required"
  void mistyped(std::string_view key, const std::string& message);  // of another JSON type
  void empty_list(std::string_view key);
  void too_many(std::string_view key, const std::string& message);

 private:
  const json::object& object_;
  std::string path_;
  std::optional<ApiError> error_;
};

// Equal, numbers by their value: 1 is 1.0.
bool same_value(const json::value& a, const json::value& b);
// A JSON number that is an integer, also when written as 3.0.
std::optional<int64_t> as_integer(const json::value& value);
inline std::string_view as_view(const json::string& text) { return {text.data(), text.size()}; }

}  // namespace quire::server::openai
