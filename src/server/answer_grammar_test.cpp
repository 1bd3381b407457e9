// Grammars for calls against the parsers of calls: what one allows the other reads.
#include "server/answer_grammar.h"

#include <gtest/gtest.h>

#include "server/test_grammar_walk.h"

namespace quire::server {
namespace {

using dialects::CallGrammar;
using dialects::Dialect;

constexpr const char* kSchema = R"({"type": "object", "additionalProperties": false,
    "properties": {"on": {"type": "boolean"}, "mode": {"enum": ["fast", "slow"]},
                   "list": {"type": "array", "items": {"type": "boolean"}, "maxItems": 2}},
    "required": ["mode"]})";

class CallGrammars : public testing::TestWithParam<const Dialect*> {};

TEST_P(CallGrammars, AllowOnlyWhatTheParserReadsAsCalls) {
  const Dialect& dialect = *GetParam();
  const json::object schema = parse_json(kSchema)->as_object();
  const std::vector<dialects::ForcedTool> tools = {{"set_mode", &schema, "a"},
                                                   {"other", &schema, "b"}};
  const auto offered = *dialects::ToolSet::parse(
      *parse_json(std::string(R"([{"name": "set_mode", "parameters": )") + kSchema +
                  R"(}, {"name": "other", "parameters": )" + kSchema + "}]"));
  std::mt19937 random(7);
  for (const bool one : {true, false}) {
    const CallGrammar grammar = *dialects::make_call_grammar(
        dialect, tools, CallGrammar::Begin::kAtOnce, one, no_special_token);
    for (int i = 0; i < 4; ++i) {
      Walk walk(text::GrammarSpec::Kind::kCalls, grammar.source, "");
      const std::string text = walk.any(random);
      SCOPED_TRACE(text);
      dialects::OutputParser parser({&dialect, nullptr, false}, offered);
      dialects::Events events;
      parser.push(text, events);
      parser.finish(false, events);
      dialects::ParsedOutput output;
      output.add(events);
      EXPECT_EQ(output.content, "");
      ASSERT_GE(output.calls.size(), 1u);
      EXPECT_TRUE(!one || output.calls.size() == 1u);
      for (const auto& call : output.calls) {
        const auto arguments = parse_json(call.arguments);
        ASSERT_TRUE(arguments.ok() && arguments->is_object()) << call.arguments;
        const json::value* mode = arguments->get_object().if_contains("mode");
        ASSERT_NE(mode, nullptr) << call.arguments;
        EXPECT_TRUE(*mode == "fast" || *mode == "slow");
        for (const auto& [key, value] : arguments->get_object())
          EXPECT_TRUE(key != "on" || value.is_bool());
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Dialects, CallGrammars, testing::ValuesIn(dialects::all_dialects()),
                         [](const auto& param) { return std::string(param.param->name); });

TEST(CallGrammar, TextValuesEndWithTheirTag) {
  const json::object schema =
      parse_json(R"({"type": "object", "properties": {"text": {"type": "string"},
                     "n": {"type": "integer"}}, "required": ["n", "text"]})")
          ->as_object();
  const CallGrammar grammar = *dialects::make_call_grammar(
      *dialects::find_dialect("qwen3_coder"), {{"write", &schema, "a"}},
      CallGrammar::Begin::kAtOnce, true, no_special_token);
  const std::string text =
      "<tool_call>\n<function=write>\n<parameter=text>\nif (a < b) {\n}\n</parameter>\n"
      "<parameter=n>\n7\n</parameter>\n</function>\n</tool_call>";
  Walk walk(text::GrammarSpec::Kind::kCalls, grammar.source, "");
  EXPECT_EQ(walk.take(text), text.size());
  Walk wrong(text::GrammarSpec::Kind::kCalls, grammar.source, "");
  const std::string start = text.substr(0, text.find('7'));
  EXPECT_EQ(wrong.take(start + "x"), start.size());
}

// Whatever blanks a model writes there, the tool's name is bound from then on.
TEST(CallGrammar, BeginsWhateverTheBlanks) {
  const std::vector<std::pair<const char*, std::vector<std::string>>> beginnings = {
      {"hermes", {"<tool_call>\n{\"name\": \"", "<tool_call>{\"name\": \""}},
      {"llama3_json", {"{\"name\": \"", "{\"name\":\"", "{ \"name\" : \"", "{\n  \"name\": \""}},
      {"mistral_v3", {"[TOOL_CALLS][{\"name\": \"", "[TOOL_CALLS] [{\"name\": \""}},
      {"granite3", {"<|tool_call|>[{\"name\": \"", "<|tool_call|> [{\"name\": \""}},
      {"nemotron_nano_v2", {"<TOOLCALL>[{\"name\": \"", "<TOOLCALL> [{\"name\": \""}},
      {"hunyuan_a13b", {"<tool_calls>[{\"name\": \"", "<tool_calls>\n[{\"name\": \""}},
      {"command_r",
       {"Action: ```json\n[{\"tool_name\": \"", "Action:\n```json\n[{\"tool_name\": \""}},
      {"llama4_pythonic", {"{\"name\": \"", "{ \"name\":\""}}};
  for (const auto& [name, texts] : beginnings) {
    const auto grammar =
        dialects::make_call_grammar(*dialects::find_dialect(name), {{"find", nullptr, "a"}},
                                    CallGrammar::Begin::kAfterTrigger, true, no_special_token);
    const std::string prelude = prelude_of(*grammar);
    for (const std::string& text : texts) {
      for (const std::string before : {"", "Well. "}) {
        SCOPED_TRACE(std::string(name) + " " + before + text);
        Walk named(text::GrammarSpec::Kind::kCalls, grammar->source, prelude);
        const std::string whole = before + text + "find\"";
        EXPECT_EQ(named.take(whole), whole.size());
        Walk other(text::GrammarSpec::Kind::kCalls, grammar->source, prelude);
        EXPECT_EQ(other.take(before + text + "lose\""), (before + text).size());
      }
    }
  }
}

// In the model's own form, or in its other one where that has no place for a name.
TEST(CallGrammar, AFormThatCannotWriteANameIsLeftOut) {
  const std::string mark = "<|tool_call_start|>[", end = "]<|tool_call_end|>";
  const std::string as_list = mark + R"(find(city="Rome", n=2), find(city="Bonn"))" + end;
  const auto as_json = [&](const std::string& name) {
    return mark + R"({"name": "find", "arguments": {")" + name + R"(": "Rome"}})" + end;
  };
  const auto taken = [](const std::string& name, const std::string& text) {
    const json::object schema{
        {"type", "object"},
        {"properties", {{name, {{"type", "string"}}}, {"n", {{"type", "integer"}}}}},
        {"required", json::array{json::string(name)}}};
    const CallGrammar grammar =
        *dialects::make_call_grammar(*dialects::find_dialect("lfm2"), {{"find", &schema, "a"}},
                                     CallGrammar::Begin::kAtOnce, false, no_special_token);
    return Walk(text::GrammarSpec::Kind::kCalls, grammar.source, "").take(text) == text.size();
  };
  EXPECT_TRUE(taken("city", as_list));
  EXPECT_TRUE(taken("city", as_json("city")));
  EXPECT_TRUE(taken("$city", as_json("$city")));
  EXPECT_FALSE(taken("$city", as_list));
  const json::object schema{{"properties", {{"$city", {{"type", "string"}}}}}};
  const auto refused =
      dialects::make_call_grammar(*dialects::find_dialect("pythonic"), {{"find", &schema, "a"}},
                                  CallGrammar::Begin::kAtOnce, false, no_special_token);
  ASSERT_FALSE(refused.ok()) << "it has no other form";
  EXPECT_EQ(refused.error().param, "a.properties.$city");
}

// They stand beside each argument that is no text.
TEST(CallGrammar, SharedDefinitionsAreBounded) {
  const auto grammar_of = [](int arguments) {
    json::object schema{{"$defs", {{"d", {{"const", std::string(100'000, 'x')}}}}}};
    auto& properties = schema["properties"].emplace_object();
    for (int i = 0; i < arguments; ++i)
      properties["p" + std::to_string(i)] = {{"type", "array"}, {"items", {{"$ref", "#/$defs/d"}}}};
    return dialects::make_call_grammar(*dialects::find_dialect("qwen3_coder"),
                                       {{"f", &schema, "a"}}, CallGrammar::Begin::kAtOnce, true,
                                       no_special_token);
  };
  EXPECT_TRUE(grammar_of(2));
  const auto refused = grammar_of(3);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().param, "tools");
}

TEST(CallGrammar, SpecialTokensAreTakenByTheirId) {
  const auto special = [](std::string_view text) -> std::optional<int32_t> {
    return text == "[TOOL_CALLS]" ? std::optional(316) : std::nullopt;
  };
  const CallGrammar grammar =
      *dialects::make_call_grammar(*dialects::find_dialect("mistral_v13"), {{"f", nullptr, "a"}},
                                   CallGrammar::Begin::kAtOnce, true, special);
  Walk walk(text::GrammarSpec::Kind::kCalls, grammar.source, "");
  EXPECT_EQ(walk.allowed(), std::vector<int32_t>{316});
}

json::object thinking(bool starts_open) {
  const auto ids = [](std::string_view text) {
    json::array list;
    for (const int32_t id : encode(text)) list.emplace_back(id);
    return list;
  };
  return {{"open", ids("<t>")},
          {"close", ids("</t>")},
          {"close_text", "</t>"},
          {"starts_open", starts_open}};
}

std::string prelude(json::object thinking, json::object more = {}) {
  more["thinking"] = std::move(thinking);
  return dump_json(more);
}

constexpr auto kChoice = text::GrammarSpec::Kind::kChoice;
const std::string kYes = R"(["yes"])";

TEST(Prelude, AFormBeginsAfterTheThinking) {
  Walk open(kChoice, kYes, prelude(thinking(true)));
  EXPECT_FALSE(open.may_end());
  const std::string text = "anything {\n</t>\n\nyes";
  EXPECT_EQ(open.take(text), text.size());
  EXPECT_TRUE(open.may_end());
  Walk wrong(kChoice, kYes, prelude(thinking(true)));
  EXPECT_EQ(wrong.take("x</t>no"), 5u);
}

TEST(Prelude, AModelMayThinkFirstOrNot) {
  Walk thinks(kChoice, kYes, prelude(thinking(false)));
  EXPECT_EQ(thinks.take("<t>no</t>yes"), 12u);
  EXPECT_TRUE(thinks.may_end());
  Walk does_not(kChoice, kYes, prelude(thinking(false)));
  EXPECT_EQ(does_not.take("yes"), 3u);
  Walk neither(kChoice, kYes, prelude(thinking(false)));
  EXPECT_EQ(neither.take("no"), 0u);
}

TEST(Prelude, ABudgetEndsTheThinking) {
  json::object limited = thinking(true);
  limited["budget"] = 3;
  Walk walk(kChoice, kYes, prelude(limited));
  const size_t three =
      model_text().tokenizer->decode(std::vector<int32_t>(3, encode("q")[0]), false)->size();
  EXPECT_EQ(walk.take("qqqqqq"), three);
  EXPECT_EQ(walk.allowed(), std::vector<int32_t>{encode("</t>")[0]});
  EXPECT_EQ(walk.take("</t>yes"), 7u);
  // Without a form anything may follow.
  limited["budget"] = 0;
  Walk free(text::GrammarSpec::Kind::kRegex, "x", prelude(limited, {{"free", true}}));
  EXPECT_EQ(free.take("q"), 0u);
  EXPECT_EQ(free.take("</t>q<t>zz"), 10u);
  EXPECT_TRUE(free.may_end());
}

// This vocabulary spells the opener in several tokens.
TEST(Prelude, WhatOnlyBeginsAsAnOpenerIsNone) {
  ASSERT_GT(encode("<t>").size(), 1u);
  Walk list(kChoice, R"(["<list>"])", prelude(thinking(false)));
  EXPECT_EQ(list.take("<list>"), 6u);
  EXPECT_TRUE(list.may_end());
  const json::object calls{{"triggers", json::array{json::value("<call>")}}, {"repeats", true}};
  Walk calling(kChoice, kYes, prelude(thinking(false), calls));
  EXPECT_EQ(calling.take("<call>no"), 6u);
  Walk thinking_first(kChoice, kYes, prelude(thinking(false), calls));
  EXPECT_EQ(thinking_first.take("<t>no</t><call>yes"), 18u);
}

TEST(Prelude, ASpentBudgetForbidsTheOpener) {
  json::object spent = thinking(true);
  spent["open"] = json::array{encode("q")[0]};
  spent["budget"] = 0;
  const json::object calls{{"triggers", json::array{json::value("<call>")}}, {"repeats", true}};
  for (const json::object& after : {json::object{{"free", true}}, calls}) {
    Walk walk(kChoice, kYes, prelude(spent, after));
    EXPECT_EQ(walk.take("</t>zq"), 5u);
  }
}

TEST(Prelude, ATriggerBeginsTheGrammarAgainAndAgain) {
  const std::string more =
      dump_json(json::object{{"triggers", json::array{json::value("<call>")}}, {"repeats", true}});
  Walk walk(kChoice, kYes, more);
  EXPECT_TRUE(walk.may_end());
  EXPECT_EQ(walk.take("Hi <call"), 8u);
  EXPECT_EQ(walk.take(">yes and <call>yes"), 18u);
  EXPECT_TRUE(walk.may_end());
  EXPECT_EQ(walk.take("<call>"), 6u);
  EXPECT_FALSE(walk.may_end());
  EXPECT_EQ(walk.take("no"), 0u);
}

}  // namespace
}  // namespace quire::server
