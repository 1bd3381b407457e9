#include <algorithm>

#include "server/openai/parse.h"

namespace quire::server::openai {
namespace {

using Kind = text::GrammarSpec::Kind;

// Of JSON in a string, which is parsed before anybody compiles it and is not in the account: more
// than any grammar of rules may have (rust/quire-text/src/grammar.rs).
constexpr size_t kMaxJsonText = 256u << 10;

// Collects what the request says about the form of the answer; more than one thing is an error.
class ConstraintParser {
 public:
  ConstraintParser(Fields& fields, const ParseContext& context, GenerationRequest& out)
      : fields_(fields), context_(context), out_(out) {}

  void response_format();
  void structured_outputs();
  // `source` holds the fields; `key` is looked up there and `param` blamed for errors.
  void schema(Fields& source, std::string_view key);
  void text(Fields& source, std::string_view key, Kind kind);
  void grammar(Fields& source, std::string_view key);
  void gbnf(Fields& source, std::string_view key);
  void choice(Fields& source, std::string_view key);
  // An object, or the text of one.
  void structural_tag(Fields& source, std::string_view key);

 private:
  void set(Fields& source, std::string_view key, Kind kind, std::string text);

  Fields& fields_;
  const ParseContext& context_;
  GenerationRequest& out_;
};

void ConstraintParser::set(Fields& source, std::string_view key, Kind kind, std::string text) {
  if (out_.constraint)
    return source.fail(key, "cannot be combined with `" + out_.constraint->param + "`");
  out_.constraint = Constraint{kind, std::move(text), source.name(key)};
}

void ConstraintParser::schema(Fields& source, std::string_view key) {
  const json::value* value = source.find(key);
  if (value == nullptr) return;
  if (value->is_object()) return set(source, key, Kind::kJsonSchema, dump_json(*value));
  if (!value->is_string()) return source.mistyped(key, "must be a JSON schema");
  if (auto text = source.string(key, kMaxJsonText))
    set(source, key, Kind::kJsonSchema, std::move(*text));
}

void ConstraintParser::text(Fields& source, std::string_view key, Kind kind) {
  if (auto value = source.string(key)) set(source, key, kind, std::move(*value));
}

// Whether the first line that says something defines a rule as GBNF does. Lark writes a colon.
bool is_gbnf(std::string_view source) {
  constexpr std::string_view kBlanks = " \t\r\n";
  while (!source.empty()) {
    source.remove_prefix(std::min(source.size(), source.find_first_not_of(kBlanks)));
    const std::string_view line = source.substr(0, source.find('\n'));
    if (!line.empty() && !line.starts_with('#') && !line.starts_with("//")) {
      const size_t colon = line.find(':');  // no name has one
      return colon != std::string_view::npos && line.substr(colon).starts_with("::=");
    }
    source.remove_prefix(line.size());
  }
  return false;
}

void ConstraintParser::grammar(Fields& source, std::string_view key) {
  auto value = source.string(key);
  if (!value) return;
  const Kind kind = is_gbnf(*value) ? Kind::kGbnf : Kind::kLark;
  set(source, key, kind, std::move(*value));
}

// llama-server's field, where an empty text is none.
void ConstraintParser::gbnf(Fields& source, std::string_view key) {
  auto value = source.string(key);
  if (value && !value->empty()) set(source, key, Kind::kGbnf, std::move(*value));
}

void ConstraintParser::choice(Fields& source, std::string_view key) {
  const json::array* list = source.array(key, std::numeric_limits<int64_t>::max());
  if (list == nullptr) return;
  if (list->empty()) return source.empty_list(key);
  for (const auto& value : *list)
    if (!value.is_string()) return source.mistyped(key, "must be a list of strings");
  set(source, key, Kind::kChoice, dump_json(*list));
}

void ConstraintParser::structural_tag(Fields& source, std::string_view key) {
  const json::value* value = source.find(key);
  if (value == nullptr) return;
  constexpr const char* kExpected =
      "must be an object of the type \"structural_tag\", or its JSON text";
  std::string text;
  if (value->is_object()) {
    text = dump_json(*value);
  } else if (value->is_string()) {
    text = source.string(key, kMaxJsonText).value_or("");
    if (!source.ok()) return;
  } else {
    return source.mistyped(key, kExpected);
  }
  auto parsed = parse_json(text, {.max_members = context_.limits.max_json_members});
  const json::object* object = parsed ? parsed->if_object() : nullptr;
  const json::value* type = object != nullptr ? object->if_contains("type") : nullptr;
  if (type == nullptr || *type != "structural_tag") return source.fail(key, kExpected);
  set(source, key, Kind::kStructuralTag, std::move(text));
}

void ConstraintParser::response_format() {
  const json::object* format = fields_.object("response_format");
  if (format == nullptr) return;
  Fields inner(*format, "response_format.");
  const std::string type = inner.string("type").value_or("");
  if (type == "json_object" && inner.has("schema")) {  // llama-server's form
    schema(inner, "schema");
  } else if (type == "structural_tag") {
    structural_tag(fields_, "response_format");
  } else if (type == "json_object") {
    set(inner, "type", Kind::kJsonObject, "");
  } else if (const auto* wrapper = type == "json_schema" ? inner.object("json_schema") : nullptr) {
    Fields fields(*wrapper, "response_format.json_schema.");
    fields.only({"name", "description", "schema", "strict"});
    fields.string("name");
    fields.string("description");
    fields.boolean("strict");
    if (!fields.has("schema")) fields.missing("schema");
    schema(fields, "schema");
    if (!fields.ok()) inner.fail(fields.error());
  } else if (type == "json_schema") {
    inner.missing("json_schema");
  } else if (type != "text") {
    inner.fail("type", "must be \"text\", \"json_object\", \"json_schema\" or \"structural_tag\"");
  }
  if (type == "json_object") inner.only({"type", "schema"});
  if (type == "json_schema") inner.only({"type", "json_schema"});
  if (type == "text") inner.only({"type"});
  if (!inner.ok()) fields_.fail(inner.error());
}

void ConstraintParser::structured_outputs() {
  const json::object* outputs = fields_.object("structured_outputs");
  if (outputs == nullptr) return;
  Fields inner(*outputs, "structured_outputs.");
  inner.only({"json", "regex", "grammar", "choice", "json_object", "structural_tag",
              "whitespace_pattern", "disable_fallback", "disable_any_whitespace",
              "disable_additional_properties"});
  schema(inner, "json");
  text(inner, "regex", Kind::kRegex);
  grammar(inner, "grammar");
  choice(inner, "choice");
  structural_tag(inner, "structural_tag");
  if (inner.flag("json_object", false)) set(inner, "json_object", Kind::kJsonObject, "");
  inner.flag("disable_fallback", true);  // there is none
  inner.unsupported("whitespace_pattern");
  inner.unsupported_unless("disable_any_whitespace", false);
  inner.unsupported_unless("disable_additional_properties", false);
  if (inner.ok() && !out_.constraint)
    fields_.fail("structured_outputs",
                 "must have one of json, regex, choice, grammar, json_object, structural_tag");
  if (!inner.ok()) fields_.fail(inner.error());
}

}  // namespace

void parse_constraint(Fields& fields, const ParseContext& context, GenerationRequest& out) {
  ConstraintParser parser(fields, context, out);
  parser.response_format();
  parser.structured_outputs();
  parser.schema(fields, "guided_json");
  parser.text(fields, "guided_regex", Kind::kRegex);
  parser.grammar(fields, "guided_grammar");
  parser.gbnf(fields, "grammar");
  parser.choice(fields, "guided_choice");
}

}  // namespace quire::server::openai
