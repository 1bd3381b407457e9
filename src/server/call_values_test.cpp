// Grammars for calls whose values are not JSON: what they allow, the parser reads as what the
// schema wants, and texts of the dialects' documentation are among it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "server/answer_grammar.h"
#include "server/test_grammar_walk.h"

namespace quire::server {
namespace {

using dialects::CallGrammar;
using dialects::Dialect;
using Begin = CallGrammar::Begin;

const Dialect& dialect_of(const std::string& name) { return *dialects::find_dialect(name); }

Result<CallGrammar, dialects::CallGrammarError> grammar_of(
    const std::string& dialect, const json::object& schema, Begin begin = Begin::kAtOnce,
    const dialects::SpecialToken& special = no_special_token) {
  return dialects::make_call_grammar(dialect_of(dialect), {{"set_mode", &schema, "p"}}, begin,
                                     false, special);
}

// "1e999", "2E+123": an exponent of three digits.
bool has_huge_number(std::string_view text) {
  const auto digit = [&](size_t i) {
    return i < text.size() && std::isdigit(static_cast<unsigned char>(text[i])) != 0;
  };
  for (size_t i = 1; i < text.size(); ++i) {
    if ((text[i] != 'e' && text[i] != 'E') || !digit(i - 1)) continue;
    const size_t at = i + 1 + (i + 1 < text.size() && text[i + 1] == '+' ? 1 : 0);
    if (digit(at) && digit(at + 1) && digit(at + 2)) return true;
  }
  return false;
}

json::object schema_of(const std::string& text) { return parse_json(text)->as_object(); }

bool is_of_type(const json::value& value, std::string_view type) {
  return type == "null"      ? value.is_null()
         : type == "boolean" ? value.is_bool()
         : type == "integer" ? value.is_number() && value.to_number<double>() ==
                                                        std::floor(value.to_number<double>())
         : type == "number" ? value.is_number()
         : type == "string" ? value.is_string()
         : type == "array"  ? value.is_array()
                            : value.is_object();
}

// A small validator of its own: what this file's schemas use.
bool is_valid(const json::value& value, const json::value& schema_value, const json::object& root) {
  const json::object& schema = schema_value.get_object();
  if (schema.contains("$ref")) {
    const json::value whole(root);
    return is_valid(value, whole.at_pointer(schema.at("$ref").as_string().subview(1)), root);
  }
  if (const auto* one = schema.if_contains("const"); one != nullptr && value != *one) return false;
  if (const auto* all = schema.if_contains("enum"))
    if (std::ranges::find(all->as_array(), value) == all->as_array().end()) return false;
  if (const auto* any = schema.if_contains("anyOf"))
    return std::ranges::any_of(any->as_array(),
                               [&](const auto& one) { return is_valid(value, one, root); });
  if (const auto* type = schema.if_contains("type")) {
    const json::array types = type->is_array() ? type->get_array() : json::array{*type};
    const bool fits = std::ranges::any_of(
        types, [&](const json::value& one) { return is_of_type(value, one.as_string()); });
    if (!fits) return false;
  }
  const auto bound = [&](const char* key, int64_t none) {
    const auto* value = schema.if_contains(key);
    return value == nullptr ? none : value->as_int64();
  };
  if (value.is_string()) {
    const auto size = static_cast<int64_t>(value.as_string().size());  // these strings are ASCII
    return size >= bound("minLength", 0) && size / 4 <= bound("maxLength", INT64_MAX);
  }
  if (value.is_number()) {
    const auto number = value.to_number<double>();
    const auto *least = schema.if_contains("minimum"), *most = schema.if_contains("maximum");
    return (least == nullptr || number >= least->to_number<double>()) &&
           (most == nullptr || number <= most->to_number<double>());
  }
  if (const json::array* array = value.if_array()) {
    const auto size = static_cast<int64_t>(array->size());
    return size >= bound("minItems", 0) && size <= bound("maxItems", INT64_MAX) &&
           std::ranges::all_of(*array, [&](const json::value& one) {
             return !schema.contains("items") || is_valid(one, schema.at("items"), root);
           });
  }
  const json::object* object = value.if_object();
  if (object == nullptr) return true;
  if (const auto* required = schema.if_contains("required"))
    for (const json::value& name : required->as_array())
      if (!object->contains(name.as_string())) return false;
  for (const auto& [key, member] : *object) {
    const auto* properties = schema.if_contains("properties");
    const auto* property =
        properties == nullptr ? nullptr : properties->as_object().if_contains(key);
    const auto* more = schema.if_contains("additionalProperties");
    if (property != nullptr ? !is_valid(member, *property, root)
                            : more != nullptr && (more->is_bool() ? !more->get_bool()
                                                                  : !is_valid(member, *more, root)))
      return false;
  }
  return true;
}

constexpr const char* kSchemas[] = {
    R"({"type": "object", "properties": {}})",
    R"({"type": "object", "additionalProperties": false})",
    R"({"type": "object", "additionalProperties": {"type": ["integer", "null"]}})",
    R"({"type": "object", "properties": {"b": {"type": "boolean"}, "a": {"type": "null"}}})",
    R"({"type": "object", "properties": {"n": {"type": "integer", "minimum": 3, "maximum": 40},
        "f": {"type": "number"}, "s": {"type": "string", "minLength": 2, "maxLength": 9}},
        "required": ["f", "s"]})",
    R"({"type": "object", "properties": {"o": {"type": "object", "properties": {
          "deep": {"type": "object", "properties": {"yes": {"const": true}}, "required": ["yes"]},
          "Not": {"enum": [null, 1, "one", [1, "x"], {"k": false}]}}, "required": ["deep", "Not"]}},
        "required": ["o"]})",
    R"({"type": "object", "properties": {
          "l": {"type": "array", "items": {"anyOf": [{"type": "boolean"}, {"type": "string",
                "maxLength": 3}]}, "minItems": 1, "maxItems": 3},
          "e": {"type": "array", "items": {"type": "integer"}, "maxItems": 1}},
        "required": ["l", "e"]})",
    R"({"type": "object", "$defs": {"tree": {"type": "object", "properties": {
          "left": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/tree"}]},
          "tag": {"enum": ["x", "y"]}}, "required": ["left", "tag"]}},
        "properties": {"t": {"$ref": "#/$defs/tree"}}, "required": ["t"]})",
};

class CallValues : public testing::TestWithParam<std::string> {};

TEST_P(CallValues, FollowTheSchema) {
  std::mt19937 random(11);
  for (const char* text : kSchemas) {
    SCOPED_TRACE(text);
    const json::object schema = schema_of(text);
    const auto grammar = grammar_of(GetParam(), schema);
    ASSERT_TRUE(grammar.ok()) << grammar.error().message;
    const auto offered = *dialects::ToolSet::parse(
        json::array{json::object{{"name", "set_mode"}, {"parameters", schema}}});
    for (int i = 0; i < 5; ++i) {
      Walk walk(text::GrammarSpec::Kind::kCalls, grammar->source, "");
      const std::string said = walk.any(random);
      if (said.size() > 2000) continue;     // it found no end
      if (has_huge_number(said)) continue;  // none for JSON's readers
      SCOPED_TRACE(said);
      dialects::OutputParser parser({&dialect_of(GetParam()), nullptr, false}, offered);
      dialects::Events events;
      parser.push(said, events);
      parser.finish(false, events);
      dialects::ParsedOutput output;
      output.add(events);
      EXPECT_EQ(output.content, "");
      EXPECT_GE(output.calls.size(), 1u);
      for (const auto& call : output.calls) {
        const auto arguments = parse_json(call.arguments);
        ASSERT_TRUE(arguments.ok()) << call.arguments;
        EXPECT_TRUE(is_valid(*arguments, schema, schema)) << call.arguments;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Dialects, CallValues,
                         testing::Values("pythonic", "llama4_pythonic", "functiongemma", "gemma4",
                                         "olmo3"));

// As the models' own documentation and templates write calls.
TEST(CallValues, AllowWhatTheModelsWrite) {
  const json::object schema = schema_of(R"({"type": "object", "properties": {
      "city": {"type": "string"}, "days": {"type": "integer"}, "metric": {"type": "boolean"},
      "near": {"type": ["string", "null"]}, "tags": {"type": "array", "items": {"type": "string"}},
      "at": {"type": "object", "properties": {"lat": {"type": "number"}}}}})");
  const struct {
    const char *dialect, *text;
  } cases[] = {
      {"pythonic", R"([set_mode(city="Paris", days=-1, metric=True, near=None, tags=["a", "b"])])"},
      {"pythonic", R"([set_mode(at={"lat": 2.5}), set_mode()])"},
      {"llama4_pythonic", R"([set_mode(city="Paris", metric=False)])"},
      {"llama4_pythonic", R"({"name": "set_mode", "parameters": {"city": "Paris"}})"},
      {"olmo3",
       "<function_calls>\nset_mode(city=\"Paris\", metric=true, near=null)\nset_mode()\n"
       "</function_calls>"},
      {"gemma4", R"(<|tool_call>call:set_mode{at:{lat:2.5},city:<|"|>Paris, "x"<|"|>,days:2,)"
                 R"(metric:true,near:null,tags:[<|"|>a<|"|>]}<tool_call|>)"},
      {"gemma4",
       "<|tool_call>call:set_mode{}<tool_call|><|tool_call>call:set_mode{days:1}"
       "<tool_call|>"},
      {"functiongemma",
       "<start_function_call>call:set_mode{city:<escape>Paris<escape>}"
       "<end_function_call>"},
      {"deepseek_v32",
       "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"set_mode\">\n"
       "<｜DSML｜parameter name=\"city\" string=\"true\">Pa </b> ris</｜DSML｜parameter>\n"
       "<｜DSML｜parameter name=\"days\" string=\"false\">3</｜DSML｜parameter>\n"
       "<｜DSML｜parameter name=\"near\" string=\"false\">null</｜DSML｜parameter>\n"
       "</｜DSML｜invoke>\n</｜DSML｜function_calls>"},
      {"deepseek_v32",
       "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"set_mode\">\n</｜DSML｜invoke>\n"
       "</｜DSML｜tool_calls>"},
  };
  for (const auto& [name, text] : cases) {
    SCOPED_TRACE(text);
    const auto grammar = grammar_of(name, schema);
    ASSERT_TRUE(grammar.ok());
    Walk walk(text::GrammarSpec::Kind::kCalls, grammar->source, "");
    EXPECT_EQ(walk.take(text), std::string_view(text).size());
    EXPECT_TRUE(walk.may_end());
  }
}

// A bracket or a brace alone is prose; with a tool's name it begins a call.
TEST(CallValues, BeginWithATrigger) {
  const json::object schema = schema_of(
      R"({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})");
  const struct {
    const char *dialect, *before, *begin, *wrong;
  } cases[] = {
      {"pythonic", "See [1] and [x(2)]. ", "[set_mode(n=", "x"},
      {"pythonic", "", "[ set_mode(", "m"},
      {"llama4_pythonic", "A {\"key\"} ", "{\"name\": \"set_mode\", \"parameters\": {\"n\": ", "x"},
      {"llama4_pythonic", "", "[set_mode(n=", "x"},
      {"gemma4", "Yes. ", "<|tool_call>call:set_mode{n:", "x"},
      {"functiongemma", "", "<start_function_call>call:set_mode{n:", "x"},
      {"olmo3", "f(x)\n", "<function_calls>\nset_mode(n=", "x"},
      {"deepseek_v32", "Yes ",
       "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"set_mode\">\n"
       "<｜DSML｜parameter name=\"n\" string=\"false\">",
       "x"},
  };
  for (const auto& [name, before, begin, wrong] : cases) {
    const std::string said = std::string(before) + begin;
    SCOPED_TRACE(std::string(name) + ": " + said);
    const auto grammar = grammar_of(name, schema, Begin::kAfterTrigger);
    ASSERT_TRUE(grammar.ok());
    Walk walk(text::GrammarSpec::Kind::kCalls, grammar->source, prelude_of(*grammar));
    EXPECT_TRUE(walk.may_end());
    EXPECT_EQ(walk.take(said + wrong), said.size());
  }
}

// What has no form is an error that says where, not a call that breaks the schema.
TEST(CallValues, RefuseWhatHasNoForm) {
  const struct {
    const char *dialect, *schema, *place;
  } cases[] = {
      {"gemma4", R"({"properties": {"a": {"oneOf": [{"type": "null"}, {"type": "string"}]}}})",
       "p.properties.a.oneOf"},
      {"gemma4", R"({"properties": {"a": {"type": "object", "minProperties": 2}}})",
       "p.properties.a.minProperties"},
      {"gemma4", R"({"properties": {"a:b": {"type": "null"}}})", "p.properties.a:b"},
      {"gemma4", R"({"properties": {"a": {"items": {"$ref": "http://x"}}}})",
       "p.properties.a.items.$ref"},
      {"gemma4", R"({"properties": {"a": {"type": "string", "pattern": "x", "minLength": 2}}})",
       "p.properties.a.pattern"},
      {"pythonic", R"({"properties": {"a b": {"type": "null"}}})", "p.properties.a b"},
      {"pythonic", R"({"allOf": [{"properties": {}}]})", "p.allOf"},
      {"olmo3", R"({"properties": {"a": false}})", "p.properties.a"},
  };
  for (const auto& [name, schema, place] : cases) {
    const auto refused = grammar_of(name, schema_of(schema));
    ASSERT_FALSE(refused.ok()) << schema;
    EXPECT_EQ(refused.error().param, place);
  }
  // Where strings are those of JSON, such a value may be JSON as a whole.
  EXPECT_TRUE(grammar_of("pythonic", schema_of(R"({"properties": {"a": {"type": "object",
      "minProperties": 2}}})")));
}

TEST(CallValues, SpecialTokensStandAroundStrings) {
  // Of the test model's vocabulary, which has no such tokens.
  const auto special = [](std::string_view text) -> std::optional<int32_t> {
    return text == "<|\"|>" || text == "｜DSML｜" ? std::optional(316) : std::nullopt;
  };
  const json::object schema = schema_of(R"({"type": "object", "properties": {
      "s": {"type": "string"}}, "required": ["s"]})");
  const auto token = [](Walk& walk) {
    const auto allowed = walk.allowed();
    return std::ranges::find(allowed, 316) != allowed.end();
  };
  const auto gemma = grammar_of("gemma4", schema, Begin::kAtOnce, special);
  Walk walk(text::GrammarSpec::Kind::kCalls, gemma->source, "");
  EXPECT_EQ(walk.take("<|tool_call>call:set_mode{s:"), 28u);
  EXPECT_EQ(walk.allowed(), std::vector<int32_t>{316});
  EXPECT_TRUE(walk.take_token(316));
  EXPECT_EQ(walk.take("any {\"text\"}, <b>"), 17u);
  EXPECT_TRUE(walk.take_token(316));
  EXPECT_EQ(walk.take("}<tool_call|>"), 13u);

  const auto dsml = grammar_of("deepseek_v32", schema, Begin::kAtOnce, special);
  Walk tags(text::GrammarSpec::Kind::kCalls, dsml->source, "");
  EXPECT_EQ(tags.take("<"), 1u);
  EXPECT_EQ(tags.allowed(), std::vector<int32_t>{316});
  EXPECT_TRUE(tags.take_token(316));
  EXPECT_EQ(tags.take("function_calls>\n<"), 17u);
  EXPECT_TRUE(tags.take_token(316));
  EXPECT_EQ(tags.take("invoke name=\"set_mode\">\n<"), 25u);
  EXPECT_TRUE(tags.take_token(316));
  EXPECT_EQ(tags.take("parameter name=\"s\" string=\"true\">a </b> c"), 41u);
  EXPECT_FALSE(token(tags));
  EXPECT_EQ(tags.take("</"), 2u);
  EXPECT_TRUE(tags.take_token(316));
  EXPECT_EQ(tags.take("parameter>\n</"), 13u);
  EXPECT_EQ(tags.allowed(), std::vector<int32_t>{316});
}

// Patterns and lengths hold for strings without quotes, too.
TEST(CallValues, TextFollowsItsPattern) {
  const auto taken = [](const char* dialect, const std::string& property, const std::string& begin,
                        const std::string& value) {
    const json::object schema = schema_of(R"({"type": "object", "properties": {"s": )" + property +
                                          R"(}, "required": ["s"]})");
    const auto grammar = grammar_of(dialect, schema);
    Walk walk(text::GrammarSpec::Kind::kCalls, grammar->source, "");
    EXPECT_EQ(walk.take(begin), begin.size());
    return walk.take(value) == value.size();
  };
  const auto gemma = [&](const std::string& property, const std::string& value) {
    return taken("gemma4", property, "<|tool_call>call:set_mode{s:<|\"|>", value + "<|\"|>}");
  };
  EXPECT_TRUE(gemma(R"({"type": "string", "pattern": "^a+$"})", "aaa"));
  EXPECT_FALSE(gemma(R"({"type": "string", "pattern": "^a+$"})", "aab"));
  EXPECT_TRUE(gemma(R"({"type": "string", "pattern": "b"})", "abc"));
  EXPECT_FALSE(gemma(R"({"type": "string", "pattern": "b"})", "ac"));
  EXPECT_TRUE(gemma(R"({"type": "string", "pattern": "^/|x\\$$"})", "/a"));
  EXPECT_TRUE(gemma(R"({"type": "string", "pattern": "^/|x\\$$"})", "ax$"));
  EXPECT_FALSE(gemma(R"({"type": "string", "pattern": "^/|x\\$$"})", "ax"));
  EXPECT_FALSE(gemma(R"({"type": "string", "minLength": 3})", "ab"));
  EXPECT_TRUE(gemma(R"({"type": "string", "maxLength": 3, "format": "uri"})", "abc"));
  EXPECT_FALSE(gemma(R"({"type": "string", "maxLength": 3})", "abcd"));
  const auto xml = [&](const std::string& property, const std::string& value) {
    return taken("qwen3_coder", property, "<tool_call>\n<function=set_mode>\n<parameter=s>\n",
                 value + "\n</parameter>\n");
  };
  EXPECT_TRUE(xml(R"({"type": "string", "pattern": "^a+$"})", "aaa"));
  EXPECT_FALSE(xml(R"({"type": "string", "pattern": "^a+$"})", "b"));
}

}  // namespace
}  // namespace quire::server
