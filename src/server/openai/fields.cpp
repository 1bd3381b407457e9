#include "server/openai/fields.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/printable.h"

namespace quire::server::openai {
namespace {

constexpr size_t kMaxNameBytes = 64;  // of a client's own, in an error

std::string format(double x) {
  char buffer[32];
  return {buffer, std::to_chars(buffer, buffer + sizeof buffer, x).ptr};
}

// "between 0 and 1", or one-sided where the other bound is none.
std::string range(int64_t min, int64_t max) {
  if (max == std::numeric_limits<int64_t>::max()) return "at least " + std::to_string(min);
  return "between " + std::to_string(min) + " and " + std::to_string(max);
}

}  // namespace

std::optional<int64_t> as_integer(const json::value& value) {
  if (value.is_int64()) return value.get_int64();
  if (value.is_double()) {
    const double x = value.get_double();
    // 2^53: beyond it a double does not say which integer was meant.
    if (x == std::floor(x) && std::abs(x) <= 9007199254740992.0) return static_cast<int64_t>(x);
  }
  return std::nullopt;
}

bool same_value(const json::value& a, const json::value& b) {
  if (a.is_number() && b.is_number()) return a.to_number<double>() == b.to_number<double>();
  return a == b;
}

const json::value* Fields::find(std::string_view key) const {
  const json::value* value = object_.if_contains({key.data(), key.size()});
  return value != nullptr && !value->is_null() ? value : nullptr;
}

void Fields::fail(ApiError error) {
  if (ok()) error_ = std::move(error);
}

void Fields::fail(std::string_view key, const std::string& message, const char* code) {
  fail(ApiError{400, "`" + name(key) + "` " + message, name(key), code});
}

void Fields::missing(std::string_view key) {
  fail(key, "is required", "missing_required_parameter");
}
void Fields::mistyped(std::string_view key, const std::string& message) {
  fail(key, message, kInvalidType);
}
void Fields::empty_list(std::string_view key) { fail(key, "must not be empty", "empty_array"); }
void Fields::too_many(std::string_view key, const std::string& message) {
  fail(key, message, "array_above_max_length");
}

std::optional<bool> Fields::boolean(std::string_view key) {
  const json::value* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_bool()) return value->get_bool();
  mistyped(key, "must be true or false");
  return std::nullopt;
}

std::optional<int64_t> Fields::integer(std::string_view key, int64_t min, int64_t max) {
  const json::value* value = find(key);
  if (value == nullptr) return std::nullopt;
  const auto number = as_integer(*value);
  if (!number) {
    if (!value->is_uint64()) return mistyped(key, "must be an integer"), std::nullopt;
    fail(key, "is too large", "integer_above_max_value");
  } else if (*number < min || *number > max) {
    fail(key, "must be " + range(min, max) + ", got " + std::to_string(*number),
         *number < min ? "integer_below_min_value" : "integer_above_max_value");
  } else {
    return number;
  }
  return std::nullopt;
}

std::optional<float> Fields::number(std::string_view key, double min, double max) {
  const json::value* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) {
    mistyped(key, "must be a number");
    return std::nullopt;
  }
  const double x = value->to_number<double>();
  if (std::isfinite(x) && x >= min && x <= max) return static_cast<float>(x);
  fail(key, "must be between " + format(min) + " and " + format(max) + ", got " + format(x),
       x < min ? "decimal_below_min_value" : "decimal_above_max_value");
  return std::nullopt;
}

std::optional<std::string> Fields::string(std::string_view key, size_t max_bytes) {
  const json::value* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) {
    mistyped(key, "must be a string");
  } else if (value->get_string().size() > max_bytes) {
    fail(key, "is longer than " + std::to_string(max_bytes) + " bytes", "string_above_max_length");
  } else {
    return std::string(as_view(value->get_string()));
  }
  return std::nullopt;
}

const json::array* Fields::array(std::string_view key, int64_t max_size) {
  const json::value* value = find(key);
  if (value == nullptr) return nullptr;
  if (!value->is_array()) {
    mistyped(key, "must be a list");
  } else if (static_cast<int64_t>(value->get_array().size()) > max_size) {
    too_many(key, "has " + std::to_string(value->get_array().size()) + " entries; at most " +
                      std::to_string(max_size) + " are allowed");
  } else {
    return &value->get_array();
  }
  return nullptr;
}

const json::object* Fields::object(std::string_view key) {
  const json::value* value = find(key);
  if (value == nullptr) return nullptr;
  if (value->is_object()) return &value->get_object();
  mistyped(key, "must be an object");
  return nullptr;
}

void Fields::unknown(std::string_view key) {
  fail(printable(key, kMaxNameBytes), "is not a known field", "unsupported_parameter");
}

void Fields::only(std::initializer_list<std::string_view> names) {
  for (const auto& entry : object_) {
    const std::string_view key(entry.key().data(), entry.key().size());
    if (!entry.value().is_null() && std::ranges::find(names, key) == names.end()) unknown(key);
  }
}

void Fields::unsupported(std::string_view key) {
  if (has(key)) fail(key, "is not supported by this server", "unsupported_parameter");
}

void Fields::unsupported_unless(std::string_view key, const json::value& harmless) {
  const json::value* value = find(key);
  if (value == nullptr || same_value(*value, harmless)) return;
  fail(key, "is not supported by this server, except as " + dump_json(harmless),
       "unsupported_value");
}

}  // namespace quire::server::openai
