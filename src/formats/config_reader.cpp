#include "formats/config_reader.h"

#include <cmath>
#include <utility>

#include "base/error.h"
#include "formats/data_file.h"
#include "formats/raw_tensor.h"

namespace quire::formats {
namespace {

std::string number(double x) { return dump_json(json::value(x)); }

std::string range_text(IntRange r) {
  return "[" + std::to_string(r.min) + ", " + std::to_string(r.max) + "]";
}

std::string range_text(RealRange r) {
  return (r.min_inclusive ? "[" : "(") + number(r.min) + ", " + number(r.max) + "]";
}

}  // namespace

ConfigReader::ConfigReader(std::string file, const json::object& object,
                           const json::object* fallback, std::string path, const KeyNames* names)
    : file_(std::move(file)),
      object_(&object),
      fallback_(fallback),
      path_(std::move(path)),
      names_(names) {}

const json::value* ConfigReader::find(std::string_view key) const {
  const json::value* value = object_->if_contains({key.data(), key.size()});
  if (value && !value->is_null()) return value;
  value = fallback_ ? fallback_->if_contains({key.data(), key.size()}) : nullptr;
  return value && !value->is_null() ? value : nullptr;
}

const json::object* ConfigReader::find_object(std::string_view key) const {
  const json::value* value = find(key);
  if (value && !value->is_object()) fail_type(key, *value, "an object");
  return value ? &value->get_object() : nullptr;
}

ConfigReader ConfigReader::inside(std::string_view key, const json::object& object) const {
  return ConfigReader(file_, object, nullptr, path_ + std::string(key) + ".", names_);
}

void ConfigReader::fail(std::string_view key, const std::string& why) const {
  const std::string path = path_ + std::string(key);
  std::string name = quote_name(path);
  if (names_)
    if (const auto other = names_->find(path); other != names_->end())
      name = quote_name(other->second) + " (" + path + ")";
  throw LoadError(file_ + ": " + name + " " + why);
}

void ConfigReader::fail_type(std::string_view key, const json::value& value,
                             const char* wanted) const {
  const std::string text = dump_json(value);
  fail(key, std::string("must be ") + wanted + ", not " + text.substr(0, 80));
}

int64_t ConfigReader::as_int(std::string_view key, const json::value& value, IntRange range) const {
  constexpr double kExact = 9007199254740992.0;  // 2^53: above it a double is no exact count
  int64_t i = 0;
  if (value.is_int64()) {
    i = value.get_int64();
  } else if (value.is_double() && std::trunc(value.get_double()) == value.get_double() &&
             std::abs(value.get_double()) <= kExact) {
    i = static_cast<int64_t>(value.get_double());
  } else {
    fail_type(key, value, "an integer");
  }
  if (i < range.min || i > range.max)
    fail(key, "is " + std::to_string(i) + ", out of range " + range_text(range));
  return i;
}

double ConfigReader::as_double(std::string_view key, const json::value& value,
                               RealRange range) const {
  if (!value.is_number()) fail_type(key, value, "a number");
  const double x = value.to_number<double>();
  const bool above = range.min_inclusive ? x >= range.min : x > range.min;
  if (!(above && x <= range.max))
    fail(key, "is " + number(x) + ", out of range " + range_text(range));
  return x;
}

std::string ConfigReader::as_string(std::string_view key, const json::value& value) const {
  if (!value.is_string()) fail_type(key, value, "a string");
  return {value.get_string().data(), value.get_string().size()};
}

std::optional<int64_t> ConfigReader::find_int(std::string_view key, IntRange range) const {
  const json::value* value = find(key);
  return value ? std::optional(as_int(key, *value, range)) : std::nullopt;
}

std::optional<double> ConfigReader::find_double(std::string_view key, RealRange range) const {
  const json::value* value = find(key);
  return value ? std::optional(as_double(key, *value, range)) : std::nullopt;
}

std::optional<bool> ConfigReader::find_bool(std::string_view key) const {
  const json::value* value = find(key);
  if (value && !value->is_bool()) fail_type(key, *value, "true or false");
  return value ? std::optional(value->get_bool()) : std::nullopt;
}

std::optional<std::string> ConfigReader::find_string(std::string_view key) const {
  const json::value* value = find(key);
  return value ? std::optional(as_string(key, *value)) : std::nullopt;
}

const json::array* ConfigReader::find_array(std::string_view key, const char* wanted) const {
  const json::value* value = find(key);
  if (value && !value->is_array()) fail_type(key, *value, wanted);
  return value ? &value->get_array() : nullptr;
}

std::vector<std::string> ConfigReader::get_strings(std::string_view key) const {
  std::vector<std::string> out;
  if (const json::array* array = find_array(key, "a list of strings"))
    for (const json::value& v : *array) out.push_back(as_string(key, v));
  return out;
}

std::vector<double> ConfigReader::get_doubles(std::string_view key, RealRange range) const {
  std::vector<double> out;
  if (const json::array* array = find_array(key, "a list of numbers"))
    for (const json::value& v : *array) out.push_back(as_double(key, v, range));
  return out;
}

std::vector<int64_t> ConfigReader::get_ints(std::string_view key, IntRange range) const {
  const json::value* value = find(key);
  if (!value) return {};
  if (!value->is_array()) return {as_int(key, *value, range)};
  std::vector<int64_t> out;
  for (const json::value& v : value->get_array()) out.push_back(as_int(key, v, range));
  return out;
}

int64_t ConfigReader::require_int(std::string_view key, IntRange range) const {
  const auto value = find_int(key, range);
  if (!value) fail(key, "is missing; this kind of model needs it");
  return *value;
}

double ConfigReader::require_double(std::string_view key, RealRange range) const {
  const auto value = find_double(key, range);
  if (!value) fail(key, "is missing; this kind of model needs it");
  return *value;
}

json::value read_json_object(const std::string& file, const JsonLimits& limits) {
  auto value = parse_json(read_text_file(file, limits.max_bytes), limits);
  if (!value) throw LoadError(file + ": " + value.error() + "; download the file again");
  if (!value->is_object()) throw LoadError(file + ": must hold a JSON object");
  return std::move(*value);
}

}  // namespace quire::formats
