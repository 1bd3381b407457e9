#include "dialects/call_grammar.h"

#include <algorithm>
#include <set>

#include "dialects/grammar_rules.h"
#include "dialects/value_grammar.h"

namespace quire::dialects {
namespace {

const json::object* object_member(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  return value == nullptr ? nullptr : value->if_object();
}

bool is_name_of(const json::value* type, std::initializer_list<std::string_view> names) {
  return type != nullptr && type->is_string() &&
         std::ranges::find(names, std::string_view(type->get_string().data(),
                                                   type->get_string().size())) != names.end();
}

// Writes the calls of one form.
class FormWriter {
 public:
  FormWriter(const Dialect::Forced& form, GrammarRules& rules) : form_(form), rules_(rules) {
    if (form.values != nullptr) values_.emplace(*form.values, rules);
  }

  std::string call(const ForcedTool& tool) {
    const bool is_readable = form_.values == nullptr ||
                             tool.name.find_first_of(form_.values->not_in_names) == tool.name.npos;
    if (!is_readable)
      rules_.refuse("tools", "calls of this model's form cannot write the name " +
                                 GrammarRules::quoted(tool.name));
    return rules_.quoted(tool.name) + rules_.literal(form_.before_arguments) + arguments(tool) +
           rules_.literal(form_.after_call);
  }

 private:
  std::string arguments(const ForcedTool& tool);
  std::string tagged_arguments(const ForcedTool& tool);
  std::string value(const json::value& schema, const json::object& root, const std::string& path);
  std::string any_value(const json::object* schema, const json::object* root,
                        const std::string& path);
  std::string text(const json::object* schema, const std::string& path) {
    return rules_.literal(form_.before_value) + rules_.text_until(form_.after_value, schema, path);
  }
  std::string json_value(json::object schema, const json::object* root, const std::string& path) {
    const bool is_same = form_.before_json_value.empty();
    return rules_.literal(is_same ? form_.before_value : form_.before_json_value) +
           rules_.schema(std::move(schema), path, root) + rules_.literal(form_.after_value);
  }

  const Dialect::Forced& form_;
  GrammarRules& rules_;
  std::optional<ValueGrammar> values_;
};

// A value that may be text: only a form that tells text from JSON can say that it is none.
std::string FormWriter::any_value(const json::object* schema, const json::object* root,
                                  const std::string& path) {
  const json::value* type = schema == nullptr ? nullptr : schema->if_contains("type");
  if (form_.before_json_value.empty() || is_name_of(type, {"string"})) return text(schema, path);
  return "( " + text(schema, path) + "| " +
         json_value(schema == nullptr ? json::object() : *schema, root, path) + ") ";
}

// A value between its marks. Strings are written as they are.
std::string FormWriter::value(const json::value& schema, const json::object& root,
                              const std::string& path) {
  const json::object* object = schema.if_object();
  const json::value* choices = object == nullptr ? nullptr : object->if_contains("enum");
  if (choices != nullptr && choices->is_array() && !choices->get_array().empty() &&
      std::ranges::all_of(choices->get_array(), [](const auto& one) { return one.is_string(); })) {
    std::string all;
    for (const json::value& one : choices->get_array()) {
      const json::string& text = one.get_string();
      if (!all.empty()) all += "| ";
      all += rules_.quoted({text.data(), text.size()});
    }
    return rules_.literal(form_.before_value) + "( " + all + ") " +
           rules_.literal(form_.after_value);
  }
  const json::value* type = object == nullptr ? nullptr : object->if_contains("type");
  if (is_name_of(type, {"integer", "number", "boolean", "object", "array", "null"}))
    return json_value(*object, &root, path);
  return any_value(object, &root, path);
}

std::string FormWriter::tagged_arguments(const ForcedTool& tool) {
  const json::object* properties =
      tool.schema == nullptr ? nullptr : object_member(*tool.schema, "properties");
  if (properties == nullptr) {
    // Names that the values' parser can read.
    return "( " + rules_.literal(form_.before_key) + "/[^<>\\n\"=]+/ " +
           any_value(nullptr, nullptr, tool.path) + ")* ";
  }
  std::set<std::string_view> required;
  if (const json::value* names = tool.schema->if_contains("required");
      names != nullptr && names->is_array())
    for (const json::value& name : names->get_array())
      if (name.is_string()) required.insert({name.get_string().data(), name.get_string().size()});
  std::string first, then;
  for (const auto& [key, property] : *properties) {
    const std::string_view name(key.data(), key.size());
    const std::string path = tool.path + ".properties." + std::string(name);
    const std::string rule =
        rules_.add("value", rules_.literal(form_.before_key) + rules_.quoted(name) +
                                value(property, *tool.schema, path));
    const bool must = required.contains(name);
    (must ? first : then) += must ? rule : "( " + rule + ")? ";
  }
  return first + then;
}

std::string FormWriter::arguments(const ForcedTool& tool) {
  if (values_) return values_->arguments(tool.schema, tool.path);
  if (!form_.before_key.empty()) return tagged_arguments(tool);
  json::object object = tool.schema == nullptr ? json::object() : *tool.schema;
  object["type"] = "object";
  return rules_.schema(std::move(object), tool.path);
}

// `text` in parts between which models write other blanks. JSON begins with a brace, a key and a
// colon.
std::vector<std::string> parts_of(std::string_view text) {
  std::vector<std::string> parts(1);
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == ' ' || text[i] == '\n') {
      parts.emplace_back();
      continue;
    }
    const bool after_brace = i > 0 && (text[i - 1] == '{' || text[i - 1] == '[');
    const bool colon = text[i] == ':' && i > 0 && text[i - 1] == '"';
    if ((after_brace || colon) && !parts.back().empty()) parts.emplace_back();
    parts.back() += text[i];
  }
  return parts;
}

constexpr const char* kBlanks[] = {"", " ", "\n", "\n  "};
constexpr std::string_view kBlanksRule = "( / |\\n(  )?/ )? ";

std::vector<std::string> with_other_blanks(const std::vector<std::string>& parts) {
  std::vector<std::string> all = {parts.front()};
  for (size_t part = 1; part < parts.size(); ++part) {
    std::vector<std::string> longer;
    for (const std::string& begin : all)
      for (const char* blanks : kBlanks) longer.push_back(begin + blanks + parts[part]);
    all = std::move(longer);
  }
  return all;
}

// Makes the grammar of all forms but those that cannot write the tools where others can.
class CallGrammarMaker {
 public:
  CallGrammarMaker(const Dialect& dialect, const std::vector<ForcedTool>& tools, bool one_call,
                   const SpecialToken& special)
      : dialect_(dialect), tools_(tools), one_call_(one_call), rules_(dialect, special) {}

  Result<CallGrammar, CallGrammarError> make(CallGrammar::Begin begin,
                                             const ForcedTool* alternative);

 private:
  std::string named(const Dialect::Forced& form);
  std::string calls_in(const Dialect::Forced& form, CallGrammar::Begin begin);
  std::string after_trigger(const Dialect::Forced& form, const std::string& named,
                            const std::string& calls);
  std::string from_trigger(const Dialect::Forced& form, const std::string& named,
                           const std::string& calls);
  const Dialect::Block* marker_block(std::string_view text) const;

  const Dialect& dialect_;
  const std::vector<ForcedTool>& tools_;
  const bool one_call_;
  GrammarRules rules_;
  CallGrammar grammar_;
};

// A tool's name, its arguments and the end of its call.
std::string CallGrammarMaker::named(const Dialect::Forced& form) {
  FormWriter writer(form, rules_);
  std::string all;
  for (const ForcedTool& tool : tools_) all += (all.empty() ? "" : "| ") + writer.call(tool);
  return rules_.add("named", all);
}

const Dialect::Block* CallGrammarMaker::marker_block(std::string_view text) const {
  for (const Dialect::Block& block : dialect_.blocks) {
    const bool is_marker = block.opening.starts_with('<') || block.opening.starts_with('[');
    if (is_marker && !block.bare && text.starts_with(block.opening)) return &block;
  }
  return nullptr;
}

// Parsers read a call whatever blanks it has, so the grammar must notice it whatever it has: by the
// marker that begins it, or, where there is none, by the usual variants.
std::string CallGrammarMaker::after_trigger(const Dialect::Forced& form, const std::string& named,
                                            const std::string& calls) {
  const std::string_view begin = form.open.empty() ? form.before_name : form.open;
  const Dialect::Block* block = marker_block(begin);
  if (block == nullptr) return from_trigger(form, named, calls);
  if (std::ranges::find(grammar_.triggers, block->opening) == grammar_.triggers.end())
    grammar_.triggers.emplace_back(block->opening);
  std::string_view rest = begin.substr(block->opening.size());
  while (rest.starts_with(' ') || rest.starts_with('\n')) rest.remove_prefix(1);
  const std::string blanks = "/[ \\n]{0,4}/ ";
  return blanks + rules_.literal(rest) +
         (form.open.empty() ? named : calls + rules_.literal(form.close));
}

std::string CallGrammarMaker::from_trigger(const Dialect::Forced& form, const std::string& named,
                                           const std::string& calls) {
  const std::string_view begin = form.open.empty() ? form.before_name : form.open;
  const std::string rest = form.open.empty() ? named : calls + rules_.literal(form.close);
  if (rules_.holds_special(begin)) {
    for (std::string& trigger : with_other_blanks(parts_of(begin)))
      grammar_.triggers.push_back(std::move(trigger));
    return rest;
  }
  // A bracket alone begins other text, too.
  const bool is_telling = std::ranges::any_of(begin, [](char c) { return c >= 'a' && c <= 'z'; });
  for (const ForcedTool& tool : tools_) {
    const std::string text =
        std::string(begin) +
        (is_telling ? "" : std::string(tool.name) + std::string(form.before_arguments));
    for (std::string& trigger : with_other_blanks(parts_of(text)))
      grammar_.kept_triggers.push_back(std::move(trigger));
    if (is_telling) break;
  }
  std::string start;
  const std::vector<std::string> parts = parts_of(std::string(begin) + (is_telling ? "" : "x"));
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) start += kBlanksRule;
    const bool is_name = !is_telling && i + 1 == parts.size();
    start += is_name ? "" : rules_.literal(parts[i]);
  }
  return start + rest;
}

std::string CallGrammarMaker::calls_in(const Dialect::Forced& form, CallGrammar::Begin begin) {
  const std::string named = this->named(form);
  const std::string call = rules_.literal(form.before_name) + named;
  const bool one = one_call_ || form.one_call;
  const std::string calls = call + (one ? "" : "( " + rules_.literal(form.between) + call + ")* ");
  return begin == CallGrammar::Begin::kAtOnce
             ? rules_.literal(form.open) + calls + rules_.literal(form.close)
             : after_trigger(form, named, calls);
}

Result<CallGrammar, CallGrammarError> CallGrammarMaker::make(CallGrammar::Begin begin,
                                                             const ForcedTool* alternative) {
  std::string start;
  std::optional<GrammarRules> refused;  // of the first form that cannot write the tools
  for (const Dialect::Forced& form : dialect_.forced) {
    GrammarRules rules = rules_;
    CallGrammar grammar = grammar_;
    const std::string calls = calls_in(form, begin);
    if (!rules_.is_refused()) {
      start += (start.empty() ? "start: " : "  | ") + calls + "\n";
      continue;
    }
    if (!refused) refused = std::move(rules_);
    rules_ = std::move(rules);
    grammar_ = std::move(grammar);
  }
  if (start.empty() && refused) rules_ = std::move(*refused);
  if (alternative != nullptr) {
    const json::object any{{"type", "object"}};
    const json::object* schema = alternative->schema;
    start += "  | " + rules_.schema(schema == nullptr ? any : *schema, alternative->path) + "\n";
  }
  auto source = rules_.finish(start);
  if (!source) return Err{std::move(source).error()};
  grammar_.source = std::move(*source);
  return std::move(grammar_);
}

}  // namespace

Result<CallGrammar, CallGrammarError> make_call_grammar(const Dialect& dialect,
                                                        const std::vector<ForcedTool>& tools,
                                                        CallGrammar::Begin begin, bool one_call,
                                                        const SpecialToken& special,
                                                        const ForcedTool* alternative) {
  return CallGrammarMaker(dialect, tools, one_call, special).make(begin, alternative);
}

}  // namespace quire::dialects
