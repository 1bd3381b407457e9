#include "server/openai/parse.h"

namespace quire::server::openai {
namespace {

using Kind = text::GrammarSpec::Kind;

// Collects what the request says about the form of the answer; more than one thing is an error.
class ConstraintParser {
 public:
  ConstraintParser(Fields& fields, GenerationRequest& out) : fields_(fields), out_(out) {}

  void response_format();
  void structured_outputs();
  // `source` holds the fields; `key` is looked up there and `param` blamed for errors.
  void schema(Fields& source, std::string_view key);
  void text(Fields& source, std::string_view key, Kind kind);
  void choice(Fields& source, std::string_view key);

 private:
  void set(Fields& source, std::string_view key, Kind kind, std::string text);

  Fields& fields_;
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
  if (value->is_string())
    return set(source, key, Kind::kJsonSchema, std::string(as_view(value->get_string())));
  source.fail(key, "must be a JSON schema");
}

void ConstraintParser::text(Fields& source, std::string_view key, Kind kind) {
  if (auto value = source.string(key)) set(source, key, kind, std::move(*value));
}

void ConstraintParser::choice(Fields& source, std::string_view key) {
  const json::array* list = source.array(key, std::numeric_limits<int64_t>::max());
  if (list == nullptr) return;
  if (list->empty()) return source.fail(key, "must not be empty");
  for (const auto& value : *list)
    if (!value.is_string()) return source.fail(key, "must be a list of strings");
  set(source, key, Kind::kChoice, dump_json(*list));
}

void ConstraintParser::response_format() {
  const json::object* format = fields_.object("response_format");
  if (format == nullptr) return;
  Fields inner(*format, "response_format.");
  const std::string type = inner.string("type").value_or("");
  if (type == "json_object" && inner.has("schema")) {  // llama-server's form
    schema(inner, "schema");
  } else if (type == "json_object") {
    set(inner, "type", Kind::kJsonObject, "");
  } else if (const auto* wrapper = type == "json_schema" ? inner.object("json_schema") : nullptr) {
    Fields fields(*wrapper, "response_format.json_schema.");
    fields.string("name");
    fields.boolean("strict");
    if (!fields.has("schema")) fields.fail("schema", "is required");
    schema(fields, "schema");
    if (!fields.ok()) inner.fail(fields.error());
  } else if (type == "json_schema") {
    inner.fail("json_schema", "is required");
  } else if (type != "text") {
    inner.fail("type", "must be \"text\", \"json_object\" or \"json_schema\"");
  }
  if (!inner.ok()) fields_.fail(inner.error());
}

void ConstraintParser::structured_outputs() {
  const json::object* outputs = fields_.object("structured_outputs");
  if (outputs == nullptr) return;
  Fields inner(*outputs, "structured_outputs.");
  schema(inner, "json");
  text(inner, "regex", Kind::kRegex);
  text(inner, "grammar", Kind::kLark);
  choice(inner, "choice");
  if (inner.flag("json_object", false)) set(inner, "json_object", Kind::kJsonObject, "");
  inner.unsupported("structural_tag");
  inner.unsupported("whitespace_pattern");
  if (inner.ok() && !out_.constraint)
    fields_.fail("structured_outputs",
                 "must have one of json, regex, choice, grammar, json_object");
  if (!inner.ok()) fields_.fail(inner.error());
}

}  // namespace

void parse_constraint(Fields& fields, const ParseContext&, GenerationRequest& out) {
  ConstraintParser parser(fields, out);
  parser.response_format();
  parser.structured_outputs();
  parser.schema(fields, "guided_json");
  parser.text(fields, "guided_regex", Kind::kRegex);
  parser.text(fields, "guided_grammar", Kind::kLark);
  parser.choice(fields, "guided_choice");
}

}  // namespace quire::server::openai
