// The whole server over real sockets, with a scripted engine: headers, ids, errors.
#include <ctime>

#include "server/test_logged_server.h"

namespace quire::server {
namespace {

using WireTest = LoggedServerTest;

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
