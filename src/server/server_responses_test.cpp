// OpenAI's Responses API over real sockets, with a scripted engine.
#include <algorithm>

#include "server/test_server.h"

namespace quire::server {
namespace {

// As Qwen3's: shows tools, opens the reasoning if that is wanted, and allows no system text but the
// first.
constexpr const char* kTemplate =
    "{% if tools %}<tools>{{ tools | tojson }}</tools> in <tool_call></tool_call>\n{% endif %}"
    "{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
    "{{ raise_exception('System message must be at the beginning') }}{% endif %}"
    "<{{ m.role }}>{{ m.reasoning_content }}{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function.arguments }}{% endfor %}\n"
    "{% endfor %}{% if add_generation_prompt %}<assistant>"
    "{% if enable_thinking is not defined or enable_thinking %}<think>\n{% endif %}{% endif %}";
const std::string kTools =
    R"("tools": [{"type": "function", "name": "add", "parameters": {"type": "object",
       "properties": {"a": {"type": "integer"}}}}])";
const std::string kNoThoughts = R"("reasoning": {"effort": "none"})";

std::string call_text(const std::string& name) {
  return "<tool_call>\n{\"name\": \"" + name + "\", \"arguments\": {\"a\": 7}}\n</tool_call>";
}

// The data of a stream's events, whose names must be their types and whose numbers must follow.
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
    EXPECT_EQ(events.back().at("sequence_number").as_int64() + 1,
              static_cast<int64_t>(events.size()));
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 2);
  }
  return events;
}

// Items as a client puts them together from the events about their parts.
class Joiner {
 public:
  void take(const json::value& event) {
    const std::string type = event.at("type").as_string().c_str();
    if (type == "response.output_item.added") {
      EXPECT_FALSE(open_);
      open_ = true;
      items_.push_back(event.at("item"));
      EXPECT_EQ(items_.back().at("status"), "in_progress");
    } else if (type == "response.content_part.added") {
      items_.back().at("content").as_array().push_back(event.at("part"));
    } else if (type.ends_with(".delta")) {
      text_of(items_.back()) += event.at("delta").as_string();
    } else if (type == "response.output_item.done") {
      EXPECT_TRUE(std::exchange(open_, false));
      items_.back().as_object()["status"] = event.at("item").at("status");
      if (const auto* sealed = event.at("item").as_object().if_contains("encrypted_content"))
        items_.back().as_object()["encrypted_content"] = *sealed;
      EXPECT_EQ(dump_json(items_.back()), dump_json(event.at("item")));
      return;
    } else if (type.ends_with("_text.done")) {
      EXPECT_EQ(event.at("text").as_string(), text_of(items_.back()));
    } else if (type == "response.content_part.done") {
      EXPECT_EQ(dump_json(event.at("part")), dump_json(items_.back().at("content").at(0)));
    } else if (type == "response.function_call_arguments.done") {
      EXPECT_EQ(event.at("arguments").as_string(), text_of(items_.back()));
    } else {
      return;
    }
    if (const auto* about = event.as_object().if_contains("item_id")) {
      EXPECT_EQ(about->as_string(), items_.back().at("id").as_string());
    }
    EXPECT_EQ(event.at("output_index").as_int64() + 1, static_cast<int64_t>(items_.size()));
  }
  const json::array& items() const { return items_; }

 private:
  static json::string& text_of(json::value& item) {
    if (item.at("type") == "function_call") return item.at("arguments").as_string();
    return item.at("content").at(0).at("text").as_string();
  }

  json::array items_;
  bool open_ = false;
};

// The response that a stream ends with, which must be what its events have said.
json::value joined(const ClientResponse& response) {
  const auto events = events_of(response);
  EXPECT_GE(events.size(), 3u);
  EXPECT_EQ(events[0].at("type"), "response.created");
  EXPECT_EQ(events[1].at("type"), "response.in_progress");
  Joiner joiner;
  for (const json::value& event : events) joiner.take(event);
  const json::value& last = events.back();
  const json::value& answer = last.at("response");
  EXPECT_EQ(last.at("type").as_string(),
            "response." + std::string(answer.at("status").as_string()));
  EXPECT_EQ(dump_json(answer.at("output")), dump_json(joiner.items()));
  for (const size_t i : {0, 1}) {
    EXPECT_EQ(events[i].at("response").at("id"), answer.at("id"));
    EXPECT_EQ(events[i].at("response").at("status"), "in_progress");
    EXPECT_TRUE(events[i].at("response").at("output").as_array().empty());
  }
  return answer;
}

// Without what differs from one answer to the next.
std::string timeless(json::value answer) {
  for (const char* key : {"id", "created_at", "completed_at"}) answer.as_object().erase(key);
  for (json::value& item : answer.at("output").as_array())
    for (const char* key : {"id", "call_id"}) item.as_object().erase(key);
  return dump_json(answer);
}

class ServerResponses : public ServerTest {
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
  ClientResponse response(const std::string& fields, const std::string& headers = "") {
    return post("/v1/responses", R"({"model": "tiny", "input": "Hi", )" + fields + "}", headers);
  }
  // The whole response, which is the same streamed.
  json::value ask(const std::string& fields) {
    const ClientResponse whole = response(fields);
    EXPECT_EQ(whole.status, 200) << whole.body;
    json::value answer = whole.json();
    EXPECT_TRUE(answer.at("id").as_string().starts_with("resp_"));
    const ClientResponse streamed = response(fields + R"(, "stream": true)");
    EXPECT_EQ(streamed.status, 200) << streamed.body;
    EXPECT_EQ(timeless(joined(streamed)), timeless(answer));
    return answer;
  }
  std::vector<int32_t> prompt_of(const std::string& path, const std::string& body) {
    const auto response = post(path, body);
    EXPECT_EQ(response.status, 200) << response.body;
    return engine_->last_prompt();
  }
};

TEST_F(ServerResponses, TextAndUsage) {
  start_with("Yes, ünïcödé.");
  const json::value answer = ask(kNoThoughts + R"(, "instructions": "Be \"brief\".")");
  EXPECT_EQ(answer.at("object"), "response");
  EXPECT_EQ(answer.at("status"), "completed");
  EXPECT_EQ(answer.at("model"), "tiny");
  EXPECT_EQ(answer.at("store"), false);
  EXPECT_TRUE(answer.at("error").is_null() && answer.at("incomplete_details").is_null());
  EXPECT_GE(answer.at("completed_at").as_int64(), answer.at("created_at").as_int64());
  EXPECT_EQ(answer.at("instructions"), "Be \"brief\".");
  const json::array& output = answer.at("output").as_array();
  ASSERT_EQ(output.size(), 1u);
  EXPECT_TRUE(output[0].at("id").as_string().starts_with("msg_"));
  EXPECT_EQ(output[0].at("role"), "assistant");
  EXPECT_EQ(dump_json(output[0].at("content")),
            R"([{"type":"output_text","annotations":[],"logprobs":[],"text":"Yes, ünïcödé."}])");
  const json::value& usage = answer.at("usage");
  const auto prompt =
      static_cast<int64_t>(encode("<system>Be \"brief\".<user>Hi<assistant>").size());
  const auto said = static_cast<int64_t>(encode("Yes, ünïcödé.").size()) + 1;
  EXPECT_EQ(usage.at("input_tokens").as_int64(), prompt);
  EXPECT_EQ(usage.at("output_tokens").as_int64(), said);
  EXPECT_EQ(usage.at("total_tokens").as_int64(), prompt + said);
  EXPECT_EQ(usage.at("input_tokens_details").at("cached_tokens").as_int64(),
            1);  // the engine's word
  EXPECT_EQ(usage.at("output_tokens_details").at("reasoning_tokens").as_int64(), 0);
}

TEST_F(ServerResponses, TheStreamHasOpenAisEvents) {
  start_with("hm\n</think>\n\nYes");
  std::vector<std::string> types;
  const auto streamed = response(R"("stream": true)");
  for (const auto& event : events_of(streamed)) {
    const std::string type = event.at("type").as_string().c_str();
    if (types.empty() || types.back() != type) types.push_back(type);
  }
  EXPECT_EQ(types, (std::vector<std::string>{
                       "response.created", "response.in_progress", "response.output_item.added",
                       "response.content_part.added", "response.reasoning_text.delta",
                       "response.reasoning_text.done", "response.content_part.done",
                       "response.output_item.done", "response.output_item.added",
                       "response.content_part.added", "response.output_text.delta",
                       "response.output_text.done", "response.content_part.done",
                       "response.output_item.done", "response.completed"}));
  EXPECT_TRUE(streamed.headers.at("content-type").starts_with("text/event-stream"));
}

TEST_F(ServerResponses, ReasoningIsTextAndSealedIfThatIsWanted) {
  start_with("hm\n</think>\n\nYes");
  const json::value plain = ask(R"("temperature": 0)");
  ASSERT_EQ(plain.at("output").as_array().size(), 2u);
  const json::object& thought = plain.at("output").at(0).as_object();
  EXPECT_EQ(thought.at("type"), "reasoning");
  EXPECT_EQ(dump_json(thought.at("content")), R"([{"type":"reasoning_text","text":"hm"}])");
  EXPECT_TRUE(thought.at("summary").as_array().empty());
  EXPECT_FALSE(thought.contains("encrypted_content"));
  EXPECT_GT(plain.at("usage").at("output_tokens_details").at("reasoning_tokens").as_int64(), 0);
  const json::value sealed = ask(R"("include": ["reasoning.encrypted_content"])");
  // The next turn's prompt is the same, whichever of the two comes back.
  const auto next = [&](const json::value& member) {
    return prompt_of("/v1/responses",
                     R"({"max_output_tokens": 1, "input": [{"type": "reasoning", "summary": [], )" +
                         dump_json(member).substr(1) + "]}");
  };
  const json::object& item = sealed.at("output").at(0).as_object();
  EXPECT_EQ(next(json::object{{"encrypted_content", item.at("encrypted_content")}}),
            next(json::object{{"content", item.at("content")}}));
}

TEST_F(ServerResponses, CallsAreItems) {
  start_with("Sure.\n" + call_text("add") + "\n" + call_text("add"));
  const json::value answer = ask(kNoThoughts + ", " + kTools);
  const json::array& output = answer.at("output").as_array();
  ASSERT_EQ(output.size(), 3u);
  EXPECT_EQ(output[0].at("content").at(0).at("text"), "Sure.");
  for (const size_t i : {1, 2}) {
    EXPECT_EQ(output[i].at("type"), "function_call");
    EXPECT_EQ(output[i].at("name"), "add");
    EXPECT_EQ(output[i].at("arguments"), R"({"a": 7})");
    EXPECT_FALSE(output[i].as_object().contains("namespace"));
  }
  EXPECT_NE(output[1].at("call_id"), output[2].at("call_id"));
  EXPECT_NE(output[1].at("id"), output[1].at("call_id"));
  EXPECT_EQ(answer.at("status"), "completed");
  EXPECT_EQ(answer.at("tools").at(0).at("name"), "add");
  const auto calls_with = [&](const std::string& fields) {
    const json::value other = ask(kNoThoughts + ", " + kTools + ", " + fields);
    return std::ranges::count_if(other.at("output").as_array(), [](const json::value& item) {
      return item.at("type") == "function_call";
    });
  };
  EXPECT_EQ(calls_with(R"("parallel_tool_calls": false)"), 1);
  EXPECT_EQ(calls_with(R"("tool_choice": "none")"), 0);
}

TEST_F(ServerResponses, AFunctionOfANamespaceIsCalledThere) {
  start_with(call_text("mcp__box__open"));
  const json::value answer =
      ask(kNoThoughts + R"(, "tools": [{"type": "web_search"}, {"type": "namespace",
          "name": "mcp__box", "tools": [{"type": "function", "name": "open"}]}])");
  const json::value& call = answer.at("output").at(0);
  EXPECT_EQ(call.at("name"), "open");
  EXPECT_EQ(call.at("namespace"), "mcp__box");
}

TEST_F(ServerResponses, WhatEndedTheAnswerIsTold) {
  start_with(std::string(600, 'a'));
  const json::value cut = ask(kNoThoughts + R"(, "max_output_tokens": 5)");
  EXPECT_EQ(cut.at("status"), "incomplete");
  EXPECT_EQ(cut.at("incomplete_details").at("reason"), "max_output_tokens");
  EXPECT_EQ(cut.at("output").at(0).at("status"), "incomplete");
  EXPECT_TRUE(cut.at("completed_at").is_null());
  EXPECT_EQ(ask(kNoThoughts).at("status"), "incomplete");  // the context is full
  const auto too_many = response(R"("max_output_tokens": 32000)");
  EXPECT_EQ(too_many.status, 400);
  EXPECT_EQ(too_many.json().at("error").at("param"), "max_output_tokens");
  EXPECT_EQ(too_many.json().at("error").at("code"), "context_length_exceeded");
}

TEST_F(ServerResponses, AnEmptyAnswerHasAnEmptyText) {
  start_with("");
  const json::value answer = ask(kNoThoughts);
  ASSERT_EQ(answer.at("output").as_array().size(), 1u);
  EXPECT_EQ(answer.at("output").at(0).at("content").at(0).at("text"), "");
}

TEST_F(ServerResponses, APromptIsThatOfTheSameChat) {
  start_with("Yes");
  EXPECT_EQ(prompt_of("/v1/responses", R"({"max_output_tokens": 1, "instructions": "S",
          "input": [{"role": "user", "content": "U"},
          {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "T"}]},
          {"type": "function_call", "call_id": "1", "name": "add", "arguments": "{\"a\": 1}"},
          {"type": "function_call_output", "call_id": "1", "output": "R"}]})"),
            prompt_of("/v1/chat/completions", R"({"max_tokens": 1, "messages": [
          {"role": "system", "content": "S"}, {"role": "user", "content": "U"},
          {"role": "assistant", "reasoning": "T", "tool_calls": [{"id": "1", "type": "function",
           "function": {"name": "add", "arguments": "{\"a\": 1}"}}]},
          {"role": "tool", "tool_call_id": "1", "content": "R"}]})"));
}

// Agents put developer messages anywhere; some templates raise then.
TEST_F(ServerResponses, SystemTextsGoWhereTheTemplateAllowsThem) {
  start_with("Yes");
  const std::string expected = "<system>A\nB<user>x\nC<assistant><think>\n";
  EXPECT_EQ(prompt_of("/v1/responses", R"({"max_output_tokens": 1, "instructions": "A", "input": [
          {"role": "developer", "content": "B"}, {"role": "user", "content": "x"},
          {"role": "developer", "content": "C"}]})"),
            encode(expected));
  EXPECT_EQ(prompt_of("/v1/chat/completions", R"({"max_tokens": 1, "messages": [
          {"role": "system", "content": "A\nB"}, {"role": "user", "content": "x"},
          {"role": "system", "content": "C"}]})"),
            encode(expected));
}

TEST_F(ServerResponses, ErrorsBeforeTheStreamHaveOpenAisForm) {
  start_with("Yes", [](FakeEngine::Script&, ServerOptions& options) {
    options.api_keys = {"secret"};
    options.http.max_body_bytes = 100'000;
  });
  const std::string key = "Authorization: Bearer secret\r\n";
  EXPECT_EQ(response(R"("top_k": 5)", key).status, 200);
  const auto expect = [&](const ClientResponse& answer, int status, const std::string& param,
                          const std::string& code) {
    ASSERT_EQ(answer.status, status) << answer.body;
    const json::value error = answer.json().at("error");
    EXPECT_FALSE(error.at("message").as_string().empty());
    EXPECT_EQ(param, error.at("param").is_null() ? "" : error.at("param").as_string().c_str());
    EXPECT_EQ(code, error.at("code").is_null() ? "" : error.at("code").as_string().c_str());
  };
  expect(response(R"("top_k": 5)"), 401, "", "invalid_api_key");
  expect(response(R"("stream": true, "top_k": "x")", key), 400, "top_k", "invalid_type");
  expect(response(R"("previous_response_id": "resp_1")", key), 400, "previous_response_id",
         "unsupported_parameter");
  expect(response(R"("model": "other")", key), 404, "model", "model_not_found");
  expect(response(R"("instructions": ")" + std::string(5000, 'x') + "\"", key), 400, "input",
         "context_length_exceeded");
  expect(response(R"("instructions": ")" + std::string(200'000, 'x') + "\"", key), 413, "", "");
  engine_->refuse_with({engine::RequestError::Kind::kOverloaded, "busy", "", 7});
  const auto busy = response(R"("stream": true)", key);
  expect(busy, 429, "", "rate_limit_exceeded");
  EXPECT_EQ(busy.headers.at("retry-after"), "7");
}

TEST_F(ServerResponses, AStreamThatFailsSaysSo) {
  start_with("Once upon a time",
             [](FakeEngine::Script& script, ServerOptions&) { script.fail_after = 3; });
  const auto events = events_of(response(kNoThoughts + R"(, "stream": true)"));
  ASSERT_GT(events.size(), 2u);
  EXPECT_EQ(events.front().at("type"), "response.created");
  const json::value& last = events.back();
  EXPECT_EQ(last.at("type"), "response.failed");
  EXPECT_EQ(last.at("response").at("status"), "failed");
  EXPECT_EQ(last.at("response").at("error").at("code"), "server_error");
  EXPECT_EQ(last.at("response").at("output").at(0).at("status"), "incomplete");
}

// A client need not wait for the prompt to know that its request is at work.
TEST_F(ServerResponses, AStreamBeginsAtOnce) {
  start_with("Yes");
  engine_->pause(true);
  TestClient client(port_);
  client.send(TestClient::post_text("/v1/responses", R"({"input": "Hi", "stream": true})"));
  EXPECT_TRUE(client.read_until("event: response.in_progress"));
  engine_->pause(false);
  EXPECT_TRUE(client.read_until("event: response.completed"));
}

TEST_F(ServerResponses, WhatTheAnswerRepeatsIsCharged) {
  start_with("Yes");
  engine_->pause(true);
  const double before = held("prompts");
  TestClient client(port_);
  const std::string padding(60'000, 'x');
  client.send(TestClient::post_text("/v1/responses",
                                    R"({"input": "Hi", "tools": [{"type": "function", "name": "add",
                        "parameters": {"type": "object", "x-note": ")" +
                                        padding + R"("}}], "tool_choice": "none"})"));
  ASSERT_TRUE(engine_->wait_for([&] { return engine_->num_submitted() == 1; }));
  EXPECT_GT(held("prompts"), before + 100'000);
  engine_->pause(false);
}

TEST_F(ServerResponses, EffortsAreLeftOutWhereATemplateHasNone) {
  ModelText text = model_text();
  text.chat_template =
      *text::ChatTemplate::parse("{% for m in messages %}{{ m.content }}{% endfor %}", {});
  start({}, text);
  for (const char* effort : {"none", "minimal", "high"}) {
    const auto answer =
        response(R"("reasoning": {"summary": "auto", "effort": ")" + std::string(effort) + "\"}");
    EXPECT_EQ(answer.status, 200) << answer.body;
  }
}

}  // namespace
}  // namespace quire::server
