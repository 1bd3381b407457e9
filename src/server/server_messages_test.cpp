// Anthropic's Messages API over real sockets, with a scripted engine.
#include <algorithm>

#include "server/test_server.h"

namespace quire::server {
namespace {

// As Qwen3's: shows tools, and opens the reasoning if that is wanted.
constexpr const char* kTemplate =
    "{% if tools %}<tools>{{ tools | tojson }}</tools> in <tool_call></tool_call>\n{% endif %}"
    "{% for m in messages %}<{{ m.role }}>{{ m.reasoning_content }}{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function.arguments }}{% endfor %}\n"
    "{% endfor %}{% if add_generation_prompt %}<assistant>"
    "{% if enable_thinking %}<think>\n{% endif %}{% endif %}";
const std::string kTools =
    R"("tools": [{"name": "add", "input_schema": {"type": "object",
       "properties": {"a": {"type": "integer"}}}}])";
const std::string kCall =
    "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 7}}\n</tool_call>";

// The data of a stream's events, whose names must be their types.
std::vector<json::value> events_of(const ClientResponse& response) {
  std::vector<json::value> events;
  std::string_view rest = response.body;
  while (!rest.empty()) {
    const size_t end = rest.find("\n\n");
    const std::string_view event = rest.substr(0, end);
    const size_t line = event.find('\n');
    EXPECT_TRUE(event.starts_with("event: ")) << event;
    events.push_back(parse_json(event.substr(line + sizeof "data: ")).value());
    EXPECT_EQ(events.back().at("type").as_string(), std::string(event.substr(7, line - 7)));
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 2);
  }
  return events;
}

// Puts the message together as Anthropic's clients do, and checks the order of the events.
json::value joined(const ClientResponse& response) {
  json::value message;
  json::array blocks;
  std::string partial;
  int64_t open = -1;
  for (const json::value& event : events_of(response)) {
    const std::string type = event.at("type").as_string().c_str();
    if (type == "message_start") {
      EXPECT_TRUE(message.is_null());
      message = event.at("message");
    } else if (type == "content_block_start") {
      EXPECT_EQ(open, -1);
      open = event.at("index").as_int64();
      EXPECT_EQ(open, static_cast<int64_t>(blocks.size()));
      blocks.push_back(event.at("content_block"));
      partial.clear();
    } else if (type == "content_block_delta") {
      EXPECT_EQ(event.at("index").as_int64(), open);
      const json::object& delta = event.at("delta").as_object();
      json::object& block = blocks.back().as_object();
      const std::string kind = delta.at("type").as_string().c_str();
      if (kind == "input_json_delta") {
        partial += delta.at("partial_json").as_string().c_str();
        continue;
      }
      const std::string key = kind.substr(0, kind.find('_'));
      block.at(key).as_string() += delta.at(key).as_string();
    } else if (type == "content_block_stop") {
      if (!partial.empty()) blocks.back().as_object()["input"] = parse_json(partial).value();
      EXPECT_EQ(std::exchange(open, -1), event.at("index").as_int64());
    } else if (type == "message_delta") {
      EXPECT_EQ(open, -1);
      for (const auto& entry : event.at("delta").as_object())
        message.as_object()[entry.key()] = entry.value();
      message.as_object()["usage"] = event.at("usage");
    }
  }
  message.as_object()["content"] = blocks;
  return message;
}

int64_t prompt_tokens(const json::value& message) {
  const json::value& usage = message.at("usage");
  return usage.at("input_tokens").as_int64() + usage.at("cache_read_input_tokens").as_int64();
}

// Without what differs from one answer to the next.
std::string without_ids(json::value message) {
  message.as_object().erase("id");
  for (json::value& block : message.at("content").as_array()) block.as_object().erase("id");
  return dump_json(message);
}

class ServerMessages : public ServerTest {
 protected:
  void start_with(const std::string& says, const Change& more = {}) {
    ModelText text = model_text();
    text.chat_template = *text::ChatTemplate::parse(kTemplate, {});
    start(
        [&](FakeEngine::Script& script, ServerOptions& options) {
          script.tokens = encode(says);
          script.tokens.push_back(315);
          if (more) more(script, options);
        },
        text);
  }
  ClientResponse message(const std::string& fields, const std::string& path = "/v1/messages",
                         const std::string& headers = "") {
    return post(path,
                R"({"model": "tiny", "max_tokens": 300,
                    "messages": [{"role": "user", "content": "Hi"}], )" +
                    fields + "}",
                headers);
  }
  // The whole message, which is the same streamed.
  json::value ask(const std::string& fields) {
    const ClientResponse whole = message(fields);
    EXPECT_EQ(whole.status, 200) << whole.body;
    json::value answer = whole.json();
    EXPECT_TRUE(answer.at("id").as_string().starts_with("msg_"));
    EXPECT_EQ(whole.headers.at("request-id"), whole.headers.at("x-request-id"));
    const ClientResponse streamed = message(fields + R"(, "stream": true)");
    EXPECT_EQ(streamed.status, 200) << streamed.body;
    EXPECT_EQ(without_ids(joined(streamed)), without_ids(answer));
    return answer;
  }
};

TEST_F(ServerMessages, TextAndUsage) {
  start_with("Yes, ünïcödé.");
  const json::value answer = ask(R"("temperature": 0)");
  EXPECT_EQ(dump_json(answer.at("content")), R"([{"type":"text","text":"Yes, ünïcödé."}])");
  EXPECT_EQ(answer.at("type"), "message");
  EXPECT_EQ(answer.at("role"), "assistant");
  EXPECT_EQ(answer.at("model"), "tiny");
  EXPECT_EQ(answer.at("stop_reason"), "end_turn");
  EXPECT_TRUE(answer.at("stop_sequence").is_null());
  const auto prompt = static_cast<int64_t>(encode("<user>Hi<assistant>").size());
  EXPECT_EQ(prompt_tokens(answer), prompt);
  EXPECT_EQ(answer.at("usage").at("cache_read_input_tokens").as_int64(), 1);  // the engine's word
  EXPECT_EQ(answer.at("usage").at("output_tokens").as_int64(),
            static_cast<int64_t>(encode("Yes, ünïcödé.").size()) + 1);
}

TEST_F(ServerMessages, TheStreamHasAnthropicsEvents) {
  start_with("Yes");
  const auto response = message(R"("stream": true)");
  std::vector<std::string> types;
  for (const auto& event : events_of(response)) {
    const std::string type = event.at("type").as_string().c_str();
    if (types.empty() || types.back() != type) types.push_back(type);
  }
  EXPECT_EQ(types, (std::vector<std::string>{"message_start", "ping", "content_block_start",
                                             "content_block_delta", "content_block_stop",
                                             "message_delta", "message_stop"}));
  EXPECT_TRUE(response.headers.at("content-type").starts_with("text/event-stream"));
}

TEST_F(ServerMessages, CallsAreToolUse) {
  start_with("Sure.\n" + kCall + "\n" + kCall);
  const json::value answer = ask(kTools);
  const json::array& content = answer.at("content").as_array();
  ASSERT_EQ(content.size(), 3u);
  EXPECT_EQ(content[0].at("text"), "Sure.");
  for (const size_t i : {1, 2}) {
    EXPECT_EQ(content[i].at("type"), "tool_use");
    EXPECT_EQ(content[i].at("name"), "add");
    EXPECT_EQ(dump_json(content[i].at("input")), R"({"a":7})");
  }
  EXPECT_NE(content[1].at("id"), content[2].at("id"));
  EXPECT_EQ(answer.at("stop_reason"), "tool_use");
  const std::string one = R"(, "tool_choice": {"type": "auto", "disable_parallel_tool_use": true})";
  EXPECT_EQ(ask(kTools + one).at("content").as_array().size(), 2u);
  EXPECT_EQ(ask(kTools + R"(, "tool_choice": {"type": "none"})").at("stop_reason"), "end_turn");
}

TEST_F(ServerMessages, ThinkingHasASignature) {
  start_with("hm\n</think>\n\nYes");
  const std::string fields = R"("thinking": {"type": "enabled", "budget_tokens": 1024})";
  const json::value answer = ask(fields);
  const json::array& content = answer.at("content").as_array();
  ASSERT_EQ(content.size(), 2u);
  EXPECT_EQ(content[0].at("type"), "thinking");
  EXPECT_EQ(content[0].at("thinking"), "hm");
  EXPECT_FALSE(content[0].at("signature").as_string().empty());
  EXPECT_EQ(content[1].at("text"), "Yes");
}

TEST_F(ServerMessages, WhatEndedTheAnswerIsTold) {
  start_with(std::string(600, 'a') + " STOP");
  EXPECT_EQ(ask(R"("max_tokens": 5)").at("stop_reason"), "max_tokens");
  // The OpenAI paths refuse this.
  const json::value cut = ask(R"("max_tokens": 32000)");
  EXPECT_EQ(cut.at("stop_reason"), "model_context_window_exceeded");
  EXPECT_EQ(prompt_tokens(cut) + cut.at("usage").at("output_tokens").as_int64(),
            engine_->max_model_len());
  EXPECT_EQ(chat(R"("max_tokens": 32000)").status, 400);
  TearDown();
  start_with("Yes STOP no");
  const json::value stopped = ask(R"("stop_sequences": ["STOP"])");
  EXPECT_EQ(stopped.at("stop_reason"), "stop_sequence");
  EXPECT_EQ(stopped.at("stop_sequence"), "STOP");
  EXPECT_EQ(stopped.at("content").at(0).at("text"), "Yes ");
}

TEST_F(ServerMessages, AnEmptyAnswerHasAnEmptyText) {
  start_with("");
  EXPECT_EQ(dump_json(ask(R"("temperature": 0)").at("content")), R"([{"type":"text","text":""}])");
}

TEST_F(ServerMessages, APromptIsThatOfTheSameChat) {
  start_with("Yes");
  const auto prompt = [&](const std::string& path, const std::string& fields) {
    const auto response = post(path, "{\"max_tokens\": 1, " + fields + "}");
    EXPECT_EQ(response.status, 200) << response.body;
    return engine_->last_prompt();
  };
  EXPECT_EQ(prompt("/v1/messages", R"("system": [{"type": "text", "text":
          "x-anthropic-billing-header: cch=12345;"}, {"type": "text", "text": "S"}],
          "messages": [{"role": "user", "content": "U"},
          {"role": "assistant", "content": [{"type": "thinking", "thinking": "T", "signature": ""},
           {"type": "tool_use", "id": "1", "name": "add", "input": {"a": 1}}]},
          {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1",
           "content": "R"}]}])"),
            prompt("/v1/chat/completions", R"("messages": [{"role": "system", "content": "S"},
          {"role": "user", "content": "U"},
          {"role": "assistant", "reasoning": "T", "tool_calls": [{"id": "1", "type": "function",
           "function": {"name": "add", "arguments": "{\"a\": 1}"}}]},
          {"role": "tool", "tool_call_id": "1", "content": "R"}])"));
}

TEST_F(ServerMessages, TokensAreCountedAsTheyAreUsed) {
  start_with("Yes");
  const auto counted = post("/v1/messages/count_tokens",
                            R"({"model": "tiny", "messages": [{"role": "user", "content": "Hi"}],
                                "thinking": {"type": "enabled", "budget_tokens": 1024}, )" +
                                kTools + "}");
  ASSERT_EQ(counted.status, 200) << counted.body;
  const json::value used =
      ask(R"("thinking": {"type": "enabled", "budget_tokens": 1024}, )" + kTools);
  EXPECT_EQ(counted.json().at("input_tokens").as_int64(), prompt_tokens(used));
  EXPECT_EQ(engine_->num_submitted(), 2u);  // by ask()
}

// {"type": "error", "error": {"type", "message"}, "request_id"}
std::string error_type(const ClientResponse& response) {
  const json::value body = response.json();
  EXPECT_EQ(body.at("type"), "error") << response.body;
  EXPECT_FALSE(body.at("error").at("message").as_string().empty());
  EXPECT_TRUE(body.as_object().contains("request_id"));
  return body.at("error").at("type").as_string().c_str();
}

TEST_F(ServerMessages, ErrorsHaveAnthropicsForm) {
  start_with("Yes", [](FakeEngine::Script&, ServerOptions& options) {
    options.api_keys = {"secret"};
    options.http.max_body_bytes = 100'000;
  });
  const std::string key = "X-Api-Key: secret\r\n";
  EXPECT_EQ(message(R"("top_k": 5)", "/v1/messages", key).status, 200);
  EXPECT_EQ(message(R"("top_k": 5)", "/v1/messages", "Authorization: Bearer secret\r\n").status,
            200);
  const auto expect = [&](const ClientResponse& response, int status, const std::string& type) {
    ASSERT_EQ(response.status, status) << response.body;
    EXPECT_EQ(error_type(response), type);
    EXPECT_EQ(response.json().at("request_id").as_string(), response.headers.at("x-request-id"));
    EXPECT_EQ(response.headers.at("request-id"), response.headers.at("x-request-id"));
  };
  expect(message(R"("top_k": 5)"), 401, "authentication_error");
  expect(message(R"("top_k": "x")", "/v1/messages", key), 400, "invalid_request_error");
  expect(message(R"("model": "other")", "/v1/messages", key), 404, "not_found_error");
  expect(message(R"("top_k": "x")", "/v1/messages/count_tokens", key), 400,
         "invalid_request_error");
  expect(message(R"("system": ")" + std::string(200'000, 'x') + "\"", "/v1/messages", key), 413,
         "request_too_large");
  expect(TestClient(port_).get("/v1/messages", key), 405, "invalid_request_error");
  const auto long_prompt =
      message(R"("system": ")" + std::string(5000, 'x') + "\"", "/v1/messages", key);
  expect(long_prompt, 400, "invalid_request_error");
  EXPECT_NE(long_prompt.body.find("prompt is too long"), std::string::npos);
  engine_->refuse_with({engine::RequestError::Kind::kOverloaded, "busy", "", 7});
  const auto busy = message(R"("top_k": 5)", "/v1/messages", key);
  expect(busy, 429, "rate_limit_error");
  EXPECT_EQ(busy.headers.at("retry-after"), "7");
}

TEST_F(ServerMessages, AStreamThatFailsEndsWithAnErrorEvent) {
  start_with("Once upon a time",
             [](FakeEngine::Script& script, ServerOptions&) { script.fail_after = 3; });
  const auto events = events_of(message(R"("stream": true)"));
  ASSERT_GT(events.size(), 2u);
  EXPECT_EQ(events.front().at("type"), "message_start");
  EXPECT_EQ(events.back().at("type"), "error");
  EXPECT_EQ(events.back().at("error").at("type"), "api_error");
}

TEST_F(ServerMessages, ThinkingIsLeftOutWhereATemplateHasNoSwitch) {
  ModelText text = model_text();
  text.chat_template =
      *text::ChatTemplate::parse("{% for m in messages %}{{ m.content }}{% endfor %}", {});
  start({}, text);
  for (const char* type : {R"("enabled", "budget_tokens": 5)", R"("disabled")", R"("adaptive")"}) {
    const auto response = message(R"("output_config": {"effort": "high"}, "thinking": {"type": )" +
                                  std::string(type) + "}");
    EXPECT_EQ(response.status, 200) << response.body;
  }
}

}  // namespace
}  // namespace quire::server
