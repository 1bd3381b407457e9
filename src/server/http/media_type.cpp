#include "server/http/media_type.h"

namespace quire::server::http {
namespace {

constexpr size_t kMaxShownBytes = 64;

std::string_view trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

// Takes the part before the next ';' that is not inside quotation marks off the front.
std::string_view take_part(std::string_view& text) {
  bool quoted = false;
  size_t i = 0;
  for (; i < text.size() && (quoted || text[i] != ';'); ++i) {
    if (text[i] == '"') quoted = !quoted;
    if (quoted && text[i] == '\\') ++i;
  }
  const std::string_view part = trim(text.substr(0, i));
  text.remove_prefix(std::min(text.size(), i + 1));
  return part;
}

// The value of a parameter such as `charset="UTF-8"`, in lower case and without quotation marks;
// nothing if its name is another one.
std::optional<std::string> value_of(std::string_view parameter, std::string_view name) {
  const size_t equals = parameter.find('=');
  if (equals == std::string_view::npos || lower_case(trim(parameter.substr(0, equals))) != name)
    return std::nullopt;
  std::string_view value = trim(parameter.substr(equals + 1));
  if (value.size() >= 2 && value.starts_with('"') && value.ends_with('"'))
    value = value.substr(1, value.size() - 2);
  return lower_case(value);
}

}  // namespace

std::optional<std::string> why_unreadable(const RequestHead& head) {
  std::string_view rest = head.header("content-type");
  if (lower_case(take_part(rest)) != "application/json")
    return "Only Content-Type: application/json is accepted";
  while (!rest.empty()) {
    const auto charset = value_of(take_part(rest), "charset");
    if (charset && *charset != "utf-8" && *charset != "utf8")
      return "JSON is read as utf-8, not as `" + charset->substr(0, kMaxShownBytes) + "`";
  }
  for (const auto& [name, value] : head.headers) {
    if (name != "content-encoding" || lower_case(trim(value)) == "identity") continue;
    return "Bodies with Content-Encoding `" + value.substr(0, kMaxShownBytes) +
           "` are not accepted; send it without";
  }
  return std::nullopt;
}

}  // namespace quire::server::http
