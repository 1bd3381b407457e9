#include "dialects/grammar_rules.h"

#include <algorithm>

#include "dialects/search_pattern.h"

namespace quire::dialects {
namespace {

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
      continue;
    }
    if (std::string_view(R"(\/.*+?()[]{}|^$&~-)").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

constexpr std::string_view kAnyText = "(?s:.*)";

// What ends with the first `end`: a lazy lexeme, which goes on where it does not follow the pattern
// yet.
std::string up_to(const std::string& pattern, std::string_view end) {
  const std::string all = "/" + pattern + escaped(end) + "/";
  return pattern == kAnyText ? all : all + " & ~/(?s:.*)" + escaped(end) + "(?s:.+)/";
}

std::optional<uint64_t> count_of(const json::object& schema, std::string_view key) {
  const json::value* value = schema.if_contains(key);
  if (value == nullptr) return std::nullopt;
  boost::system::error_code error;
  const auto number = value->to_number<uint64_t>(error);
  return error ? std::nullopt : std::optional(number);
}

// Longer bounds cost more memory than a grammar gets.
constexpr uint64_t kMaxTextBound = 20'000;

}  // namespace

GrammarRules::GrammarRules(const Dialect& dialect, const SpecialToken& special) {
  for (const std::string_view marker : marker_texts({&dialect, nullptr}))
    if (const auto id = special(marker))
      marks_.emplace_back(marker, "<[" + std::to_string(*id) + "]>");
}

std::string GrammarRules::quoted(std::string_view text) {
  std::string out;
  append_json_string(out, text);
  return out + " ";
}

bool GrammarRules::holds_special(std::string_view text) const {
  return std::ranges::any_of(marks_, [text](const auto& mark) {
    return mark.second.starts_with("<[") && text.find(mark.first) != text.npos;
  });
}

std::string GrammarRules::literal(std::string_view text) const {
  std::string out, plain;
  const auto flush = [&] {
    if (!plain.empty()) out += quoted(plain);
    plain.clear();
  };
  while (!text.empty()) {
    const auto found = std::ranges::find_if(
        marks_, [text](const auto& mark) { return text.starts_with(mark.first); });
    if (found == marks_.end()) {
      plain += text.front();
      text.remove_prefix(1);
      continue;
    }
    flush();
    out += found->second + " ";
    text.remove_prefix(found->first.size());
  }
  flush();
  return out;
}

std::string GrammarRules::schema(json::object schema, const std::string& path,
                                 const json::object* root) {
  if (root != nullptr) add_definitions(*root, schema);
  const std::string reference = "\x01" + std::to_string(schemas_.size()) + "\x01";
  schemas_.push_back({{"name", path}, {"schema", std::move(schema)}});
  return reference + " ";
}

void GrammarRules::add_definitions(const json::object& root, json::object& to) {
  constexpr const char* kKeys[] = {"$defs", "definitions"};
  if (std::exchange(root_, &root) != &root) {
    definition_bytes_ = 0;
    for (const char* key : kKeys)
      if (const json::value* shared = root.if_contains(key))
        definition_bytes_ += dump_json(*shared).size();
  }
  shared_bytes_ += definition_bytes_;
  if (shared_bytes_ > kMaxSharedDefinitions) {
    if (!refusal_) {
      refusal_ = {"tools", "`tools` have more than " + std::to_string(kMaxSharedDefinitions) +
                               " bytes of `$defs`, which count once for each argument"};
    }
    return;
  }
  for (const char* key : kKeys)
    if (const json::value* shared = root.if_contains(key)) to.emplace(key, *shared);
}

std::string GrammarRules::reserve(std::string_view kind) {
  return std::string(kind) + "_" + std::to_string(num_rules_++) + " ";
}

void GrammarRules::define(const std::string& name, const std::string& body) {
  rules_ += name.substr(0, name.size() - 1) + ": " + body + "\n";
}

std::string GrammarRules::add(std::string_view kind, const std::string& body) {
  const std::string name = reserve(kind);
  define(name, body);
  return name;
}

// How text recognises its end: by plain text, and by what follows that.
struct GrammarRules::End {
  std::string text;  // of a literal, up to a special token
  std::string rest;  // an expression: that token and what follows
};

GrammarRules::End GrammarRules::end_of(std::string_view text) const {
  End end;
  for (; !text.empty(); text.remove_prefix(1)) {
    const bool is_mark = std::ranges::any_of(
        marks_, [text](const auto& mark) { return text.starts_with(mark.first); });
    if (is_mark) break;
    end.text += text.front();
  }
  end.rest = literal(text);
  return end;
}

// The length and the pattern of a string as a regular expression.
std::string GrammarRules::text_pattern(const json::object& schema, const std::string& path) {
  const auto least = count_of(schema, "minLength"), most = count_of(schema, "maxLength");
  const json::value* pattern = schema.if_contains("pattern");
  if (pattern != nullptr && pattern->is_string()) {
    if (least || most) refuse(path + ".pattern", "not beside a length in strings without quotes");
    const json::string& text = pattern->get_string();
    return search_pattern({text.data(), text.size()});
  }
  if (least.value_or(0) > kMaxTextBound) refuse(path + ".minLength", "it is too large");
  // A bound that no answer reaches is none.
  const bool bounded = most && *most <= kMaxTextBound;
  if (!least && !bounded) return std::string(kAnyText);
  return "(?s:.{" + std::to_string(least.value_or(0)) + "," +
         (bounded ? std::to_string(*most) : "") + "})";
}

std::string GrammarRules::text_until(std::string_view end_text, const json::object* schema,
                                     const std::string& path) {
  const std::string pattern =
      schema == nullptr ? std::string(kAnyText) : text_pattern(*schema, path);
  const bool is_plain = pattern == kAnyText;
  const std::string key(end_text);
  const auto known = std::ranges::find(texts_, key, &std::pair<std::string, std::string>::first);
  if (is_plain && known != texts_.end()) return known->second;
  const End end = end_of(end_text);
  const std::string name = reserve("text");
  const std::string bare = name.substr(0, name.size() - 1);
  if (end.text.empty()) {  // a special token, which no text holds
    define(name, "/" + pattern + "/ " + end.rest);
  } else if (end.rest.empty()) {
    rules_ += bare + "[lazy]: " + up_to(pattern, end.text) + "\n";
  } else {
    // Text that only begins as the end does goes on; of a string with a pattern there is one part.
    rules_ += bare + "_part[lazy]: " + up_to(pattern, end.text) + "\n";
    define(name, bare + (is_plain ? "_part+ " : "_part ") + end.rest);
  }
  if (is_plain) texts_.emplace_back(key, name);
  return name;
}

void GrammarRules::refuse(const std::string& path, const std::string& reason) {
  if (!refusal_) refusal_ = {path, "`" + path + "` is not supported: " + reason};
}

Result<std::string, CallGrammarError> GrammarRules::finish(const std::string& start) const {
  if (refusal_) return Err{*refusal_};
  return dump_json(json::object{{"lark", start + rules_}, {"schemas", schemas_}});
}

}  // namespace quire::dialects
