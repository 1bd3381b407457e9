// What `quire replay` reads and sends, and what it makes of the streams of three APIs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "base/error.h"
#include "bench/serve/replay_session.h"
#include "bench/serve/stream.h"

namespace quire::bench {
namespace {

std::string error_of(const std::string& text) {
  std::istringstream file(text);
  try {
    read_session(file, "session");
  } catch (const LoadError& error) {
    return error.what();
  }
  return "";
}

TEST(ReplaySession, ReadsALineARequest) {
  std::istringstream file(
      "{\"path\": \"/v1/messages\", \"body\": {\"max_tokens\": 5}}\n\n"
      "{\"agent\": \"sub\", \"path\": \"/v1/responses\", \"body\": {\"input\": \"Hi\"}}\n");
  const auto turns = read_session(file, "session");
  ASSERT_EQ(turns.size(), 2u);
  EXPECT_EQ(turns[0].agent, "main");
  EXPECT_EQ(turns[1].agent, "sub");
  EXPECT_EQ(turns[1].path, "/v1/responses");
  EXPECT_EQ(turns[1].body.at("input"), "Hi");
}

TEST(ReplaySession, ErrorsNameTheLine) {
  EXPECT_THAT(error_of("\n"), testing::HasSubstr("session: there is no request"));
  EXPECT_THAT(error_of("{\"path\": \"/v1/messages\"}\n{"), testing::HasSubstr("session:2: "));
  EXPECT_THAT(error_of("[]"), testing::HasSubstr("session:1: it is no JSON object"));
  EXPECT_THAT(error_of("{\"path\": \"/v1/embeddings\"}"), testing::HasSubstr("\"path\" must be"));
  EXPECT_THAT(error_of("{\"body\": 1}"), testing::HasSubstr("\"body\" is not known here"));
  EXPECT_THAT(error_of("{\"url\": \"x\"}"), testing::HasSubstr("\"url\""));
}

json::object sent(const char* path, const char* body, const ReplayChange& change) {
  const ReplayTurn turn{"main", path, parse_json(body)->get_object()};
  return parse_json(replayed_body(turn, change))->get_object();
}

TEST(ReplaySession, ChangesWhatIsAskedForAndNothingElse) {
  const ReplayChange change{.model = "m", .max_tokens = 8, .comparable = true, .cache_salt = "s"};
  EXPECT_EQ(
      sent("/v1/chat/completions", R"({"messages": [], "max_completion_tokens": 100})", change),
      parse_json(R"({"messages": [], "max_completion_tokens": 8, "model": "m", "stream": true,
                "stream_options": {"include_usage": true}, "temperature": 0, "logprobs": true,
                "cache_salt": "s"})")
          ->get_object());
  EXPECT_EQ(sent("/v1/messages", R"({"messages": [], "max_tokens": 3, "model": "claude"})", change),
            parse_json(R"({"messages": [], "max_tokens": 3, "model": "m", "stream": true,
                "temperature": 0, "cache_salt": "s"})")
                ->get_object());
  EXPECT_EQ(sent("/v1/responses", R"({"input": "Hi", "temperature": 1})", {.model = "m"}),
            parse_json(R"({"input": "Hi", "temperature": 1, "model": "m", "stream": true})")
                ->get_object());
}

// What the payloads of a stream add up to.
struct Read {
  StreamedAnswer answer;
  int64_t prompt = -1, cached = -1, output = -1, tokens = 0;
  std::string error;
};

Read read(std::initializer_list<const char*> payloads) {
  Read out;
  for (const char* payload : payloads) {
    const StreamChunk chunk = parse_chunk(payload, out.tokens == 0);
    out.answer.append(chunk.answer);
    out.tokens += chunk.is_token ? 1 : 0;
    if (chunk.prompt_tokens >= 0) out.prompt = chunk.prompt_tokens;
    if (chunk.cached_tokens >= 0) out.cached = chunk.cached_tokens;
    if (chunk.completion_tokens >= 0) out.output = chunk.completion_tokens;
    out.error += chunk.error;
  }
  return out;
}

// The same answer in the events of three APIs.
void expect_weather(const Read& read) {
  EXPECT_EQ(read.answer.reasoning, "hm");
  EXPECT_EQ(read.answer.content, "Let me see");
  EXPECT_EQ(read.answer.calls, "\nget_weather {\"city\":\"Paris\"}");
  EXPECT_EQ(read.prompt, 100);
  EXPECT_EQ(read.cached, 64);
  EXPECT_EQ(read.output, 20);
  EXPECT_EQ(read.error, "");
  EXPECT_GE(read.tokens, 5);
}

TEST(ReplayStream, Chats) {
  const Read chat = read({
      R"({"choices":[{"delta":{"role":"assistant","content":""},"finish_reason":null}]})",
      R"({"choices":[{"delta":{"reasoning_content":"hm","reasoning":"hm"},"finish_reason":null}]})",
      R"({"choices":[{"delta":{"content":"Let me"},"logprobs":{"content":[{"token":"Let","logprob":-1.5},
          {"token":" me","logprob":-2}]},"finish_reason":null}]})",
      R"({"choices":[{"delta":{"content":" see"},"finish_reason":null}]})",
      R"({"choices":[{"delta":{"tool_calls":[{"index":0,"id":"x","function":{"name":"get_weather",
          "arguments":""}}]},"finish_reason":null}]})",
      R"({"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"city\":\"Paris\"}"}}]},
          "finish_reason":"tool_calls"}]})",
      R"({"choices":[],"usage":{"prompt_tokens":100,"completion_tokens":20,
          "prompt_tokens_details":{"cached_tokens":64}}})",
      "[DONE]",
  });
  expect_weather(chat);
  EXPECT_EQ(chat.answer.finish, "tool_calls");
  EXPECT_EQ(std::ranges::count(chat.answer.logprobs, '\n'), 2);
}

TEST(ReplayStream, CompletionsLogprobsDoNotDependOnTheChunks) {
  const Read one = read(
      {R"({"choices":[{"text":"ab","logprobs":{"tokens":["a","b"],"token_logprobs":[-1,-2]}}]})"});
  const Read two =
      read({R"({"choices":[{"text":"a","logprobs":{"tokens":["a"],"token_logprobs":[-1]}}]})",
            R"({"choices":[{"text":"b","logprobs":{"tokens":["b"],"token_logprobs":[-2]}}]})"});
  EXPECT_EQ(one.answer, two.answer);
  EXPECT_NE(one.answer.logprobs, "");
}

TEST(ReplayStream, Messages) {
  const Read message = read({
      R"({"type":"message_start","message":{"usage":{"input_tokens":36,"cache_read_input_tokens":64,
          "cache_creation_input_tokens":0,"output_tokens":1}}})",
      R"({"type":"ping"})",
      R"({"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":""}})",
      R"({"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}})",
      R"({"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"x"}})",
      R"({"type":"content_block_stop","index":0})",
      R"({"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"Let me"}})",
      R"({"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":" see"}})",
      R"({"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"x",
          "name":"get_weather","input":{}}})",
      R"({"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta",
          "partial_json":"{\"city\":\"Paris\"}"}})",
      R"({"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":20}})",
      R"({"type":"message_stop"})",
  });
  expect_weather(message);
  EXPECT_EQ(message.answer.finish, "tool_use");
  EXPECT_NE(read({R"({"type":"error","error":{"type":"overloaded_error","message":"m"}})"}).error,
            "");
}

TEST(ReplayStream, Responses) {
  const Read response = read({
      R"({"type":"response.created","response":{"status":"in_progress","error":null,"usage":null}})",
      R"({"type":"response.reasoning_text.delta","delta":"hm"})",
      R"({"type":"response.reasoning_text.done","text":"hm"})",
      R"({"type":"response.output_text.delta","delta":"Let me"})",
      R"({"type":"response.output_text.delta","delta":" see"})",
      R"({"type":"response.output_text.done","text":"Let me see"})",
      R"({"type":"response.output_item.added","item":{"type":"function_call","name":"get_weather"}})",
      R"({"type":"response.function_call_arguments.delta","delta":"{\"city\":\"Paris\"}"})",
      R"({"type":"response.output_item.done","item":{"type":"function_call","name":"get_weather"}})",
      R"({"type":"response.completed","response":{"status":"completed","error":null,"usage":
          {"input_tokens":100,"input_tokens_details":{"cached_tokens":64},"output_tokens":20}}})",
  });
  expect_weather(response);
  EXPECT_EQ(response.answer.finish, "completed");
  EXPECT_NE(read({R"({"type":"response.failed","response":{"status":"failed","error":
      {"code":"server_error","message":"m"}}})"})
                .error,
            "");
}

}  // namespace
}  // namespace quire::bench
