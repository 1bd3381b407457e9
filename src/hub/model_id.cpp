#include "hub/model_id.h"

#include <algorithm>

namespace quire::hub {
namespace {

constexpr size_t kMaxIdBytes = 96, kMaxRevisionBytes = 200;

bool is_alnum(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

bool is_word(std::string_view word) {
  const auto allowed = [](char c) { return is_alnum(c) || c == '-' || c == '_' || c == '.'; };
  const auto ends = [](char c) { return c == '-' || c == '.'; };
  return !word.empty() && std::ranges::all_of(word, allowed) && !ends(word.front()) &&
         !ends(word.back()) && word.find("--") == std::string_view::npos &&
         word.find("..") == std::string_view::npos && !word.ends_with(".git");
}

bool all_parts(std::string_view path, bool (*is_good)(std::string_view)) {
  for (;;) {
    const size_t end = path.find('/');
    if (!is_good(path.substr(0, end))) return false;
    if (end == std::string_view::npos) return true;
    path.remove_prefix(end + 1);
  }
}

bool is_revision(std::string_view text) {
  return text.size() <= kMaxRevisionBytes && all_parts(text, [](std::string_view part) {
           const auto allowed = [](char c) {
             return is_alnum(c) || c == '-' || c == '_' || c == '.' || c == '+';
           };
           return !part.empty() && part != "." && part != ".." &&
                  std::ranges::all_of(part, allowed);
         });
}

}  // namespace

std::optional<ModelId> parse_model_id(std::string_view text) {
  ModelId id;
  if (const size_t at = text.find('@'); at != std::string_view::npos) {
    id.revision = text.substr(at + 1);
    text = text.substr(0, at);
    if (!is_revision(id.revision)) return std::nullopt;
  }
  const size_t slash = text.find('/');
  if (slash == std::string_view::npos || text.size() > kMaxIdBytes) return std::nullopt;
  id.org = text.substr(0, slash);
  id.name = text.substr(slash + 1);
  if (!is_word(id.org) || !is_word(id.name)) return std::nullopt;
  return id;
}

std::optional<ModelId> parse_cache_folder(std::string_view folder) {
  constexpr std::string_view kPrefix = "models--", kSeparator = "--";
  if (!folder.starts_with(kPrefix)) return std::nullopt;
  folder.remove_prefix(kPrefix.size());
  const size_t between = folder.find(kSeparator);
  if (between == std::string_view::npos) return std::nullopt;
  return parse_model_id(std::string(folder.substr(0, between)) + "/" +
                        std::string(folder.substr(between + kSeparator.size())));
}

bool is_commit(std::string_view text) {
  return text.size() == 40 && std::ranges::all_of(text, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

bool is_safe_path(std::string_view path) {
  return all_parts(path, [](std::string_view part) {
    return !part.empty() && part != "." && part != ".." && std::ranges::none_of(part, [](char c) {
      return c == '\\' || c == ':' || static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
    });
  });
}

}  // namespace quire::hub
