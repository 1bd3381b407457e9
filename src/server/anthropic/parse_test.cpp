#include "server/anthropic/parse.h"

#include <gtest/gtest.h>

namespace quire::server::anthropic {
namespace {

openai::ParseContext context() {
  openai::ParseContext context;
  context.vocab_size = 320;
  return context;
}

std::string with(const std::string& fields,
                 const std::string& messages = R"([{"role": "user", "content": "Hi"}])") {
  return R"({"model": "m", "max_tokens": 9, "messages": )" + messages + fields + "}";
}

openai::ChatRequest parsed(const std::string& body) {
  auto request = parse_messages(body, context());
  EXPECT_TRUE(request.ok()) << body << "\n" << (request ? "" : request.error().message);
  return request ? std::move(*request) : openai::ChatRequest();
}

// The messages that the chat template will see.
std::string turns(const std::string& body) { return dump_json(parsed(body).chat.messages); }

TEST(ParseMessages, TextsAndBlocksBecomeMessages) {
  EXPECT_EQ(turns(with("")), R"([{"role":"user","content":"Hi"}])");
  EXPECT_EQ(turns(with(R"(, "system": "Be brief.")")),
            R"([{"role":"system","content":"Be brief."},{"role":"user","content":"Hi"}])");
  EXPECT_EQ(turns(with(R"(, "system": [{"type": "text", "text": "A"},
                           {"type": "text", "text": "B", "cache_control": {"type": "ephemeral"}}])",
                       R"([{"role": "user", "content": [{"type": "text", "text": "x",
                           "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "y"}]}])")),
            R"([{"role":"system","content":"A\nB"},{"role":"user","content":"x\ny"}])");
  // Turns that follow one another are one.
  EXPECT_EQ(turns(with(R"(, "system": "A")", R"([{"role": "system", "content": "B"},
      {"role": "user", "content": "x"}, {"role": "user", "content": "y"}])")),
            R"([{"role":"system","content":"A\nB"},{"role":"user","content":"x\ny"}])");
}

TEST(ParseMessages, CallsResultsAndThinkingComeBack) {
  const std::string body = with("", R"([{"role": "user", "content": "Add"},
    {"role": "assistant", "content": [
      {"type": "thinking", "thinking": "hm", "signature": "quire"},
      {"type": "text", "text": "Sure"},
      {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"a": 1}},
      {"type": "tool_use", "id": "toolu_2", "name": "now", "input": {}}]},
    {"role": "user", "content": [
      {"type": "tool_result", "tool_use_id": "toolu_1", "content": "2"},
      {"type": "tool_result", "tool_use_id": "toolu_2", "is_error": true,
       "content": [{"type": "text", "text": "no"}, {"type": "text", "text": "clock"}]},
      {"type": "tool_result", "tool_use_id": "toolu_3"},
      {"type": "text", "text": "Go on"}]}])");
  EXPECT_EQ(
      turns(body),
      R"([{"role":"user","content":"Add"},{"role":"assistant","content":"Sure","reasoning":"hm",)"
      R"("reasoning_content":"hm","tool_calls":[{"id":"toolu_1","type":"function",)"
      R"("function":{"name":"add","arguments":{"a":1}}},{"id":"toolu_2","type":"function",)"
      R"("function":{"name":"now","arguments":{}}}]},)"
      R"({"role":"tool","tool_call_id":"toolu_1","content":"2"},)"
      R"({"role":"tool","tool_call_id":"toolu_2","content":"Error: no\nclock"},)"
      R"({"role":"tool","tool_call_id":"toolu_3","content":""},{"role":"user","content":"Go on"}])");
  EXPECT_TRUE(parsed(body).chat.add_generation_prompt);
}

TEST(ParseMessages, FoundTextsAndTextDocumentsAreText) {
  EXPECT_EQ(turns(with("", R"([{"role": "user", "content": [
      {"type": "search_result", "title": "T", "source": "s", "content": [{"type": "text", "text": "c"}]},
      {"type": "document", "title": "D", "context": "C", "citations": {"enabled": false}, "source": {"type": "text", "media_type": "text/plain",
       "data": "d"}}]}])")),
            R"([{"role":"user","content":"T\ns\nc\nD\nC\nd"}])");
}

TEST(ParseMessages, AnAnswerThatIsBegunGoesOn) {
  const auto request = parsed(
      with("", R"([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Once"}])"));
  EXPECT_TRUE(request.chat.continue_final_message);
  EXPECT_FALSE(request.chat.add_generation_prompt);
}

TEST(ParseMessages, BillingHeadersAreLeftOut) {
  const std::string line = R"(x-anthropic-billing-header: cc_version=2; cch=a1b2c;)";
  const auto body = [](const std::string& first) {
    return with(R"(, "system": [{"type": "text", "text": ")" + first +
                R"("}, {"type": "text", "text": "You help."}])");
  };
  const std::string without = turns(with(R"(, "system": "You help.")"));
  EXPECT_EQ(turns(body(line)), without);
  EXPECT_TRUE(parsed(body(line)).left_out_billing_header);
  // Only what begins exactly so.
  for (const std::string& other : {" " + line, "X" + line, std::string("x-anthropic-billing")}) {
    EXPECT_NE(turns(body(other)).find(other), std::string::npos);
    EXPECT_FALSE(parsed(body(other)).left_out_billing_header);
  }
  const std::string from_user =
      with("", R"([{"role": "user", "content": [{"type": "text", "text": ")" + line + R"("}]}])");
  EXPECT_NE(turns(from_user).find(line), std::string::npos);
  auto keeps = context();
  keeps.keep_billing_header = true;
  EXPECT_NE(dump_json(parse_messages(body(line), keeps)->chat.messages).find(line),
            std::string::npos);
}

TEST(ParseMessages, ToolsAndTheirChoice) {
  const std::string tools = R"(, "tools": [{"name": "add", "description": "Adds",
      "input_schema": {"type": "object"}}, {"type": "web_search_20250305", "name": "web_search"},
      {"type": "custom", "name": "now", "input_schema": {"type": "object"}}])";
  auto request = parsed(with(tools));
  EXPECT_EQ(dump_json(*request.chat.tools),
            R"([{"type":"function","function":{"name":"add","description":"Adds",)"
            R"("parameters":{"type":"object"}}},)"
            R"({"type":"function","function":{"name":"now","parameters":{"type":"object"}}}])");
  EXPECT_TRUE(request.parses_calls && request.parallel_tool_calls && !request.needs_grammar);
  EXPECT_EQ(request.left_out_tools.text(), R"("web_search_20250305")");
  EXPECT_EQ(request.chat.schema_fields,
            (std::vector<std::string>{"tools[0].input_schema", "tools[2].input_schema"}));
  request = parsed(with(tools + R"(, "tool_choice": {"type": "auto",
                                                     "disable_parallel_tool_use": true})"));
  EXPECT_TRUE(!request.requires_calls && !request.parallel_tool_calls);
  request = parsed(with(tools + R"(, "tool_choice": {"type": "any"})"));
  EXPECT_TRUE(request.requires_calls && request.callable.empty() && request.needs_grammar);
  request = parsed(with(tools + R"(, "tool_choice": {"type": "tool", "name": "now"})"));
  EXPECT_TRUE(request.requires_calls && request.may_call("now") && !request.may_call("add"));
  request = parsed(with(tools + R"(, "tool_choice": {"type": "none"})"));
  EXPECT_TRUE(!request.chat.tools && !request.parses_calls);
}

TEST(ParseMessages, KeysOfToolsThatNobodyReadsAreNamed) {
  const auto request = parsed(with(R"(, "tools": [
      {"name": "a", "input_schema": {}, "cache_control": {}, "defer_loading": true},
      {"name": "b", "input_schema": {}, "defer_loading": true, "input_examples": [{}]}])"));
  EXPECT_EQ(request.unknown_fields.text(), R"("tools[].defer_loading", "tools[].input_examples")");
}

TEST(ParseMessages, KeysOfTurnsThatNobodyReadsAreNamed) {
  const auto unread = [](const std::string& role, const std::string& blocks) {
    return parsed(R"({"max_tokens": 9, "messages": [{"role": "user", "content": "x"}, {"role": ")" +
                  role + R"(", "content": [)" + blocks + "]}]}")
        .chat.unread_keys.text();
  };
  EXPECT_EQ(unread("assistant", R"({"type": "text", "text": "x", "citations": null, "odd": 1},
      {"type": "thinking", "thinking": "x", "signature": "", "a": 1},
      {"type": "tool_use", "id": "1", "name": "f", "input": {}, "cache_control": {}, "b": 1})"),
            R"("content[].odd", "content[].a", "content[].b")");
  EXPECT_EQ(unread("user", R"({"type": "tool_result", "tool_use_id": "1", "is_error": false, "c": 1,
          "content": [{"type": "text", "text": "x", "d": 1}]},
      {"type": "search_result", "title": "", "source": "", "content": "x", "e": 1},
      {"type": "document", "title": "", "context": "", "f": 1,
          "source": {"type": "text", "media_type": "text/plain", "data": "x", "g": 1}})"),
            R"("content[].d", "content[].c", "content[].e", "content[].f", "content[].source.g")");
  EXPECT_EQ(parsed(R"({"max_tokens": 9, "messages": [{"role": "user", "content": "x", "h": 1}],
                       "system": [{"type": "text", "text": "x", "i": 1}]})")
                .chat.unread_keys.text(),
            R"("content[].i", "messages[].h")");
}

TEST(ParseMessages, Thinking) {
  auto request = parsed(with(""));
  EXPECT_FALSE(request.chat.reasoning.thinking);
  EXPECT_TRUE(request.include_reasoning);
  request = parsed(with(R"(, "thinking": {"type": "enabled", "budget_tokens": 5})"));
  EXPECT_EQ(request.chat.reasoning.thinking, true);
  EXPECT_EQ(request.thinking_budget, 5);
  request = parsed(with(R"(, "thinking": {"type": "enabled", "budget_tokens": 31999})"));
  EXPECT_FALSE(request.thinking_budget || request.needs_grammar);  // no limit: max_tokens is 9
  request = parsed(with(R"(, "thinking": {"type": "disabled"})"));
  EXPECT_EQ(request.chat.reasoning.thinking, false);
  EXPECT_FALSE(request.include_reasoning);
  request =
      parsed(with(R"(, "thinking": {"type": "adaptive"}, "output_config": {"effort": "low"})"));
  EXPECT_FALSE(request.chat.reasoning.thinking);
  EXPECT_EQ(request.chat.reasoning.effort, "low");
  EXPECT_TRUE(request.chat.reasoning.is_hint);
}

TEST(ParseMessages, SamplingAndForm) {
  const auto request = parsed(with(R"(, "temperature": 0.5, "top_p": 0.9, "top_k": 40, "seed": 3,
      "stop_sequences": ["a", "b"], "bad_words": ["no"], "stream": true, "metadata": {"user_id": "u"},
      "service_tier": "auto", "context_management": {"edits": []}, "output_config": {"format":
      {"type": "json_schema", "schema": {"type": "object"}}})"));
  EXPECT_EQ(request.sampling.temperature, 0.5f);
  EXPECT_EQ(request.sampling.top_k, 40);
  EXPECT_EQ(request.sampling.seed, 3u);
  EXPECT_EQ(request.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(request.bad_words, (std::vector<std::string>{"no"}));
  EXPECT_EQ(request.max_tokens, 9);
  EXPECT_TRUE(request.stream && request.cuts_max_tokens);
  EXPECT_EQ(request.unknown_fields.text(), R"("context_management")");
  ASSERT_TRUE(request.constraint);
  EXPECT_EQ(request.constraint->source, R"({"type":"object"})");
  EXPECT_EQ(request.constraint->param, "output_config.format.schema");
}

TEST(ParseMessages, CountingNeedsNoMaxTokens) {
  const std::string body = R"({"messages": [{"role": "user", "content": "Hi"}]})";
  EXPECT_TRUE(parse_count_tokens(body, context()).ok());
  EXPECT_EQ(parse_messages(body, context()).error().param, "max_tokens");
}

struct BadCase {
  const char* fields;
  const char* param;
};

constexpr BadCase kBad[] = {
    {R"("max_tokens": 0)", "max_tokens"},
    {R"("max_tokens": "many")", "max_tokens"},
    {R"("messages": [])", "messages"},
    {R"("messages": ["Hi"])", "messages"},
    {R"("messages": [{"content": "Hi"}])", "messages[0].role"},
    {R"("messages": [{"role": "tool", "content": "Hi"}])", "messages[0].role"},
    {R"("messages": [{"role": "user"}])", "messages[0].content"},
    {R"("messages": [{"role": "user", "content": 5}])", "messages[0].content"},
    {R"("messages": [{"role": "user", "content": ["Hi"]}])", "messages[0].content[0]"},
    {R"("messages": [{"role": "user", "content": [{"type": "text"}]}])",
     "messages[0].content[0].text"},
    {R"("messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}])",
     "messages[0].content[0].type"},
    {R"("messages": [{"role": "user", "content": [{"type": "document", "source":
          {"type": "base64", "data": ""}}]}])",
     "messages[0].content[0].type"},
    {R"("messages": [{"role": "user", "content": [{"type": "document", "citations": {"enabled": true},
          "source": {"type": "text", "data": ""}}]}])",
     "messages[0].content[0].citations.enabled"},
    {R"("messages": [{"role": "user", "content": [{"type": "tool_result", "content": "2"}]}])",
     "messages[0].content[0].tool_use_id"},
    {R"("messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1",
          "content": [{"type": "image"}]}]}])",
     "messages[0].content[0].content[0].type"},
    {R"("messages": [{"role": "user", "content": [{"type": "tool_use", "id": "1", "name": "f",
          "input": {}}]}])",
     "messages[0].content[0].type"},
    {R"("messages": [{"role": "assistant", "content": [{"type": "redacted_thinking", "data": ""}]}])",
     "messages[0].content[0].type"},
    {R"("messages": [{"role": "assistant", "content": [{"type": "tool_use", "name": "f",
          "input": {}}]}])",
     "messages[0].content[0].id"},
    {R"("system": 5)", "system"},
    {R"("system": [{"type": "image"}])", "system[0].type"},
    {R"("tools": {})", "tools"},
    {R"("tools": [{"name": "f"}])", "tools[0].input_schema"},
    {R"("tools": [{"input_schema": {}}])", "tools[0].name"},
    {R"("tools": [{"name": "a<b", "input_schema": {}}])", "tools[0].name"},
    {R"("tools": [{"name": "f", "input_schema": {"type": "string"}}])", "tools[0].input_schema"},
    {R"("tools": [{"type": "bash_20250124", "name": "bash"}])", "tools[0].type"},
    {R"("tools": [{"type": "web_search_20250305", "name": "web_search"}])", "tools"},
    {R"("tool_choice": "auto")", "tool_choice"},
    {R"("tool_choice": {"type": "always"})", "tool_choice.type"},
    {R"("tool_choice": {"type": "any"})", "tool_choice.type"},
    {R"("tool_choice": {"type": "tool", "name": "f"})", "tool_choice.name"},
    {R"("tool_choice": {"type": "auto", "name": "f"})", "tool_choice.name"},
    {R"("thinking": {"type": "on"})", "thinking.type"},
    {R"("thinking": {"type": "enabled"})", "thinking.budget_tokens"},
    {R"("stop_sequences": [5])", "stop_sequences"},
    {R"("output_config": {"effort": "some"})", "output_config.effort"},
    {R"("output_format": {"type": "text"})", "output_format.type"},
    {R"("stop": ["a"])", "stop"},
    {R"("n": 2)", "n"},
    {R"("mcp_servers": [{}])", "mcp_servers"},
    {R"("container": "c")", "container"},
    {R"("stream": 1)", "stream"},
};

TEST(ParseMessages, RefusesBadFieldsByName) {
  for (const BadCase& bad : kBad) {
    const std::string body =
        R"({"max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}], )" +
        std::string(bad.fields) + "}";
    const auto request = parse_messages(body, context());
    ASSERT_FALSE(request.ok()) << bad.fields;
    EXPECT_EQ(request.error().status, 400);
    EXPECT_EQ(request.error().param, bad.param) << bad.fields;
    EXPECT_NE(request.error().message.find(bad.param), std::string::npos);
  }
}

}  // namespace
}  // namespace quire::server::anthropic
