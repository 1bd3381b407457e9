#include "server/responses/parse.h"

#include <gtest/gtest.h>

namespace quire::server::responses {
namespace {

openai::ParseContext context() {
  openai::ParseContext context;
  context.vocab_size = 320;
  context.defaults.temperature = 0.6f;
  return context;
}

std::string with(const std::string& fields, const std::string& input = R"("Hi")") {
  return R"({"model": "m", "input": )" + input + fields + "}";
}

openai::ChatRequest parsed(const std::string& body) {
  auto request = parse_responses(body, context());
  EXPECT_TRUE(request.ok()) << body << "\n" << (request ? "" : request.error().message);
  return request ? std::move(*request) : openai::ChatRequest();
}

// The messages that the chat template will see.
std::string turns(const std::string& body) { return dump_json(parsed(body).chat.messages); }

// The members of the answer that are the request's.
json::object echo(const std::string& body) {
  const auto request = parsed(body);
  if (!request.responses) return {};
  auto members = parse_json("{" + request.responses->members + "}");
  EXPECT_TRUE(members.ok()) << request.responses->members;
  return members ? members->as_object() : json::object();
}

TEST(ParseResponses, TextsAndItemsBecomeMessages) {
  EXPECT_EQ(turns(with("")), R"([{"role":"user","content":"Hi"}])");
  EXPECT_EQ(turns(with(R"(, "instructions": "Be brief.")", R"([
      {"role": "user", "content": "a"},
      {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "b"},
                                                      {"type": "text", "text": "c"}]},
      {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "content":
       [{"type": "output_text", "text": "d", "annotations": []}, {"type": "refusal", "refusal": "e"}]}])")),
            R"([{"role":"system","content":"Be brief."},{"role":"user","content":"a"},)"
            R"({"role":"user","content":"b\nc"},{"role":"assistant","content":"d\ne"}])");
}

TEST(ParseResponses, SystemTextsThatFollowOneAnotherAreOne) {
  EXPECT_EQ(turns(with(R"(, "instructions": "A")", R"([
      {"role": "developer", "content": "B"}, {"role": "system", "content": "C"},
      {"role": "user", "content": "x"}, {"role": "developer", "content": "D"}])")),
            R"([{"role":"system","content":"A\nB\nC"},{"role":"user","content":"x"},)"
            R"({"role":"system","content":"D"}])");
}

TEST(ParseResponses, AModelsTurnIsOneMessage) {
  const std::string body = with("", R"([{"role": "user", "content": "Add"},
    {"type": "reasoning", "id": "rs_1", "summary": [], "content": [
      {"type": "reasoning_text", "text": "hm"}]},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Sure"}]},
    {"type": "function_call", "call_id": "call_1", "name": "add", "arguments": "{\"a\": 1}"},
    {"type": "function_call", "call_id": "call_2", "name": "now", "namespace": "clock",
     "arguments": ""},
    {"type": "function_call_output", "call_id": "call_1", "output": "2"},
    {"type": "function_call_output", "call_id": "call_2", "output": [
      {"type": "input_text", "text": "no"}, {"type": "input_text", "text": "clock"}]},
    {"type": "custom_tool_call", "call_id": "call_3", "name": "patch", "input": "*** Begin"},
    {"type": "custom_tool_call_output", "call_id": "call_3", "output": ""}])");
  EXPECT_EQ(
      turns(body),
      R"([{"role":"user","content":"Add"},{"role":"assistant","content":"Sure","reasoning":"hm",)"
      R"("reasoning_content":"hm","tool_calls":[{"id":"call_1","type":"function",)"
      R"("function":{"name":"add","arguments":{"a":1}}},{"id":"call_2","type":"function",)"
      R"("function":{"name":"clock__now","arguments":{}}}]},)"
      R"({"role":"tool","tool_call_id":"call_1","content":"2"},)"
      R"({"role":"tool","tool_call_id":"call_2","content":"no\nclock"},)"
      R"({"role":"assistant","content":"","tool_calls":[{"id":"call_3","type":"function",)"
      R"("function":{"name":"patch","arguments":{"input":"*** Begin"}}}]},)"
      R"({"role":"tool","tool_call_id":"call_3","content":""}])");
  EXPECT_FALSE(parsed(body).chat.has_text_arguments);
  EXPECT_TRUE(parsed(with("", R"([{"type": "function_call", "call_id": "c", "name": "f",
                                   "arguments": "{\"a\": "}])"))
                  .chat.has_text_arguments);
}

TEST(ParseResponses, ReasoningComesBackInSeveralForms) {
  const auto thought = [](const std::string& members) {
    const auto request = parsed(with("", R"([{"type": "reasoning", )" + members +
                                             R"(}, {"role": "assistant", "content": "x"}])"));
    const json::object& turn = request.chat.messages.at(0).as_object();
    return turn.contains("reasoning") ? std::string(turn.at("reasoning").as_string()) : "none";
  };
  const std::string sealed = R"("encrypted_content": "quire.reasoning:hm")";
  const std::string summary = R"("summary": [{"type": "summary_text", "text": "s"}])";
  EXPECT_EQ(thought(R"("content": [{"type": "reasoning_text", "text": "c"}], )" + sealed + ", " +
                    summary),
            "c");
  EXPECT_EQ(thought(sealed + ", " + summary), "hm");
  EXPECT_EQ(thought(summary + R"(, "content": null, "encrypted_content": "gAAAA")"), "s");
  EXPECT_EQ(thought(R"("summary": [], "encrypted_content": null)"), "none");
}

TEST(ParseResponses, KeysOfItemsThatNobodyReadsAreNamed) {
  const auto request = parsed(R"({"input": [
      {"role": "user", "id": "m", "a": 1, "content": [{"type": "input_text", "text": "x", "b": 1}]},
      {"type": "reasoning", "id": "r", "status": "completed", "c": 1,
          "summary": [{"type": "summary_text", "text": "x", "d": 1}]},
      {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}", "e": 1},
      {"type": "function_call_output", "call_id": "1", "output": "x", "f": 1},
      {"type": "custom_tool_call", "call_id": "2", "name": "g", "input": "x", "g": 1},
      {"type": "custom_tool_call_output", "call_id": "2", "output": "x", "h": null}]})");
  EXPECT_EQ(
      request.chat.unread_keys.text(),
      R"("input[].content[].b", "input[].a", "input[].summary[].d", "input[].c", "input[].e", )"
      R"("input[].f", "input[].g")");
}

constexpr const char* kTools = R"(, "tools": [
    {"type": "function", "name": "add", "description": "Adds", "strict": false,
     "defer_loading": true, "parameters": {"type": "object"}},
    {"type": "web_search", "external_web_access": false},
    {"type": "namespace", "name": "mcp__box", "description": "Boxes", "tools": [
      {"type": "function", "name": "open", "parameters": {"type": "object"}, "strict": true},
      {"type": "custom", "name": "patch"}]}])";

TEST(ParseResponses, ToolsAndNamespaces) {
  const auto request = parsed(with(kTools));
  EXPECT_EQ(dump_json(*request.chat.tools),
            R"([{"type":"function","function":{"name":"add","description":"Adds",)"
            R"("parameters":{"type":"object"}}},{"type":"function","function":)"
            R"({"name":"mcp__box__open","parameters":{"type":"object"},"strict":true}}])");
  EXPECT_EQ(request.left_out_tools.text(), R"("web_search", "custom")");
  EXPECT_EQ(request.unknown_fields.text(), R"("tools[].defer_loading")");
  EXPECT_EQ(request.chat.schema_fields,
            (std::vector<std::string>{"tools[0].parameters", "tools[2].tools[0].parameters"}));
  const auto& placed = request.responses->placed_tools;
  ASSERT_TRUE(placed.size() == 1 && placed.contains("mcp__box__open"));
  EXPECT_EQ(placed.at("mcp__box__open").space, "mcp__box");
  EXPECT_EQ(placed.at("mcp__box__open").name, "open");
  EXPECT_TRUE(request.parses_calls && request.parallel_tool_calls && request.has_strict_tools);
  // The answer does not say that there is a search.
  const json::object said = echo(with(kTools));
  EXPECT_EQ(said.at("tools").as_array().size(), 2u);
  EXPECT_EQ(said.at("tools").at(1).at("name"), "mcp__box");
}

TEST(ParseResponses, TheChoiceAmongTools) {
  const auto choose = [](const std::string& choice, const std::string& more = "") {
    return parsed(with(std::string(kTools) + R"(, "tool_choice": )" + choice + more));
  };
  auto request = choose(R"("auto")", R"(, "parallel_tool_calls": false)");
  EXPECT_TRUE(!request.requires_calls && !request.parallel_tool_calls);
  EXPECT_TRUE(choose(R"("required")").requires_calls);
  request = choose(R"("none")");
  EXPECT_TRUE(!request.chat.tools && !request.parses_calls && !request.needs_grammar);
  request = choose(R"({"type": "function", "name": "add"})");
  EXPECT_TRUE(request.requires_calls && request.may_call("add") &&
              !request.may_call("mcp__box__open") && request.needs_grammar);
  request = choose(R"({"type": "allowed_tools", "mode": "auto",
                       "tools": [{"type": "function", "name": "add"}]})");
  EXPECT_TRUE(!request.requires_calls && !request.may_call("mcp__box__open"));
}

TEST(ParseResponses, TheFormOfTheText) {
  auto request = parsed(with(R"(, "text": {"verbosity": "medium", "format": {"type": "json_schema",
      "name": "n", "strict": true, "schema": {"type": "object"}}})"));
  ASSERT_TRUE(request.constraint && request.needs_grammar);
  EXPECT_EQ(request.constraint->source, R"({"type":"object"})");
  EXPECT_EQ(request.constraint->param, "text.format.schema");
  request = parsed(with(R"(, "text": {"format": {"type": "json_object"}})"));
  EXPECT_EQ(request.constraint->param, "text.format.type");
  EXPECT_FALSE(parsed(with(R"(, "text": {"format": {"type": "text"}})")).needs_grammar);
}

TEST(ParseResponses, Reasoning) {
  auto request = parsed(with(R"(, "reasoning": {"effort": "medium", "summary": "auto"},
                                  "include": ["reasoning.encrypted_content"])"));
  EXPECT_FALSE(request.chat.reasoning.thinking);
  EXPECT_EQ(request.chat.reasoning.effort, "medium");
  EXPECT_TRUE(request.chat.reasoning.is_hint && request.include_reasoning);
  EXPECT_TRUE(request.responses->seals_reasoning);
  request = parsed(with(R"(, "reasoning": {"effort": "none"})"));
  EXPECT_EQ(request.chat.reasoning.thinking, false);
  EXPECT_FALSE(request.responses->seals_reasoning);
}

TEST(ParseResponses, SamplingAndWhatChangesNothing) {
  const auto request = parsed(with(R"(, "temperature": 0.5, "top_p": 0.9, "top_k": 40, "seed": 3,
      "stop": ["a"], "max_output_tokens": 9, "stream": true, "stream_options":
      {"include_obfuscation": false}, "store": true, "background": false, "truncation": "disabled",
      "service_tier": "auto", "prompt_cache_key": "k", "client_metadata": {"x": "y"}, "user": "u",
      "safety_identifier": "s", "top_logprobs": 0, "include": ["web_search_call.results"],
      "previous_response_id": null, "of_the_future": 1)"));
  EXPECT_EQ(request.sampling.temperature, 0.5f);
  EXPECT_EQ(request.sampling.top_k, 40);
  EXPECT_EQ(request.sampling.seed, 3u);
  EXPECT_EQ(request.stop, std::vector<std::string>{"a"});
  EXPECT_EQ(request.max_tokens, 9);
  EXPECT_TRUE(request.stream && !request.cuts_max_tokens);
  EXPECT_EQ(request.unknown_fields.text(), R"("of_the_future")");
}

TEST(ParseResponses, TheAnswerRepeatsTheRequest) {
  EXPECT_EQ(dump_json(echo(with(""))),
            R"({"instructions":null,"max_output_tokens":null,"metadata":{},)"
            R"("parallel_tool_calls":true,"reasoning":{"effort":null,"summary":null},)"
            R"("temperature":0.6,"text":{"format":{"type":"text"},"verbosity":"medium"},)"
            R"("tool_choice":"auto","tools":[],"top_p":1})");
  const json::object said = echo(with(R"(, "instructions": "I", "max_output_tokens": 5, "metadata":
      {"a": "b"}, "parallel_tool_calls": false, "reasoning": {"effort": "low", "summary": "auto"},
      "temperature": 0.7, "text": {"format": {"type": "json_object"}}, "top_p": 0.25)"));
  EXPECT_EQ(said.at("instructions"), "I");
  EXPECT_EQ(said.at("max_output_tokens"), 5);
  EXPECT_EQ(said.at("metadata").at("a"), "b");
  EXPECT_EQ(said.at("parallel_tool_calls"), false);
  EXPECT_EQ(said.at("reasoning").at("effort"), "low");
  EXPECT_EQ(said.at("temperature"), 0.7);
  EXPECT_EQ(said.at("text").at("format").at("type"), "json_object");
  EXPECT_EQ(said.at("top_p"), 0.25);
}

struct BadCase {
  const char* fields;
  const char* param;
};

constexpr BadCase kBad[] = {
    {R"("input": 5)", "input"},
    {R"("input": [])", "input"},
    {R"("input": ["Hi"])", "input"},
    {R"("input": [{"content": "Hi"}])", "input[0].role"},
    {R"("input": [{"role": "tool", "content": "Hi"}])", "input[0].role"},
    {R"("input": [{"role": "user"}])", "input[0].content"},
    {R"("input": [{"role": "user", "content": 5}])", "input[0].content"},
    {R"("input": [{"role": "user", "content": ["Hi"]}])", "input[0].content[0]"},
    {R"("input": [{"role": "user", "content": [{"type": "input_text"}]}])",
     "input[0].content[0].text"},
    {R"("input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}])",
     "input[0].content[0].type"},
    {R"("input": [{"type": "item_reference", "id": "msg_1"}])", "input[0].type"},
    {R"("input": [{"type": "web_search_call", "id": "ws_1"}])", "input[0].type"},
    {R"("input": [{"type": "function_call", "name": "f", "arguments": "{}"}])", "input[0].call_id"},
    {R"("input": [{"type": "function_call", "call_id": "c", "arguments": "{}"}])", "input[0].name"},
    {R"("input": [{"type": "function_call", "call_id": "c", "name": "f"}])", "input[0].arguments"},
    {R"("input": [{"type": "function_call_output", "output": ""}])", "input[0].call_id"},
    {R"("input": [{"type": "function_call_output", "call_id": "c"}])", "input[0].output"},
    {R"("input": [{"type": "function_call_output", "call_id": "c", "output":
          [{"type": "input_file"}]}])",
     "input[0].output[0].type"},
    {R"("input": [{"type": "reasoning", "summary": [], "encrypted_content": "gAAAA"}])",
     "input[0].encrypted_content"},
    {R"("input": [{"type": "reasoning", "summary": []}])", "input"},
    {R"("instructions": ["x"])", "instructions"},
    {R"("previous_response_id": "resp_1")", "previous_response_id"},
    {R"("conversation": "conv_1")", "conversation"},
    {R"("background": true)", "background"},
    {R"("prompt": {"id": "pmpt_1"})", "prompt"},
    {R"("store": "yes")", "store"},
    {R"("truncation": "auto")", "truncation"},
    {R"("top_logprobs": 3)", "top_logprobs"},
    {R"("include": "x")", "include"},
    {R"("include": [5])", "include"},
    {R"("include": ["message.output_text.logprobs"])", "include"},
    {R"("metadata": {"a": 5})", "metadata"},
    {R"("max_output_tokens": 0)", "max_output_tokens"},
    {R"("max_output_tokens": 5, "min_tokens": 6)", "min_tokens"},
    {R"("text": {"verbosity": "low"})", "text.verbosity"},
    {R"("text": {"format": {"type": "grammar"}})", "text.format.type"},
    {R"("text": {"format": {"type": "json_schema", "name": "n"}})", "text.format.schema"},
    {R"("text": {"format": {"type": "json_schema", "json_schema": {}}})",
     "text.format.json_schema"},
    {R"("reasoning": {"effort": "some"})", "reasoning.effort"},
    {R"("reasoning": {"summary": "detailed"})", "reasoning.summary"},
    {R"("reasoning": {"max_tokens": 5})", "reasoning.max_tokens"},
    {R"("stream": 1)", "stream"},
    {R"("stream_options": {})", "stream_options"},
    {R"("stream": true, "stream_options": {"include_usage": true})",
     "stream_options.include_usage"},
    {R"("tools": {})", "tools"},
    {R"("tools": [{"name": "f"}])", "tools[0].type"},
    {R"("tools": [{"type": "function"}])", "tools[0].name"},
    {R"("tools": [{"type": "function", "name": "a<b"}])", "tools[0].name"},
    {R"("tools": [{"type": "function", "name": "f", "parameters": {"type": "string"}}])",
     "tools[0].parameters"},
    {R"("tools": [{"type": "function", "name": "f", "strict": 1}])", "tools[0].strict"},
    {R"("tools": [{"type": "function", "name": "f"}, {"type": "function", "name": "f"}])",
     "tools[1].name"},
    {R"("tools": [{"type": "web_search"}])", "tools"},
    {R"("tools": [{"type": "namespace", "name": "n"}])", "tools[0].tools"},
    {R"("tools": [{"type": "namespace", "tools": []}])", "tools[0].name"},
    {R"("tools": [{"type": "namespace", "name": "n", "tools": [{"type": "function"}]}])",
     "tools[0].tools[0].name"},
    {R"("tool_choice": "always")", "tool_choice"},
    {R"("tool_choice": "required")", "tool_choice"},
    {R"("tools": [{"type": "function", "name": "f"}], "tool_choice": {"type": "web_search"})",
     "tool_choice.type"},
    {R"("tools": [{"type": "function", "name": "f"}], "tool_choice": {"type": "function",
          "name": "g"})",
     "tool_choice.name"},
    {R"("messages": [])", "messages"},
    {R"("max_tokens": 5)", "max_tokens"},
    {R"("response_format": {"type": "text"})", "response_format"},
    {R"("n": 2)", "n"},
    {R"("echo": true)", "echo"},
};

TEST(ParseResponses, RefusesBadFieldsByName) {
  for (const BadCase& bad : kBad) {
    const auto request =
        parse_responses(R"({"input": "Hi", )" + std::string(bad.fields) + "}", context());
    ASSERT_FALSE(request.ok()) << bad.fields;
    EXPECT_EQ(request.error().status, 400);
    EXPECT_EQ(request.error().param, bad.param) << bad.fields;
    EXPECT_NE(request.error().message.find(bad.param), std::string::npos);
  }
  EXPECT_EQ(parse_responses("{}", context()).error().param, "input");
}

TEST(ParseResponses, ToolsInsideNamespacesCount) {
  auto few = context();
  few.limits.max_tools = 3;
  const auto body = [](int each) {
    std::string spaces, tools;
    for (int i = 0; i < each; ++i)
      tools += std::string(i > 0 ? "," : "") + R"({"type": "function", "name": "f)" +
               std::to_string(i) + "\"}";
    for (const char* name : {"a", "b"})
      spaces += std::string(spaces.empty() ? "" : ",") + R"({"type": "namespace", "name": ")" +
                name + R"(", "tools": [)" + tools + "]}";
    return with(R"(, "tools": [)" + spaces + "]");
  };
  EXPECT_TRUE(parse_responses(body(1), few).ok());
  EXPECT_EQ(parse_responses(body(2), few).error().param, "tools[1].tools[1].name");
}

}  // namespace
}  // namespace quire::server::responses
