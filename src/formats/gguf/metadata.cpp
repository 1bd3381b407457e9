#include "formats/gguf/metadata.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"

namespace quire::formats {
namespace {

std::string text_of(int64_t x) { return std::to_string(x); }
std::string text_of(double x) {
  return std::isfinite(x) ? dump_json(json::value(x)) : std::to_string(x);
}

}  // namespace

GgufMetadata::GgufMetadata(std::string file, const std::vector<GgufEntry>& entries)
    : file_(std::move(file)) {
  for (const GgufEntry& entry : entries) entries_.emplace(entry.key, &entry.value);
}

void GgufMetadata::fail(const std::string& key, const std::string& why) const {
  throw LoadError(file_ + ": " + quote_name(key) + " " + why);
}

const GgufValue* GgufMetadata::find(const std::string& key) const {
  const auto found = entries_.find(key);
  if (found == entries_.end()) return nullptr;
  read_.insert(key);
  return found->second;
}

std::optional<int64_t> GgufMetadata::find_int(const std::string& key, IntRange range) const {
  const GgufValue* value = find(key);
  if (!value) return std::nullopt;
  const auto* number = std::get_if<int64_t>(&value->value);
  if (const auto* all = std::get_if<std::vector<int64_t>>(&value->value)) {
    if (all->empty() || std::ranges::any_of(*all, [&](int64_t x) { return x != all->front(); }))
      fail(key, "must be one number, or the same one for each layer");
    number = all->data();
  }
  if (!number || value->type == GgufType::kBool) fail(key, "must be an integer");
  if (*number < range.min || *number > range.max)
    fail(key, "is " + text_of(*number) + "; supported are " + text_of(range.min) + " to " +
                  text_of(range.max));
  return *number;
}

std::optional<double> GgufMetadata::find_double(const std::string& key, RealRange range) const {
  const GgufValue* value = find(key);
  if (!value) return std::nullopt;
  const auto* number = std::get_if<double>(&value->value);
  if (!number) fail(key, "must be a number");
  const bool fits =
      *number <= range.max && (range.min_inclusive ? *number >= range.min : *number > range.min);
  if (!fits) fail(key, "is " + text_of(*number) + ", which is out of range");
  return *number;
}

std::optional<bool> GgufMetadata::find_bool(const std::string& key) const {
  const GgufValue* value = find(key);
  if (!value) return std::nullopt;
  const auto* number = std::get_if<int64_t>(&value->value);
  if (!number || value->type != GgufType::kBool) fail(key, "must be a bool");
  return *number != 0;
}

std::optional<std::string> GgufMetadata::find_string(const std::string& key) const {
  const GgufValue* value = find(key);
  if (!value) return std::nullopt;
  const auto* text = std::get_if<std::string>(&value->value);
  if (!text) fail(key, "must be a text");
  return *text;
}

int64_t GgufMetadata::require_int(const std::string& key, IntRange range) const {
  if (const auto number = find_int(key, range)) return *number;
  fail(key, "is missing");
}

std::string GgufMetadata::require_string(const std::string& key) const {
  if (auto text = find_string(key)) return *std::move(text);
  fail(key, "is missing");
}

const std::vector<std::string>* GgufMetadata::find_strings(const std::string& key) const {
  const GgufValue* value = find(key);
  if (!value) return nullptr;
  const auto* all = std::get_if<std::vector<std::string>>(&value->value);
  if (!all) fail(key, "must be an array of texts");
  return all;
}

const std::vector<int64_t>* GgufMetadata::find_ints(const std::string& key) const {
  const GgufValue* value = find(key);
  if (!value) return nullptr;
  const auto* all = std::get_if<std::vector<int64_t>>(&value->value);
  if (!all) fail(key, "must be an array of integers");
  return all;
}

const std::vector<double>* GgufMetadata::find_doubles(const std::string& key) const {
  const GgufValue* value = find(key);
  if (!value) return nullptr;
  const auto* all = std::get_if<std::vector<double>>(&value->value);
  if (!all) fail(key, "must be an array of numbers");
  return all;
}

std::vector<std::string> GgufMetadata::keys(std::string_view prefix) const {
  std::vector<std::string> out;
  for (const auto& [key, value] : entries_)
    if (key.starts_with(prefix)) out.push_back(key);
  return out;
}

std::vector<std::string> GgufMetadata::unread(std::string_view prefix) const {
  std::vector<std::string> out = keys(prefix);
  std::erase_if(out, [&](const std::string& key) { return read_.contains(key); });
  return out;
}

}  // namespace quire::formats
