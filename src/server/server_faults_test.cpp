// The whole server over real sockets, with a scripted engine: errors, disconnects, load, shutdown.
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <sstream>
#include <thread>

#include "server/test_server.h"

namespace quire::server {
namespace {

using std::chrono::milliseconds;

TEST_F(ServerTest, RefusesWhatCannotFit) {
  start();
  std::string words;
  for (int i = 0; i < 600; ++i) words += "Hello wörld ";
  const auto tokens = post("/v1/completions", R"({"prompt": ")" + words + R"("})");
  EXPECT_EQ(tokens.status, 400);
  EXPECT_EQ(tokens.json().at("error").at("param"), "prompt");
  // Megabytes are refused without being tokenised.
  std::string text = R"({"prompt": ")";
  text.append(30'000'000, 'a');
  const TimePoint start_time = Clock::now();
  const auto bytes = post("/v1/completions", text + R"("})");
  EXPECT_EQ(bytes.status, 400);
  EXPECT_NE(bytes.body.find("bytes is too long"), std::string::npos) << bytes.body;
  EXPECT_LT(seconds_since(start_time), 120.0);
  EXPECT_EQ(post("/v1/completions", R"({"prompt": ""})").status, 400);
  EXPECT_EQ(engine_->num_submitted(), 0u);
}

TEST_F(ServerTest, MapsErrorsToStatuses) {
  start();
  TestClient client(port_);
  EXPECT_EQ(client.get("/nothing").status, 404);
  auto wrong_method = client.get("/v1/completions");
  EXPECT_EQ(wrong_method.status, 405);
  EXPECT_EQ(wrong_method.headers["allow"], "POST");
  EXPECT_EQ(post("/v1/models", "{}").headers["allow"], "GET, HEAD");
  client.send("PUT /ping HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n");
  EXPECT_EQ(client.receive().headers["allow"], "GET, HEAD, POST");
  client.send("OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n");
  auto options = client.receive();
  EXPECT_EQ(options.status, 200);
  EXPECT_EQ(options.headers["allow"], "GET, HEAD, POST, OPTIONS");
  EXPECT_EQ(options.headers["content-length"], "0");
  EXPECT_FALSE(options.headers.contains("access-control-allow-origin"));
  const auto unknown_model = post("/v1/completions", R"({"model": "other", "prompt": "x"})");
  EXPECT_EQ(unknown_model.status, 404);
  EXPECT_EQ(unknown_model.json().at("error").at("param"), "model");
  EXPECT_EQ(unknown_model.json().at("error").at("code"), "model_not_found");
  client.send("POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n\r\n");
  EXPECT_EQ(client.receive().status, 411);
  client.send(
      "POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Type: text/plain\r\n"
      "Content-Length: 2\r\n\r\n{}");
  EXPECT_EQ(client.receive().status, 415);

  using Kind = engine::RequestError::Kind;
  const std::pair<Kind, int> kinds[] = {{Kind::kInvalid, 400},
                                        {Kind::kTooLong, 400},
                                        {Kind::kOverloaded, 429},
                                        {Kind::kShuttingDown, 503},
                                        {Kind::kEngineDead, 503}};
  for (const auto& [kind, status] : kinds) {
    engine_->refuse_with({kind, "the reason", "prompt"});
    for (const char* stream : {"false", "true"}) {
      auto response = complete(std::string("\"stream\": ") + stream);
      EXPECT_EQ(response.status, status);
      EXPECT_EQ(response.json().at("error").at("message"), "the reason");
      EXPECT_EQ(response.json().at("error").at("param"), "prompt");
      EXPECT_EQ(response.headers.contains("retry-after"), status >= 429);
    }
  }
}

TEST_F(ServerTest, ErrorsInTheMiddle) {
  start([](FakeEngine::Script& script, ServerOptions&) { script.fail_after = 5; });
  const auto whole = complete(R"("max_tokens": 50)");
  EXPECT_EQ(whole.status, 500);
  EXPECT_NE(whole.body.find("the device is on fire"), std::string::npos);
  const auto stream = complete(R"("max_tokens": 50, "stream": true)");
  EXPECT_EQ(stream.status, 200);
  EXPECT_TRUE(stream.complete);
  EXPECT_TRUE(stream.ends_with_done());
  EXPECT_EQ(stream.events().back().at("error").at("type"), "server_error");
}

// A limit that the client's request reaches while it runs (a grammar's) is the client's error.
TEST_F(ServerTest, RefusalsInTheMiddleAreTheClientsFault) {
  start([](FakeEngine::Script& script, ServerOptions&) {
    script.fail_after = 5;
    script.failure = engine::FinishReason::kRefused;
  });
  const auto whole = complete(R"("max_tokens": 50, "n": 3, "guided_regex": "[a-z ]*")");
  EXPECT_EQ(whole.status, 400);
  const json::value body = whole.json();
  const json::object& error = body.at("error").as_object();
  EXPECT_EQ(error.at("message"), "the device is on fire");
  EXPECT_EQ(error.at("param"), "guided_regex");
  EXPECT_EQ(error.at("type"), "invalid_request_error");
  const auto stream = complete(R"("max_tokens": 50, "stream": true, "guided_regex": "[a-z ]*")");
  EXPECT_EQ(stream.status, 200);
  EXPECT_TRUE(stream.ends_with_done());
  EXPECT_EQ(stream.events().back().at("error").at("type"), "invalid_request_error");
}

TEST_F(ServerTest, MemoryThatIsMissingInTheMiddleMayBeThereLater) {
  start([](FakeEngine::Script& script, ServerOptions&) {
    script.fail_after = 5;
    script.failure = engine::FinishReason::kOverloaded;
  });
  const auto whole = complete(R"("max_tokens": 50, "guided_regex": "[a-z ]*")");
  EXPECT_EQ(whole.status, 503);
  EXPECT_TRUE(whole.headers.contains("retry-after"));
  const auto stream = complete(R"("max_tokens": 50, "stream": true, "guided_regex": "[a-z ]*")");
  EXPECT_EQ(stream.events().back().at("error").at("type"), "server_error");
}

TEST_F(ServerTest, SaysThatTheEngineIsDead) {
  start();
  TestClient client(port_);
  EXPECT_EQ(client.get("/health").status, 200);
  engine_->pause(true);
  TestClient waiting(port_);
  waiting.send(TestClient::post_text("/v1/completions", R"({"prompt": "x", "stream": true})"));
  ASSERT_TRUE(engine_->wait_for([&] { return engine_->num_running() == 1; }));
  engine_->die("out of memory");
  const auto last = waiting.receive();
  EXPECT_EQ(last.status, 500);
  EXPECT_NE(last.body.find("out of memory"), std::string::npos);
  const auto health = client.get("/health");
  EXPECT_EQ(health.status, 503);
  EXPECT_NE(health.body.find("out of memory"), std::string::npos);
  EXPECT_EQ(complete(R"("max_tokens": 1)").status, 503);
}

TEST_F(ServerTest, SaysThatTheModelIsBeingLoaded) {
  ServerOptions options;
  options.http.port = 0;
  options.served_model_names = {"tiny"};
  options.api_keys = {"key"};
  server_ = std::make_unique<Server>(options.http);
  port_ = server_->start();
  TestClient client(port_);
  for (const char* path : {"/health", "/health?ready", "/", "/v1/models", "/nothing"}) {
    const auto answer = client.get(path);
    EXPECT_EQ(answer.status, 503) << path;
    EXPECT_TRUE(answer.headers.contains("retry-after")) << path;
    EXPECT_NE(answer.body.find("being loaded"), std::string::npos) << path;
  }
  EXPECT_EQ(complete(R"("max_tokens": 1)").status, 503);
  TestClient half(port_);  // whose request is half there when the model comes
  half.send("GET /health?ready HTTP/1.1\r\n");

  engine_ = std::make_unique<FakeEngine>(FakeEngine::Script());
  ModelText text;
  text.tokenizer = text::Tokenizer::load(kModelDir);
  server_->open(*engine_, text, options);
  half.send("Host: h\r\n\r\n");
  EXPECT_EQ(half.receive().status, 200);
  EXPECT_EQ(client.get("/health?ready").status, 200);
  EXPECT_EQ(client.get("/v1/models").status, 401);
  EXPECT_EQ(client.get("/v1/models", "X-Api-Key: key\r\n").status, 200);
}

TEST_F(ServerTest, EndsWithoutAModel) {
  http::HttpOptions options;
  options.port = 0;
  server_ = std::make_unique<Server>(options);
  port_ = server_->start();
  TestClient client(port_);
  EXPECT_EQ(client.get("/health").status, 503);
  server_->stop(milliseconds(0));
  EXPECT_TRUE(client.closed_by_server());
}

TEST_F(ServerTest, GuardsEverythingButHealth) {
  start(
      [](FakeEngine::Script&, ServerOptions& options) { options.api_keys = {"first", "second"}; });
  TestClient client(port_);
  EXPECT_EQ(client.get("/health").status, 200);
  for (const char* path :
       {"/v1/models", "/metrics", "/version", "/ping", "/load", "/nothing", "/v1/models/tiny",
        "/v1/completions", "/tokenize", "//health", "/health/", "/v1/../health"}) {
    EXPECT_EQ(client.get(path).status, 401) << path;
  }
  const std::string body = R"({"prompt": "x", "max_tokens": 1})";
  EXPECT_EQ(post("/v1/completions", body).status, 401);
  EXPECT_EQ(post("/tokenize", body).status, 401);
  for (const char* bad : {"Authorization: Bearer wrong\r\n", "Authorization: Bearer \r\n",
                          "Authorization: Bearer firs\r\n", "Authorization: Bearer firstx\r\n",
                          "Authorization: Basic first\r\n", "Authorization: Bearerfirst\r\n",
                          "Authorization: first\r\n", "X-Api-Key: x\r\n"}) {
    EXPECT_EQ(post("/v1/completions", body, bad).status, 401) << bad;
  }
  for (const char* good : {"Authorization: Bearer first\r\n", "Authorization: Bearer second\r\n",
                           "Authorization: BEARER first\r\n", "Authorization: bEaReR   second\r\n",
                           "X-Api-Key: first\r\n"})
    EXPECT_EQ(post("/v1/completions", body, good).status, 200) << good;
}

// 500 tokens take 75 s: none is done before it is seen that their client has gone.
constexpr milliseconds kLongStep{150};

TEST_F(ServerTest, AbortsWhenTheClientGoes) {
  start([](FakeEngine::Script& script, ServerOptions&) { script.step_time = kLongStep; });
  const std::string stream = R"({"prompt": "x", "max_tokens": 500, "n": 2, "stream": true})";
  const std::string whole = R"({"prompt": "x", "max_tokens": 500, "n": 2})";
  for (const auto& body : {stream, whole}) {
    // In the middle, and before the first token.
    for (const bool paused : {false, true}) {
      engine_->pause(paused);
      const size_t submitted = engine_->num_submitted();
      {
        TestClient client(port_);
        client.send(TestClient::post_text("/v1/completions", body));
        ASSERT_TRUE(engine_->wait_for([&] { return engine_->num_submitted() == submitted + 2; }));
        if (body == stream && !paused) {
          EXPECT_TRUE(client.read_until("data: "));
        }
      }
      EXPECT_TRUE(engine_->wait_for([&] { return engine_->num_running() == 0; }));
    }
  }
  engine_->pause(false);
  EXPECT_EQ(engine_->num_aborted(), 8u);
  EXPECT_EQ(complete(R"("max_tokens": 2)").status, 200);
}

TEST_F(ServerTest, AbortsForClientsThatDoNotRead) {
  start([](FakeEngine::Script& script, ServerOptions& options) {
    script.step_time = milliseconds(20);  // 500 tokens last until the client is given up
    options.http.max_unsent_bytes = 100'000;
  });
  TestClient stuck(port_);
  stuck.set_receive_buffer(2048);
  // Log-probabilities make every token some kilobytes.
  stuck.send(TestClient::post_text("/v1/completions", R"({"prompt": "x", "max_tokens": 500,
      "n": 64, "logprobs": 20, "stream": true, "ignore_eos": true})"));
  ASSERT_TRUE(engine_->wait_for([&] { return engine_->num_submitted() == 64; }));
  EXPECT_EQ(complete(R"("max_tokens": 5)").status, 200);  // others go on
  EXPECT_TRUE(engine_->wait_for([&] { return engine_->num_running() == 0; }));
  EXPECT_GE(engine_->num_aborted(), 1u);
}

TEST_F(ServerTest, ServesManyStreams) {
  start([](FakeEngine::Script& script, ServerOptions&) {
    script.step_time = milliseconds(1);
    script.tokens_per_event = 2;
  });
  const std::string expected = text_of(complete(R"("max_tokens": 100)"));
  std::vector<std::unique_ptr<TestClient>> clients;
  for (int i = 0; i < 64; ++i) {
    clients.push_back(std::make_unique<TestClient>(port_));
    clients.back()->send(TestClient::post_text(
        "/v1/completions", R"({"prompt": "x", "max_tokens": 100, "stream": true})"));
  }
  for (auto& client : clients) {
    const auto response = client->receive();
    EXPECT_EQ(streamed_text(response), expected);
    EXPECT_TRUE(response.ends_with_done());
  }
}

TEST_F(ServerTest, ManyClientsComeAndGo) {
  start([](FakeEngine::Script& script, ServerOptions&) {
    script.step_time = std::chrono::microseconds(100);
  });
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 25; ++i) {
        TestClient client(port_);
        const bool stream = (i + t) % 2 == 0;
        client.send(TestClient::post_text(
            "/v1/chat/completions", std::string(R"({"messages": [{"role": "user", "content": "x"}],
              "max_tokens": 40, "n": 2, "stream": )") +
                                        (stream ? "true" : "false") + "}"));
        if (i % 3 == 0) continue;  // gone at once
        if (i % 3 == 1) {
          EXPECT_TRUE(client.receive().complete);
        } else {
          client.read_until("HTTP/1.1 200");  // gone in the middle
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_TRUE(engine_->wait_for([&] { return engine_->num_running() == 0; }));
  TestClient client(port_);
  EXPECT_TRUE(engine_->wait_for([&] { return client.get("/load").json().at("server_load") == 0; }));
}

TEST_F(ServerTest, ShutdownFinishesWhatItCan) {
  start();
  engine_->pause(true);
  TestClient running(port_);
  running.send(TestClient::post_text("/v1/completions", R"({"prompt": "x", "max_tokens": 40})"));
  ASSERT_TRUE(engine_->wait_for([&] { return engine_->num_running() == 1; }));
  std::thread stopper([&] { server_->stop(milliseconds(3'600'000)); });
  EXPECT_TRUE(engine_->wait_for([&] { return TestClient(port_).get("/health").status == 503; }));
  EXPECT_EQ(post("/v1/completions", R"({"prompt": "x"})").status, 503);
  engine_->pause(false);
  const auto response = running.receive();
  EXPECT_EQ(response.json().at("choices").at(0).at("finish_reason"), "length");
  const TimePoint waiting = Clock::now();
  stopper.join();
  EXPECT_LT(seconds_since(waiting), 120.0);
}

TEST_F(ServerTest, ShutdownSaysWhatItCutShort) {
  start([](FakeEngine::Script& script, ServerOptions&) { script.step_time = kLongStep; });
  TestClient stream(port_), whole(port_);
  stream.send(TestClient::post_text("/v1/completions",
                                    R"({"prompt": "x", "max_tokens": 500, "stream": true})"));
  whole.send(TestClient::post_text("/v1/completions", R"({"prompt": "x", "max_tokens": 500})"));
  ASSERT_TRUE(stream.read_until("data: "));
  ASSERT_TRUE(engine_->wait_for([&] { return engine_->num_running() == 2; }));
  std::thread stopper([&] { server_->stop(milliseconds(0)); });
  const auto streamed = stream.receive();
  EXPECT_TRUE(streamed.ends_with_done());
  EXPECT_EQ(streamed.body.find("\"abort\""), std::string::npos) << streamed.body;
  EXPECT_NE(streamed.events().back().at("error").at("message").as_string().find("shutting down"),
            json::string::npos);
  auto cut = whole.receive();
  EXPECT_EQ(cut.status, 503);
  EXPECT_TRUE(cut.headers.contains("retry-after"));
  stopper.join();
  EXPECT_EQ(engine_->num_running(), 0u);
}

// Of every API: a stream of which nothing was sent is no stream yet.
const std::pair<const char*, const char*> kStreams[] = {
    {"/v1/completions", R"({"stream": true, "max_tokens": 9, "prompt": "x"})"},
    {"/v1/chat/completions",
     R"({"stream": true, "max_tokens": 9, "messages": [{"role": "user", "content": "x"}]})"},
    {"/v1/messages",
     R"({"stream": true, "max_tokens": 9, "messages": [{"role": "user", "content": "x"}]})"},
    {"/v1/responses", R"({"stream": true, "max_output_tokens": 9, "input": "x"})"}};

TEST_F(ServerTest, ShutdownBeforeAFirstTokenIsAStatus) {
  start();
  engine_->pause(true);
  std::vector<std::unique_ptr<TestClient>> clients;
  for (const auto& [path, body] : kStreams) {
    clients.push_back(std::make_unique<TestClient>(port_));
    clients.back()->send(TestClient::post_text(path, body));
  }
  ASSERT_TRUE(engine_->wait_for([&] { return engine_->num_running() == clients.size(); }));
  server_->stop(milliseconds(0));
  for (const auto& client : clients) {
    auto cut = client->receive();
    ASSERT_EQ(cut.status, 503) << cut.body;
    EXPECT_TRUE(cut.headers.contains("retry-after"));
    EXPECT_EQ(cut.headers["content-type"], "application/json");
    EXPECT_NE(cut.json().at("error").at("message").as_string().find("shutting down"),
              json::string::npos);
  }
}

// What the log says while this exists.
class LogText {
 public:
  LogText() {
    auto sink = std::make_shared<spdlog::sinks::ostream_sink_mt>(text_);
    spdlog::set_default_logger(std::make_shared<spdlog::logger>("test", std::move(sink)));
  }
  ~LogText() { spdlog::set_default_logger(before_); }
  // Once nothing logs any more.
  std::string text() const { return text_.str(); }

 private:
  std::ostringstream text_;
  const std::shared_ptr<spdlog::logger> before_ = spdlog::default_logger();
};

TEST_F(ServerTest, TheLogSaysHowManyRequestsWereCutShort) {
  const LogText log;
  start();
  engine_->pause(true);
  std::vector<std::unique_ptr<TestClient>> clients;
  for (const auto& [path, body] : kStreams) {
    std::string whole = body;
    whole.replace(whole.find("true"), 4, "false");
    for (const std::string& text : {std::string(body), whole}) {
      clients.push_back(std::make_unique<TestClient>(port_));
      clients.back()->send(TestClient::post_text(path, text));
    }
  }
  clients.push_back(std::make_unique<TestClient>(port_));
  clients.back()->send(
      TestClient::post_text("/v1/completions", R"({"prompt": ["x", "y"], "n": 3})"));
  // Nine requests; of the last one six generations.
  ASSERT_TRUE(engine_->wait_for([&] { return engine_->num_running() == 8 + 6; }));
  server_->stop(milliseconds(0));
  for (const auto& client : clients) EXPECT_EQ(client->receive().status, 503);
  server_.reset();
  EXPECT_NE(log.text().find("] 9 requests were cut short"), std::string::npos) << log.text();
}

TEST_F(ServerTest, AFailureBeforeAFirstTokenIsAStatus) {
  using engine::FinishReason;
  for (const auto& [reason, status] :
       {std::pair(FinishReason::kError, 500), std::pair(FinishReason::kRefused, 400),
        std::pair(FinishReason::kOverloaded, 503)}) {
    const FinishReason failure = reason;
    start([failure](FakeEngine::Script& script, ServerOptions&) {
      script.fail_after = 0;
      script.failure = failure;
    });
    for (const auto& [path, body] : kStreams) {
      auto response = post(path, body);
      ASSERT_EQ(response.status, status) << path << response.body;
      EXPECT_EQ(response.headers["content-type"], "application/json");
      EXPECT_EQ(response.headers.contains("retry-after"), status == 503);
      EXPECT_TRUE(response.json().as_object().contains("error"));
    }
    server_.reset();
  }
}

// Pings are off, or the client may be gone: then the head is all that can be sent.
TEST_F(ServerTest, AStreamThatMayNotWaitBeginsAtOnce) {
  start([](FakeEngine::Script&, ServerOptions& options) {
    options.http.ping_interval = milliseconds(0);
  });
  engine_->pause(true);
  for (const auto& [path, body] : kStreams) {
    TestClient client(port_);
    client.send(TestClient::post_text(path, body));
    EXPECT_TRUE(client.read_until("text/event-stream")) << path;
  }
}

TEST_F(ServerTest, ShutdownAnswersRequestsThatHaveNotReachedTheEngine) {
  start([](FakeEngine::Script&, ServerOptions& options) {
    options.http.io_threads = 1;
    options.http.worker_threads = 1;
    options.http.large_body_bytes = 1;
    options.http.max_text_time = std::chrono::hours(1);
  });
  // One worker for all bodies: while it reads long texts, for seconds, others wait.
  std::string text;
  for (int i = 0; i < 400'000; ++i) text += "wörd " + std::to_string(i % 977) + ' ';
  const std::string long_text =
      TestClient::post_text("/tokenize", R"({"prompt": ")" + text + R"("})");
  const auto num_waiting = [&] {
    const std::string name = "quire:http_waiting_jobs{engine=\"0\",model_name=\"tiny\"} ";
    const std::string text = TestClient(port_).get("/metrics").body;
    return std::stoi(text.substr(text.find(name) + name.size()));
  };
  std::vector<std::unique_ptr<TestClient>> busy;
  for (int i = 0; i < 8; ++i) {
    busy.push_back(std::make_unique<TestClient>(port_));
    busy.back()->send(long_text);
  }
  ASSERT_TRUE(engine_->wait_for([&] { return num_waiting() >= 4; }));
  TestClient waiting(port_);
  waiting.send(TestClient::post_text("/v1/completions", R"({"prompt": "x", "max_tokens": 500})"));
  // The one thread that reads has read it when it has answered what came after it.
  for (int i = 0; i < 5; ++i) ASSERT_GT(num_waiting(), 0);
  std::thread stopper([&] { server_->stop(milliseconds(0)); });
  auto cut = waiting.receive();
  EXPECT_EQ(cut.status, 503);
  EXPECT_TRUE(cut.headers.contains("retry-after"));
  stopper.join();
  EXPECT_EQ(engine_->num_submitted(), 0u);
}

}  // namespace
}  // namespace quire::server
