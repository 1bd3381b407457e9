// The whole server over real sockets, with a scripted engine: headers, ids, the access log.
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>

#include <ctime>
#include <mutex>

#include "server/test_server.h"

namespace quire::server {
namespace {

// Keeps the lines of the log while it lives.
class LogLines : public spdlog::sinks::base_sink<std::mutex> {
 public:
  std::string all() {
    const std::scoped_lock lock(mutex_);
    return lines_;
  }

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    lines_ += std::string(message.payload.data(), message.payload.size()) + "\n";
  }
  void flush_() override {}
  std::string lines_;
};

class WireTest : public ServerTest {
 protected:
  void SetUp() override {
    spdlog::set_default_logger(std::make_shared<spdlog::logger>("test", lines_));
  }
  void TearDown() override {
    ServerTest::TearDown();
    spdlog::set_default_logger(before_);
  }
  // The one line of the log with `text` in it; waits for it.
  std::string line_with(const std::string& text) {
    std::string all;
    engine_->wait_for([&] {
      all = lines_->all();
      const size_t at = all.find(text);
      return at != std::string::npos && all.find('\n', at) != std::string::npos;
    });
    const size_t at = all.find(text);
    if (at == std::string::npos) return "";
    const size_t begin = all.rfind('\n', at) + 1;
    return all.substr(begin, all.find('\n', at) - begin);
  }

  const std::shared_ptr<LogLines> lines_ = std::make_shared<LogLines>();
  const std::shared_ptr<spdlog::logger> before_ = spdlog::default_logger();
};

int64_t parse_date(const std::string& text) {
  std::tm tm{};
  const char* end = strptime(text.c_str(), "%a, %d %b %Y %H:%M:%S GMT", &tm);
  return end != nullptr && *end == '\0' ? timegm(&tm) : 0;
}

TEST_F(WireTest, EveryAnswerHasADateAndARequestId) {
  start([](FakeEngine::Script&, ServerOptions& options) { options.api_keys = {"key"}; });
  const std::string key = "Authorization: Bearer key\r\n";
  const std::string completion = R"({"prompt": "x", "max_tokens": 2})";
  const std::string stream = R"({"prompt": "x", "max_tokens": 2, "stream": true})";
  const std::pair<std::string, int> requests[] = {
      {"GET /health HTTP/1.1\r\nHost: h\r\n\r\n", 200},
      {"GET /nothing HTTP/1.1\r\nHost: h\r\n" + key + "\r\n", 404},
      {"GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n", 401},
      {"GET / HTTP/1.1\r\n\r\n", 400},
      {"NONSENSE\r\n\r\n", 400},
      {TestClient::post_text("/v1/completions", completion, key), 200},
      {TestClient::post_text("/v1/completions", stream, key), 200},
      {TestClient::post_text("/v1/completions", "{", key), 400},
  };
  std::set<std::string> ids;
  for (const auto& [text, status] : requests) {
    SCOPED_TRACE(text);
    TestClient client(port_);
    client.send(text);
    auto response = client.receive();
    EXPECT_EQ(response.status, status);
    EXPECT_NEAR(parse_date(response.headers["date"]), std::time(nullptr), 600);
    EXPECT_EQ(response.headers["x-request-id"].size(), 32u);
    ids.insert(response.headers["x-request-id"]);
  }
  EXPECT_EQ(ids.size(), std::size(requests));
}

TEST_F(WireTest, TakesTheClientsRequestIdIfItIsUsable) {
  start();
  const auto answer = [&](const std::string& headers, const std::string& fields = "") {
    return post("/v1/completions", R"({"prompt": "x", "max_tokens": 1)" + fields + "}", headers);
  };
  auto own = answer("X-Request-Id: my-id.1\r\n");
  EXPECT_EQ(own.headers["x-request-id"], "my-id.1");
  EXPECT_EQ(own.json().at("id"), "cmpl-my-id.1");
  auto body = answer("", R"(, "request_id": "by-body")");
  EXPECT_EQ(body.headers["x-request-id"], "by-body");
  EXPECT_EQ(body.json().at("id"), "cmpl-by-body");
  auto both = answer("X-Request-Id: by-header\r\n", R"(, "request_id": "by-body")");
  EXPECT_EQ(both.headers["x-request-id"], "by-header");
  EXPECT_EQ(both.json().at("id"), "cmpl-by-header");
  for (const std::string& bad : {std::string("two words"), std::string(129, 'x'),
                                 std::string("quo\"te"), std::string("b\xc3\xbc")}) {
    auto replaced = answer("X-Request-Id: " + bad + "\r\n");
    EXPECT_EQ(replaced.status, 200);
    EXPECT_EQ(replaced.headers["x-request-id"].size(), 32u) << bad;
    EXPECT_EQ(replaced.json().at("id").as_string().c_str(),
              "cmpl-" + replaced.headers["x-request-id"]);
  }
  const auto injected = answer("", R"(, "request_id": "a\r\nSet-Cookie: x")");
  EXPECT_EQ(injected.status, 400);
  EXPECT_EQ(injected.json().at("error").at("param"), "request_id");
}

// The prompts of an agent that says the time near the beginning: said once, with both texts.
TEST_F(WireTest, SaysWhatKeepsPromptsOutOfThePrefixCache) {
  start();
  const auto ask = [&](const std::string& changes, const std::string& id) {
    std::string ids = "5";
    for (const int32_t token : encode(changes)) ids += "," + std::to_string(token);
    for (int i = 0; i < 450; ++i) ids += "," + std::to_string(i % 300);
    return post("/v1/completions", R"({"max_tokens": 1, "prompt": [)" + ids + "]}",
                "X-Request-Id: " + id + "\r\n");
  };
  ASSERT_EQ(ask("at 10", "first").status, 200);
  ASSERT_EQ(ask("@12\n", "second").status, 200);
  const std::string line = line_with("are the same again");
  EXPECT_NE(line.find("id=second"), std::string::npos) << line;
  EXPECT_NE(line.find("differ at token 1"), std::string::npos) << line;
  EXPECT_NE(line.find(R"("at 10" became "@12\\n")"), std::string::npos) << line;
  ASSERT_EQ(ask("now 13", "third").status, 200);
  EXPECT_EQ(lines_->all().find("id=third"), std::string::npos) << "it is said once";
}

TEST_F(WireTest, LogsRequestsWithIdAndTokens) {
  start([](FakeEngine::Script& script, ServerOptions& options) {
    options.access_log = true;
    // 500 tokens take 75 s: they are not done before it is seen that their client has gone.
    script.step_time = std::chrono::milliseconds(150);
  });
  const std::string prompt_tokens = std::to_string(encode("Hi").size());
  for (const std::string stream : {"false", "true"}) {
    const std::string id = "done-" + stream;
    post("/v1/completions",
         R"({"prompt": "Hi", "max_tokens": 5, "n": 2, "stream": )" + stream + "}",
         "X-Request-Id: " + id + "\r\n");
    const std::string line = line_with(id);
    EXPECT_NE(line.find(R"(POST "/v1/completions" 200 id=)" + id + " prompt=" + prompt_tokens +
                        " cached=1 output=10 "),
              std::string::npos)
        << line;
    EXPECT_TRUE(line.ends_with(" ms")) << line;
  }
  {
    TestClient client(port_);
    client.send(TestClient::post_text("/v1/completions",
                                      R"({"prompt": "Hi", "max_tokens": 500, "stream": true})",
                                      "X-Request-Id: left\r\n"));
    ASSERT_TRUE(client.read_until("data: "));
  }
  const std::string left = line_with("id=left");
  EXPECT_NE(left.find(" prompt=" + prompt_tokens + " cached=1 output="), std::string::npos) << left;
  EXPECT_TRUE(left.ends_with(" ms (client gone)")) << left;
  TestClient(port_).get("/nothing", "X-Request-Id: none\r\n");
  EXPECT_NE(line_with("id=none").find(R"(GET "/nothing" 404 id=none )"), std::string::npos);
}

TEST_F(WireTest, LogsWhichKeyARequestCameWith) {
  start([](FakeEngine::Script&, ServerOptions& options) {
    options.access_log = true;
    options.api_keys = {"first", "second"};
  });
  const auto ask = [&](const std::string& key, const std::string& id) {
    TestClient(port_).get("/version",
                          "Authorization: Bearer " + key + "\r\nX-Request-Id: " + id + "\r\n");
    return line_with("id=" + id + " ");
  };
  EXPECT_NE(ask("second", "b").find(" 200 id=b key=2 "), std::string::npos);
  EXPECT_NE(ask("first", "a").find(" 200 id=a key=1 "), std::string::npos);
  EXPECT_EQ(ask("third", "c").find("key="), std::string::npos);
  EXPECT_EQ(lines_->all().find("second"), std::string::npos) << "no key stands in the log";
  server_->replace_api_keys({"second"});
  EXPECT_EQ(ask("second", "d").find("key="), std::string::npos) << "there is one key";
}

TEST_F(WireTest, UnknownFieldsAreLoggedInOneLine) {
  start();
  const auto response =
      post("/v1/completions", R"({"prompt": "x", "max_tokens": 1, "a\nb": 1, "future": {}})",
           "X-Request-Id: curious\r\n");
  EXPECT_EQ(response.status, 200);
  const std::string line = line_with("id=curious");
  EXPECT_NE(line.find(R"("a\nb", "future")"), std::string::npos) << line;
}

TEST_F(WireTest, UnknownKeysOfMessagesAreLoggedInOneLine) {
  start();
  const auto chat = [&](const std::string& keys, const std::string& id) {
    return post("/v1/chat/completions",
                R"({"max_tokens": 1, "messages": [{"role": "user", "content": "x", )" + keys +
                    R"(}, {"role": "user", "content": "y", )" + keys + "}]}",
                "X-Request-Id: " + id + "\r\n");
  };
  EXPECT_EQ(chat(R"("name": "me", "weight": 1, "fu\nture": {})", "odd").status, 200);
  const std::string line = line_with("template may read");
  EXPECT_NE(line.find("id=odd"), std::string::npos) << line;
  EXPECT_NE(line.find(R"(: "weight", "fu\nture")"), std::string::npos) << line;
  EXPECT_EQ(line.find("more"), std::string::npos) << line;
  EXPECT_EQ(chat(R"("images": [])", "none").status, 200);
  const auto refused = chat(R"("images": ["iVBORw0KGgo="])", "some");
  EXPECT_EQ(refused.status, 400);
  EXPECT_NE(refused.body.find("messages[0].images"), std::string::npos) << refused.body;
}

TEST_F(WireTest, KeysOfContentsThatNobodyReadsAreLogged) {
  start();
  const std::string part = R"({"type": "text", "text": "x", "odd": 1, "cache_control": {}})";
  const std::string call = R"({"id": "1", "type": "function", "extra_content": {}, "function":
      {"name": "f", "arguments": "{}", "weight": 1}})";
  const auto logged = [&](const std::string& path, const std::string& fields, const std::string& id,
                          const std::string& what) {
    EXPECT_EQ(
        post(path, "{\"max_tokens\": 1, " + fields + "}", "X-Request-Id: " + id + "\r\n").status,
        200)
        << id;
    return line_with("id=" + id + " has " + what);
  };
  const std::string ignored = "keys in what is said, which are ignored: ";
  const std::string user = R"("messages": [{"role": "user", "content": [)" + part + "]}";
  EXPECT_TRUE(logged("/v1/chat/completions", user + "]", "chat", ignored)
                  .ends_with(R"(: "messages[].content[].odd")"));
  EXPECT_TRUE(logged("/v1/chat/completions",
                     user + R"(, {"role": "assistant", "tool_calls": [)" + call + "]}]", "calls",
                     "keys in messages")
                  .ends_with(R"(: "tool_calls[].extra_content", "tool_calls[].function.weight")"));
  EXPECT_TRUE(
      logged("/v1/messages", user + "]", "messages", ignored).ends_with(R"(: "content[].odd")"));
  EXPECT_TRUE(logged("/v1/messages/count_tokens", user + R"(], "future": 1)", "count", "unknown")
                  .ends_with(R"(: "future")"));
  EXPECT_TRUE(logged("/v1/messages/count_tokens", user + "]", "count-keys", ignored)
                  .ends_with(R"(: "content[].odd")"));
  const std::string unused = "fields of a generation, which change nothing here: ";
  EXPECT_TRUE(logged("/tokenize", R"("prompt": "x", "top_p": 1)", "tokenize", unused)
                  .ends_with(R"(: "max_tokens", "top_p")"));
  EXPECT_TRUE(logged("/tokenize", user + "]", "tokenize-keys", ignored)
                  .ends_with(R"(: "messages[].content[].odd")"));
  EXPECT_TRUE(logged("/detokenize", R"("tokens": [1])", "detokenize", unused)
                  .ends_with(R"(: "max_tokens")"));
}

TEST_F(WireTest, VariablesThatTheTemplateDoesNotReadAreLogged) {
  start();
  const auto response = post("/v1/chat/completions",
                             R"({"max_tokens": 1, "messages": [{"role": "user", "content": "x"}],
                                 "chat_template_kwargs": {"no_such_switch": true}})",
                             "X-Request-Id: typo\r\n");
  EXPECT_EQ(response.status, 200);
  const std::string line = line_with("chat_template_kwargs");
  EXPECT_NE(line.find(R"(id=typo)"), std::string::npos) << line;
  EXPECT_TRUE(line.ends_with(R"(: "no_such_switch")")) << line;
}

TEST_F(WireTest, ReadsMediaTypesWithoutRegardToCase) {
  start();
  const auto status = [&](const std::string& headers) {
    const std::string body = R"({"prompt": "x", "max_tokens": 1})";
    TestClient client(port_);
    client.send("POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Length: " +
                std::to_string(body.size()) + "\r\n" + headers + "\r\n" + body);
    return client.receive().status;
  };
  for (const std::string good :
       {"CONTENT-TYPE: APPLICATION/JSON\r\n", "Content-Type: application/json;charset=UTF-8\r\n",
        "Content-Type: Application/Json ; Charset=\"utf-8\"\r\n",
        "Content-Type: application/json; profile=\"a;charset=latin1\"; version=1;\r\n",
        "Content-Type: application/json\r\nContent-Encoding: Identity\r\n"}) {
    EXPECT_EQ(status(good), 200) << good;
  }
  for (const std::string bad :
       {"", "Content-Type: text/plain\r\n", "Content-Type: application/jsonp\r\n",
        "Content-Type: application/json; charset=iso-8859-1\r\n",
        "Content-Type: application/json; a=b; CHARSET=\"utf-16\"\r\n",
        "Content-Type: application/json\r\nContent-Encoding: gzip\r\n",
        "Content-Type: application/json\r\nContent-Encoding: identity\r\n"
        "Content-Encoding: br\r\n"}) {
    EXPECT_EQ(status(bad), 415) << bad;
  }
}

TEST_F(WireTest, ErrorsHaveOpenAIsTypesAndCodes) {
  start([](FakeEngine::Script&, ServerOptions& options) { options.api_keys = {"key"}; });
  const std::string key = "Authorization: Bearer key\r\n";
  const auto expect = [](const ClientResponse& response, const char* type, const char* code) {
    const json::value error = response.json().at("error");
    EXPECT_EQ(error.at("type"), type) << response.body;
    EXPECT_EQ(error.at("code"), code == nullptr ? json::value() : json::value(code))
        << response.body;
  };
  const auto completion = [&](const std::string& fields) {
    return post("/v1/completions", "{" + fields + "}", key);
  };
  const char* invalid = "invalid_request_error";
  expect(post("/v1/completions", "{}"), invalid, "invalid_api_key");
  expect(TestClient(port_).get("/nothing", key), invalid, "unknown_url");
  for (const auto& [head, status] :
       {std::pair("GET / HTTP/3.0\r\n\r\n", 505),
        std::pair("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip\r\n\r\n", 501)}) {
    TestClient client(port_);
    client.send(head);
    const auto refused = client.receive();
    EXPECT_EQ(refused.status, status);
    expect(refused, invalid, nullptr);
  }
  expect(TestClient(port_).get("/tokenize", key), invalid, "method_not_supported");
  expect(completion(R"("prompt": "x", "model": "other")"), invalid, "model_not_found");
  expect(completion(R"("prompt": "x", "temperature": -1)"), invalid, "decimal_below_min_value");
  std::string ids = "1";
  for (int i = 0; i < 512; ++i) ids += ",1";
  expect(completion("\"prompt\": [" + ids + "]"), invalid, "context_length_exceeded");
  expect(completion("\"prompt\": \"" + std::string(1'000'000, 'x') + "\""), invalid,
         "context_length_exceeded");
  expect(completion(R"("prompt": "x", "max_tokens": 512)"), invalid, "context_length_exceeded");
  engine_->refuse_with({engine::RequestError::Kind::kTooLong, "too long", "prompt"});
  expect(completion(R"("prompt": "x")"), invalid, "context_length_exceeded");
  engine_->refuse_with({engine::RequestError::Kind::kOverloaded, "full", ""});
  expect(completion(R"("prompt": "x")"), "requests", "rate_limit_exceeded");
  engine_->die("out of memory");
  expect(completion(R"("prompt": "x")"), "server_error", nullptr);
}

// The field that is at fault, and OpenAI's code of what is wrong with it.
TEST_F(WireTest, ErrorsOfFieldsHaveOpenAIsCodes) {
  start();
  const auto expect = [&](const char* path, const std::string& fields, const char* param,
                          const char* code) {
    const auto response = post(path, "{" + fields + "}");
    EXPECT_EQ(response.status, 400) << fields;
    const json::value error = response.json().at("error");
    EXPECT_EQ(error.at("param"), param) << response.body;
    EXPECT_EQ(error.at("code"), code) << response.body;
  };
  const char* completions = "/v1/completions";
  const char* chats = "/v1/chat/completions";
  const std::string messages = R"("messages": [{"role": "user", "content": "x"}], )";
  expect(completions, "", "prompt", "missing_required_parameter");
  expect(chats, "", "messages", "missing_required_parameter");
  expect("/v1/responses", "", "input", "missing_required_parameter");
  expect("/v1/embeddings", "", "input", "missing_required_parameter");
  expect("/tokenize", "", "prompt", "missing_required_parameter");
  expect(chats, R"("messages": [{"content": "x"}])", "messages[0].role",
         "missing_required_parameter");
  expect(completions, R"("prompt": 5)", "prompt", "invalid_type");
  expect(chats, R"("messages": "x")", "messages", "invalid_type");
  expect(chats, R"("messages": [5])", "messages", "invalid_type");
  expect(chats, R"("messages": [{"role": "user", "content": 5}])", "messages[0].content",
         "invalid_type");
  expect(chats, messages + R"("stream": "yes")", "stream", "invalid_type");
  expect(chats, messages + R"("n": 1.5)", "n", "invalid_type");
  expect(chats, messages + R"("temperature": "hot")", "temperature", "invalid_type");
  expect(chats, messages + R"("stop": 7)", "stop", "invalid_type");
  expect(chats, R"("messages": [])", "messages", "empty_array");
  expect(chats, messages + R"("n": 0)", "n", "integer_below_min_value");
  expect(chats, messages + R"("n": 1000)", "n", "integer_above_max_value");
  expect(chats, messages + R"("n": 18446744073709551615)", "n", "integer_above_max_value");
  expect(chats, messages + R"("temperature": 1e9)", "temperature", "decimal_above_max_value");
  expect(chats, messages + R"("stop": ["a","b","c","d","e","f","g","h","i","j","k","l","m","n",
         "o","p","q"])",
         "stop", "array_above_max_length");
  expect(chats, messages + R"("top_logprobs": 1)", "top_logprobs", "invalid_value");
  expect(chats, messages + R"("top_p": 0)", "top_p", "decimal_below_min_value");
  expect(chats, messages + R"("response_format": {"type": "x"})", "response_format.type",
         "invalid_value");
  expect(chats, messages + R"("priority": 1)", "priority", "unsupported_parameter");
  expect(chats, messages + R"("chat_template": "x")", "chat_template", "unsupported_parameter");
  expect(chats,
         messages + R"("tools": [{"type": "function", "function": {"name": ")" +
             std::string(257, 'f') + R"("}}])",
         "tools[0].function.name", "string_above_max_length");
  const auto expect_tag = [&](const std::string& tag, const char* code) {
    expect(chats, messages + R"("structured_outputs": {"structural_tag": )" + tag + "}",
           "structured_outputs.structural_tag", code);
  };
  expect_tag("5", "invalid_type");
  expect_tag(R"("a")", "invalid_value");
  expect_tag(R"({"type": "json"})", "invalid_value");
}

TEST_F(WireTest, NamesTheLimitByTheNameItCameWith) {
  start();
  for (const std::string name : {"max_tokens", "max_completion_tokens"}) {
    const auto error = chat("\"" + name + "\": 1000").json().at("error");
    EXPECT_EQ(error.at("param").as_string().c_str(), name);
    EXPECT_TRUE(error.at("message").as_string().starts_with("`" + name + "`"));
    const auto under = chat("\"" + name + R"(": 3, "min_tokens": 4)").json().at("error");
    EXPECT_EQ(under.at("param"), "min_tokens");
    EXPECT_NE(under.at("message").as_string().find("`" + name + "`"), std::string::npos);
  }
}

TEST_F(WireTest, MinTokensAboveTheDefaultLimitAreRefused) {
  start();
  const auto over = complete(R"("min_tokens": 17)");  // without max_tokens there are 16
  EXPECT_EQ(over.status, 400);
  EXPECT_EQ(over.json().at("error").at("param"), "min_tokens");
  EXPECT_EQ(complete(R"("min_tokens": 16)").status, 200);
  EXPECT_EQ(complete(R"("min_tokens": 17, "max_tokens": 17)").status, 200);
}

TEST_F(WireTest, ClientsThatEndTheirSendingGetTheirAnswers) {
  start([](FakeEngine::Script& script, ServerOptions&) {
    script.step_time = std::chrono::milliseconds(2);
  });
  const std::string expected =
      text_of(post("/v1/completions", R"({"prompt": "x", "max_tokens": 40})"));
  for (const std::string stream : {"false", "true"}) {
    TestClient client(port_);
    client.send(TestClient::post_text(
        "/v1/completions", R"({"prompt": "x", "max_tokens": 40, "stream": )" + stream + "}"));
    client.end_sending();
    const auto response = client.receive();
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(stream == "true" ? streamed_text(response) : text_of(response), expected);
  }
  EXPECT_EQ(engine_->num_aborted(), 0u);
}

TEST_F(WireTest, PathsAreQuotedOnceInTheLog) {
  start([](FakeEngine::Script&, ServerOptions& options) { options.access_log = true; });
  TestClient(port_).get("/a%22%20200%20id=x%5C%1b%C3%BC");
  EXPECT_NE(line_with(R"(GET "/a\" 200 id=x\\)"
                      "\x1b\xc3\xbc\" 404 id="),
            "");
}

TEST_F(WireTest, LeavesSilentPathsOutOfTheLog) {
  start([](FakeEngine::Script&, ServerOptions& options) {
    options.access_log = true;
    options.silent_paths = {"/health", "/metrics"};
  });
  TestClient client(port_);
  for (const char* path : {"/health", "/metrics", "/version"}) client.get(path);
  EXPECT_NE(line_with("/version"), "");  // the last: the others would be there by now
  EXPECT_EQ(lines_->all().find("/health"), std::string::npos);
  EXPECT_EQ(lines_->all().find("/metrics"), std::string::npos);
}

TEST_F(WireTest, SilentPathsAreThoseBehindTheRootPath) {
  start([](FakeEngine::Script&, ServerOptions& options) {
    options.access_log = true;
    options.root_path = "/sub";
    options.silent_paths = {"/health", "/sub/metrics"};
  });
  TestClient client(port_);
  for (const char* path : {"/sub/health", "/health", "/sub/metrics", "/sub/version"})
    client.get(path);
  EXPECT_NE(line_with("/sub/version"), "");
  EXPECT_EQ(lines_->all().find("/health"), std::string::npos);
  EXPECT_EQ(lines_->all().find("/metrics"), std::string::npos);
}

TEST_F(WireTest, TwoDifferentKeysOrTypesAreRefused) {
  start();
  const std::string type = "Content-Type: text/plain\r\n";  // behind post()'s application/json
  const auto response = post("/v1/completions", R"({"prompt": "x"})", type);
  EXPECT_EQ(response.status, 400);
  EXPECT_NE(response.body.find("content-type"), std::string::npos) << response.body;
}

// Not even a stranger without a key can have it held.
TEST_F(WireTest, AGetHasNoBody) {
  start([](FakeEngine::Script&, ServerOptions& options) { options.api_keys = {"key"}; });
  for (const char* head : {"GET /health", "HEAD /health"}) {
    for (const char* length : {"Content-Length: 1000", "Transfer-Encoding: chunked"}) {
      TestClient client(port_);
      client.send(std::string(head) + " HTTP/1.1\r\nHost: h\r\n" + length + "\r\n\r\n");
      EXPECT_TRUE(client.read_until("HTTP/1.1 413")) << head << ", " << length;
    }
  }
  TestClient client(port_);
  client.send("GET /health HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n");
  EXPECT_EQ(client.receive().status, 200);
}

// Their name may have been made to point to this machine.
TEST_F(WireTest, PagesFromOtherMachinesNeedAKey) {
  const auto status = [&](const std::string& headers) {
    TestClient client(port_);
    client.send(
        TestClient::post_text("/v1/completions", R"({"prompt": "x", "max_tokens": 1})", headers));
    return client.receive().status;
  };
  start();
  EXPECT_EQ(status("Origin: http://evil.example:8000\r\n"), 403);
  EXPECT_EQ(status("Origin: http://localhost:3000\r\n"), 200);
  EXPECT_EQ(status(""), 200);
  server_.reset();
  start([](FakeEngine::Script&, ServerOptions& options) { options.api_keys = {"key"}; });
  EXPECT_EQ(status("Authorization: Bearer key\r\nOrigin: https://chat.example\r\n"), 200);
}

TEST_F(WireTest, ExpectationsOfHttp10AreIgnored) {
  start();
  const std::string body = R"({"prompt": "x", "max_tokens": 1})";
  TestClient client(port_);
  client.send(
      "POST /v1/completions HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: " +
      std::to_string(body.size()) + "\r\nExpect: 100-continue\r\n\r\n");
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  client.send(body);
  EXPECT_FALSE(client.read_until("100 Continue"));  // to the end
  EXPECT_TRUE(client.read_until("200 OK"));
}

}  // namespace
}  // namespace quire::server
