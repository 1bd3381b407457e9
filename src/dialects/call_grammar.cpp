#include "dialects/call_grammar.h"

#include <algorithm>
#include <set>

namespace quire::dialects {
namespace {

std::string quoted(std::string_view text) {
  std::string out;
  append_json_string(out, text);
  return out;
}

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

const json::object* object_member(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  return value == nullptr ? nullptr : value->if_object();
}

class Writer {
 public:
  Writer(const Dialect& dialect, const SpecialToken& special) : form_(*dialect.forced) {
    for (const std::string_view marker : marker_texts({&dialect, nullptr}))
      if (const auto id = special(marker))
        marks_.emplace_back(marker, "<[" + std::to_string(*id) + "]>");
  }

  // A literal of the dialect: special tokens by their ids, `[ID]` and `[N]` as what they stand for.
  std::string literal(std::string_view text) const;
  std::string call(const ForcedTool& tool);
  std::string schema(json::value schema, const std::string& path);
  std::optional<CallGrammar> finish(std::string lark) const;

 private:
  std::string arguments(const ForcedTool& tool);
  void add_definitions(const json::object& root, json::object& to);
  std::string value(const json::value& schema, const json::object& root, const std::string& path);
  std::string raw_text();

  const Dialect::Forced& form_;
  // What stands in the form's texts for something else, with that.
  std::vector<std::pair<std::string_view, std::string>> marks_ = {{"[ID]", "/[0-9a-zA-Z]{9}/"},
                                                                  {"[N]", "/[0-9]{1,3}/"}};
  json::array schemas_;
  std::string rules_;
  bool has_raw_text_ = false;
  const json::object* root_ = nullptr;              // whose definitions have this size
  size_t definition_bytes_ = 0, shared_bytes_ = 0;  // of `root_`, of all that were added
  size_t num_values_ = 0;
};

std::string Writer::literal(std::string_view text) const {
  std::string out, plain;
  const auto flush = [&] {
    if (!plain.empty()) out += quoted(plain) + " ";
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

std::string Writer::schema(json::value schema, const std::string& path) {
  const std::string reference = "\x01" + std::to_string(schemas_.size()) + "\x01";
  schemas_.push_back({{"name", path}, {"schema", std::move(schema)}});
  return reference + " ";
}

// Text up to what ends a value, with that.
std::string Writer::raw_text() {
  if (!std::exchange(has_raw_text_, true)) {
    const std::string end = literal(form_.after_value);
    if (end.starts_with("<[")) {  // a special token, which no text holds
      rules_ += "raw_text: /(?s:.*)/ " + end + "\n";
    } else {
      rules_ += "raw_text[lazy]: /(?s:.*)" + escaped(form_.after_value) + "/\n";
    }
  }
  return "raw_text ";
}

void Writer::add_definitions(const json::object& root, json::object& to) {
  constexpr const char* kKeys[] = {"$defs", "definitions"};
  if (std::exchange(root_, &root) != &root) {
    definition_bytes_ = 0;
    for (const char* key : kKeys)
      if (const json::value* shared = root.if_contains(key))
        definition_bytes_ += dump_json(*shared).size();
  }
  shared_bytes_ += definition_bytes_;
  if (shared_bytes_ > kMaxSharedDefinitions) return;
  for (const char* key : kKeys)
    if (const json::value* shared = root.if_contains(key)) to.emplace(key, *shared);
}

// A value with what ends it. Strings are written as they are.
std::string Writer::value(const json::value& schema, const json::object& root,
                          const std::string& path) {
  const json::object* object = schema.if_object();
  const json::value* type = object == nullptr ? nullptr : object->if_contains("type");
  const json::value* choices = object == nullptr ? nullptr : object->if_contains("enum");
  const std::string end = literal(form_.after_value);
  if (choices != nullptr && choices->is_array() && !choices->get_array().empty() &&
      std::ranges::all_of(choices->get_array(), [](const auto& one) { return one.is_string(); })) {
    std::string all;
    for (const json::value& one : choices->get_array()) {
      const json::string& text = one.get_string();
      if (!all.empty()) all += "| ";
      all += text.empty() ? "\"\" " : quoted({text.data(), text.size()}) + " ";
    }
    return "( " + all + ") " + end;
  }
  static constexpr std::string_view kJson[] = {"integer", "number", "boolean",
                                               "object",  "array",  "null"};
  const bool is_json =
      type != nullptr && type->is_string() &&
      std::ranges::find(kJson, std::string_view(type->get_string().data(),
                                                type->get_string().size())) != std::end(kJson);
  if (!is_json) return raw_text();
  json::object own = *object;
  add_definitions(root, own);
  return this->schema(std::move(own), path) + end;
}

std::string Writer::arguments(const ForcedTool& tool) {
  if (form_.before_key.empty()) {
    json::object object = tool.schema == nullptr ? json::object() : *tool.schema;
    object["type"] = "object";
    return schema(std::move(object), tool.path);
  }
  const json::object* properties =
      tool.schema == nullptr ? nullptr : object_member(*tool.schema, "properties");
  if (properties == nullptr) {
    // Names that the values' parser can read.
    return "( " + literal(form_.before_key) + "/[^<>\\n\"=]+/ " + literal(form_.before_value) +
           raw_text() + ")* ";
  }
  std::set<std::string_view> required;
  if (const json::value* names = tool.schema->if_contains("required");
      names != nullptr && names->is_array())
    for (const json::value& name : names->get_array())
      if (name.is_string()) required.insert({name.get_string().data(), name.get_string().size()});
  std::string first, then;
  for (const auto& [key, property] : *properties) {
    const std::string_view name(key.data(), key.size());
    const std::string rule = "value_" + std::to_string(num_values_++);
    const std::string path = tool.path + ".properties." + std::string(name);
    rules_ += rule + ": " + literal(form_.before_key) + quoted(name) + " " +
              literal(form_.before_value) + value(property, *tool.schema, path) + "\n";
    const bool must = required.contains(name);
    (must ? first : then) += rule + (must ? " " : "? ");
  }
  return first + then;
}

std::string Writer::call(const ForcedTool& tool) {
  return quoted(tool.name) + " " + literal(form_.before_arguments) + arguments(tool) +
         literal(form_.after_call);
}

std::optional<CallGrammar> Writer::finish(std::string lark) const {
  if (shared_bytes_ > kMaxSharedDefinitions) return std::nullopt;
  CallGrammar grammar;
  grammar.source =
      dump_json(json::object{{"lark", std::move(lark) + rules_}, {"schemas", schemas_}});
  return grammar;
}

// What a call begins with, and what follows that.
struct Beginning {
  std::vector<std::string> triggers;
  std::string_view rest;
};

// `text` with other blanks between its parts. JSON begins with a brace, a key and a colon.
std::vector<std::string> with_other_blanks(std::string_view text) {
  std::vector<std::string> parts(1);
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == ' ' || text[i] == '\n') {
      parts.emplace_back();
      continue;
    }
    const bool after_brace = i > 0 && text[i - 1] == '{';
    const bool colon = text[i] == ':' && i > 0 && text[i - 1] == '"';
    if ((after_brace || colon) && !parts.back().empty()) parts.emplace_back();
    parts.back() += text[i];
  }
  std::vector<std::string> all = {parts.front()};
  for (size_t part = 1; part < parts.size(); ++part) {
    std::vector<std::string> longer;
    for (const std::string& begin : all)
      for (const char* blanks : {"", " ", "\n", "\n  "})
        longer.push_back(begin + blanks + parts[part]);
    all = std::move(longer);
  }
  return all;
}

// Parsers read a call whatever blanks it has, so the grammar must notice it whatever it has: by the
// marker that begins it, or, where there is none, by the usual variants.
Beginning beginning_of(const Dialect& dialect, std::string_view text) {
  for (const Dialect::Block& block : dialect.blocks) {
    const bool is_marker = block.opening.starts_with('<') || block.opening.starts_with('[');
    if (!is_marker || block.bare || !text.starts_with(block.opening)) continue;
    std::string_view rest = text.substr(block.opening.size());
    while (rest.starts_with(' ') || rest.starts_with('\n')) rest.remove_prefix(1);
    return {{std::string(block.opening)}, rest};
  }
  return {with_other_blanks(text), {}};
}

}  // namespace

std::optional<CallGrammar> make_call_grammar(const Dialect& dialect,
                                             const std::vector<ForcedTool>& tools,
                                             CallGrammar::Begin begin, bool one_call,
                                             const SpecialToken& special,
                                             const ForcedTool* alternative) {
  const Dialect::Forced& form = *dialect.forced;
  Writer writer(dialect, special);
  std::string named;
  for (size_t i = 0; i < tools.size(); ++i)
    named += (i == 0 ? "named: " : "  | ") + writer.call(tools[i]) + "\n";
  const bool one = one_call || form.one_call;
  const std::string call = writer.literal(form.before_name) + "named ";
  const std::string more = one ? "" : "( " + writer.literal(form.between) + call + ")* ";
  std::string start;
  Beginning beginning;
  if (begin == CallGrammar::Begin::kAtOnce) {
    start = writer.literal(form.open) + call + more + writer.literal(form.close);
  } else if (!form.open.empty()) {
    beginning = beginning_of(dialect, form.open);
    start = writer.literal(beginning.rest) + call + more + writer.literal(form.close);
  } else {
    beginning = beginning_of(dialect, form.before_name);
    start = writer.literal(beginning.rest) + "named ";
  }
  if (!beginning.rest.empty()) start = "/[ \\n]{0,4}/ " + start;
  std::string lark = "start: " + start + "\n";
  if (alternative != nullptr) {
    lark +=
        "  | " +
        writer.schema(alternative->schema == nullptr ? json::value(json::object{{"type", "object"}})
                                                     : json::value(*alternative->schema),
                      alternative->path) +
        "\n";
  }
  auto grammar = writer.finish(lark + named);
  if (grammar) grammar->triggers = std::move(beginning.triggers);
  return grammar;
}

}  // namespace quire::dialects
