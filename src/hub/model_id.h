#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace quire::hub {

// A model on a hub: ORG/NAME, and a branch, tag or commit of its repository.
struct ModelId {
  std::string org, name;
  std::string revision = "main";

  std::string repo() const { return org + "/" + name; }
  // As it is typed: ORG/NAME, or ORG/NAME@REV where REV is not main.
  std::string text() const { return revision == "main" ? repo() : repo() + "@" + revision; }
  // The name of its folder in a cache: models--ORG--NAME.
  std::string folder() const { return "models--" + org + "--" + name; }
};

// Nothing if `text` is not ORG/NAME or ORG/NAME@REV by the rules of huggingface_hub: letters,
// digits and -_. in both words, no "--", no ".." and no "." or "-" at their ends, at most 96 bytes.
// A revision may have slashes ("refs/pr/1"), but no part of it may be empty, "." or "..".
std::optional<ModelId> parse_model_id(std::string_view text);

// What a cache's folder of a model is called after; nothing if it is no model's.
std::optional<ModelId> parse_cache_folder(std::string_view folder);

// Whether `text` is the whole id of a commit: 40 hexadecimal digits in lower case.
bool is_commit(std::string_view text);

// Whether a repository's file name can be a path below a folder on any system: parts separated by
// "/", none of them empty, "." or "..", without backslash, colon or control characters.
bool is_safe_path(std::string_view path);

}  // namespace quire::hub
