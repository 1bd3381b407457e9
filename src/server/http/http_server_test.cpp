#include "server/http/http_server.h"

#include <gtest/gtest.h>

#include <mutex>
#include <thread>

#include "base/clock.h"
#include "server/http/sse.h"
#include "server/test_client.h"

namespace quire::server::http {
namespace {

using std::chrono::milliseconds;

// Knows a few paths; what it answers depends on the request alone.
class TestHandler : public HttpHandler {
 public:
  std::optional<Response> check(const RequestHead& head) override {
    if (head.path == "/refused") return error_response(401, "no");
    return std::nullopt;
  }

  void handle(ExchangePtr exchange) override {
    const Request& request = exchange->request();
    if (request.head.path == "/throw") throw std::runtime_error("a bug");
    if (request.head.path == "/throw-in-background")
      return exchange->run_in_background([] { throw std::runtime_error("a bug"); });
    if (request.head.path == "/echo") return respond(exchange, request.body);
    if (request.head.path == "/late" || request.head.path == "/later") {
      const milliseconds pause(request.head.path == "/late" ? 2 : 100);
      return exchange->run_in_background([exchange, pause] {
        std::this_thread::sleep_for(pause);
        exchange->post([exchange] { respond(exchange, "late " + exchange->request().head.query); });
      });
    }
    if (request.head.path == "/events") return stream_events(exchange);
    if (request.head.path == "/flood") return flood(exchange);
    if (request.head.path == "/never") {
      const std::scoped_lock lock(mutex);
      waiting.push_back(exchange);
      exchange->on_close([this] { ++closed; });
      return;
    }
    respond(exchange, request.head.path);
  }

  Response error_response(int status, const std::string& message) override {
    Response response;
    response.status = status;
    response.body = message;
    return response;
  }
  void finished(const Request&, const Outcome& outcome) override {
    if (!outcome.complete) ++incomplete;
  }

  std::atomic<int> closed{0}, incomplete{0};
  std::mutex mutex;
  std::vector<ExchangePtr> waiting;

 private:
  static void respond(const ExchangePtr& exchange, const std::string& body) {
    Response response;
    response.content_type = "text/plain";
    response.body = body;
    exchange->respond(std::move(response));
  }
  static void stream_events(const ExchangePtr& exchange) {
    Response head;
    head.content_type = kEventStream;
    exchange->begin_stream(std::move(head));
    for (int i = 0; i < 3; ++i) exchange->write(sse_event(std::to_string(i)));
    exchange->end_stream();
  }
  // Writes until the client is given up.
  void flood(const ExchangePtr& exchange) {
    Response head;
    head.content_type = kEventStream;
    exchange->begin_stream(std::move(head));
    const auto going = std::make_shared<std::atomic<bool>>(true);
    exchange->on_close([this, going] {
      *going = false;
      ++closed;
    });
    write_more(exchange, going);
  }
  void write_more(const ExchangePtr& exchange, std::shared_ptr<std::atomic<bool>> going) {
    if (!*going) return;
    exchange->write(sse_event(std::string(65536, 'x')));
    exchange->post([this, exchange, going] { write_more(exchange, going); });
  }
};

class HttpServerTest : public testing::Test {
 protected:
  void start(const std::function<void(HttpOptions&)>& change = {}) {
    HttpOptions options;
    options.port = 0;
    options.io_threads = 2;
    options.worker_threads = 2;
    if (change) change(options);
    server_ = std::make_unique<HttpServer>(options, handler_);
    port_ = server_->start();
  }
  static bool eventually(const std::function<bool()>& condition) {
    for (int i = 0; i < 12'000 && !condition(); ++i) std::this_thread::sleep_for(milliseconds(5));
    return condition();
  }

  TestHandler handler_;
  std::unique_ptr<HttpServer> server_;
  uint16_t port_ = 0;
};

std::string get_text(const std::string& path) {
  return "GET " + path + " HTTP/1.1\r\nHost: h\r\n\r\n";
}

TEST_F(HttpServerTest, KeepsConnectionsAlive) {
  start();
  TestClient client(port_);
  for (int i = 0; i < 5; ++i) {
    const std::string path = "/" + std::to_string(i);
    const auto response = client.get(path);
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(response.body, path);
  }
  EXPECT_EQ(client.post("/echo", std::string(300'000, 'b')).body.size(), 300'000u);
  EXPECT_EQ(server_->num_connections(), 1u);
}

TEST_F(HttpServerTest, AnswersPipelinedRequestsInOrder) {
  start();
  TestClient client(port_);
  std::string all;
  for (int i = 0; i < 5; ++i) {
    all += get_text("/late?" + std::to_string(i)) + get_text("/events") +
           TestClient::post_text("/echo", std::to_string(i));
  }
  client.send(all);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(client.receive().body, "late " + std::to_string(i));
    EXPECT_EQ(client.receive().body, "data: 0\n\ndata: 1\n\ndata: 2\n\n");
    EXPECT_EQ(client.receive().body, std::to_string(i));
  }
}

TEST_F(HttpServerTest, TakesRequestsByteByByte) {
  start();
  TestClient client(port_);
  for (const char c : TestClient::post_text("/echo", "slow")) {
    client.send(std::string_view(&c, 1));
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  EXPECT_EQ(client.receive().body, "slow");
}

TEST_F(HttpServerTest, AnswersHead) {
  start();
  TestClient client(port_);
  client.send("HEAD /abc HTTP/1.1\r\nHost: h\r\n\r\n" + get_text("/next"));
  const auto head = client.receive(true);
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.headers.at("content-length"), "4");
  EXPECT_EQ(client.receive().body, "/next");
}

TEST_F(HttpServerTest, ClosesAfterAnswersToOldClients) {
  start();
  TestClient client(port_);
  client.send("GET /events HTTP/1.0\r\n\r\n");
  auto response = client.receive();
  EXPECT_FALSE(response.headers.contains("transfer-encoding"));
  EXPECT_EQ(response.headers["connection"], "close");
  EXPECT_EQ(response.body, "data: 0\n\ndata: 1\n\ndata: 2\n\n");
  TestClient keeping(port_);  // cannot keep a connection whose answer has no length
  keeping.send("GET /events HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_EQ(keeping.receive().headers["connection"], "close");
  TestClient asking(port_);
  asking.send("GET /a HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(asking.receive().body, "/a");
  EXPECT_TRUE(asking.closed_by_server());
}

TEST_F(HttpServerTest, RefusesBadRequestsAndCloses) {
  start([](HttpOptions& options) {
    options.max_body_bytes = 1000;
    options.max_header_bytes = 2000;
  });
  const std::pair<std::string, int> cases[] = {
      {"NONSENSE\r\n\r\n", 400},
      {"GET / HTTP/3.0\r\n\r\n", 505},
      {"GET / HTTP/1.1\r\nHost: h\r\nA: " + std::string(5000, 'a') + "\r\n\r\n", 431},
      {TestClient::post_text("/echo", std::string(1001, 'x')), 413},
      {TestClient::post_text("/echo", "x", "Expect: magic\r\n").substr(0, 120), 417},
  };
  for (const auto& [text, status] : cases) {
    TestClient client(port_);
    client.send(text);
    EXPECT_EQ(client.receive().status, status) << text.substr(0, 60);
    EXPECT_TRUE(client.closed_by_server());
  }
}

// The refusal must arrive although the client is still sending: closing too early would reset the
// connection under it.
TEST_F(HttpServerTest, RefusalOfALargeBodyReachesTheClient) {
  start([](HttpOptions& options) { options.max_body_bytes = 1000; });
  for (int i = 0; i < 10; ++i) {
    TestClient client(port_);
    client.try_send(TestClient::post_text("/echo", std::string(4'000'000, 'x')));
    EXPECT_EQ(client.receive().status, 413);
  }
}

TEST_F(HttpServerTest, RefusesByTheHeadAlone) {
  start();
  TestClient client(port_);
  client.send("POST /refused HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n");
  EXPECT_EQ(client.receive().status, 401);  // without having sent the body
  TestClient again(port_);
  EXPECT_EQ(again.get("/refused").status, 401);
  EXPECT_EQ(again.get("/fine").status, 200);  // without a body the connection lives on
}

TEST_F(HttpServerTest, AsksForBodiesThatWait) {
  start();
  TestClient client(port_);
  client.send(
      "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n");
  ASSERT_TRUE(client.read_until("HTTP/1.1 100 Continue\r\n\r\n"));
  client.received().clear();
  client.send("abc");
  EXPECT_EQ(client.receive().body, "abc");
}

TEST_F(HttpServerTest, OurBugsAreStatus500AndHarmNobodyElse) {
  start();
  TestClient client(port_);
  EXPECT_EQ(client.get("/throw").status, 500);
  EXPECT_EQ(client.get("/throw-in-background").status, 500);
  const auto response = client.get("/fine");
  EXPECT_EQ(response.status, 200);
}

// Clients that begin a request and do not end it: half of them within the head, half within the body.
std::vector<std::unique_ptr<TestClient>> begin_slow_requests(int port) {
  std::vector<std::unique_ptr<TestClient>> slow;
  for (int i = 0; i < 50; ++i) {
    slow.push_back(std::make_unique<TestClient>(port));
    slow.back()->send(i % 2 == 0 ? "GET / HT"
                                 : "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nx");
  }
  return slow;
}

TEST_F(HttpServerTest, SlowRequestsStallNobody) {
  start([](HttpOptions& options) {
    options.header_timeout = milliseconds(3'600'000);
    options.body_timeout = milliseconds(3'600'000);
  });
  const auto slow = begin_slow_requests(port_);
  TestClient quick(port_);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(quick.get("/a").status, 200);
  EXPECT_EQ(server_->num_connections(), 51u);
}

TEST_F(HttpServerTest, SlowRequestsTimeOut) {
  start([](HttpOptions& options) {
    options.header_timeout = milliseconds(400);
    options.body_timeout = milliseconds(400);
  });
  const auto slow = begin_slow_requests(port_);
  // A byte now and then does not restart the clock.
  for (int i = 0; i < 3; ++i) {
    std::this_thread::sleep_for(milliseconds(100));
    for (const auto& client : slow) client->try_send("x");
  }
  for (const auto& client : slow) {
    EXPECT_EQ(client->receive().status, 408);
    EXPECT_TRUE(client->closed_by_server());
  }
}

TEST_F(HttpServerTest, IdleConnectionsAreClosed) {
  start([](HttpOptions& options) { options.idle_timeout = milliseconds(200); });
  TestClient client(port_);
  EXPECT_EQ(client.get("/a").status, 200);
  EXPECT_TRUE(client.closed_by_server());
  EXPECT_TRUE(eventually([&] { return server_->num_connections() == 0; }));
}

TEST_F(HttpServerTest, NoticesClientsThatGoAway) {
  start();
  for (int i = 0; i < 20; ++i) {
    TestClient client(port_);
    client.send(get_text("/never"));
    if (i % 2 == 0) client.send(get_text("/pipelined"));  // waits in the buffer: still watched
    ASSERT_TRUE(eventually([&] {
      const std::scoped_lock lock(handler_.mutex);
      return handler_.waiting.size() == static_cast<size_t>(i) + 1;
    }));
  }
  EXPECT_TRUE(eventually([&] { return handler_.closed == 20 && server_->num_connections() == 0; }));
}

TEST_F(HttpServerTest, CutsOffClientsThatDoNotRead) {
  start([](HttpOptions& options) { options.max_unsent_bytes = 1u << 20; });
  TestClient stuck(port_);
  stuck.set_receive_buffer(4096);
  stuck.send(get_text("/flood"));
  // Others go on meanwhile.
  TestClient other(port_);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(other.get("/a").status, 200);
  EXPECT_TRUE(eventually([&] { return handler_.closed == 1; }));
  EXPECT_TRUE(eventually([&] { return server_->num_connections() == 1; }));
  EXPECT_EQ(server_->buffered_bytes(), 0u);
}

TEST_F(HttpServerTest, PingsSilentEventStreams) {
  start([](HttpOptions& options) { options.ping_interval = milliseconds(150); });
  TestClient client(port_);
  client.send(get_text("/never"));
  ASSERT_TRUE(eventually([&] {
    const std::scoped_lock lock(handler_.mutex);
    return !handler_.waiting.empty();
  }));
  const ExchangePtr exchange = handler_.waiting.front();
  exchange->post([exchange] {
    Response head;
    head.content_type = kEventStream;
    exchange->begin_stream(std::move(head));
  });
  EXPECT_TRUE(client.read_until(": ping\n\n"));
  exchange->post([exchange] { exchange->end_stream(); });
  EXPECT_TRUE(client.read_until("0\r\n\r\n"));
}

TEST_F(HttpServerTest, TurnsAwayWhatIsTooMuch) {
  start([](HttpOptions& options) {
    options.max_connections = 3;
    options.max_buffered_bytes = 100'000;
  });
  TestClient a(port_), b(port_), c(port_);
  for (auto* client : {&a, &b, &c}) EXPECT_EQ(client->get("/x").status, 200);
  TestClient d(port_);
  EXPECT_TRUE(d.closed_by_server());
  a.try_send(TestClient::post_text("/echo", std::string(200'000, 'x')));
  EXPECT_EQ(a.receive().status, 503);
}

TEST_F(HttpServerTest, StopLetsAnswersReachTheirClients) {
  start();
  TestClient busy(port_), idle(port_);
  EXPECT_EQ(idle.get("/x").status, 200);
  busy.send(get_text("/later?x"));
  std::this_thread::sleep_for(milliseconds(10));
  server_->drain();
  EXPECT_TRUE(idle.closed_by_server());
  TestClient fresh(port_);
  auto last = fresh.get("/x");  // answered, for the last time
  EXPECT_EQ(last.headers["connection"], "close");
  const auto response = busy.receive();
  EXPECT_EQ(response.body, "late x");
  TestClient silent(port_);  // connected, and says nothing: nothing to wait for
  const TimePoint start = Clock::now();
  server_->stop(milliseconds(3'600'000));
  EXPECT_LT(seconds_since(start), 120.0);
}

TEST_F(HttpServerTest, StopEndsWhatNeverEnds) {
  start();
  TestClient client(port_);
  client.send(get_text("/never"));
  ASSERT_TRUE(eventually([&] {
    const std::scoped_lock lock(handler_.mutex);
    return !handler_.waiting.empty();
  }));
  server_->stop(milliseconds(50));
  EXPECT_EQ(handler_.closed, 1);
  EXPECT_TRUE(client.closed_by_server());
}

// An exchange that somebody still holds when the server is gone does nothing and crashes nothing.
TEST_F(HttpServerTest, ExchangesMayOutliveTheServer) {
  start();
  TestClient client(port_);
  client.send(get_text("/never"));
  ASSERT_TRUE(eventually([&] {
    const std::scoped_lock lock(handler_.mutex);
    return !handler_.waiting.empty();
  }));
  server_.reset();
  ExchangePtr exchange = handler_.waiting.front();
  handler_.waiting.clear();
  exchange->post([] { FAIL() << "a task of a dead server ran"; });
  exchange.reset();
}

TEST_F(HttpServerTest, ServesManyClientsAtOnce) {
  start();
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      std::vector<std::unique_ptr<TestClient>> clients;
      for (int i = 0; i < 32; ++i) clients.push_back(std::make_unique<TestClient>(port_));
      for (int round = 0; round < 5; ++round) {
        for (int i = 0; i < 32; ++i)
          clients[i]->send(get_text("/late?" + std::to_string(t * 100 + i)));
        for (int i = 0; i < 32; ++i)
          wrong += clients[i]->receive().body != "late " + std::to_string(t * 100 + i);
        if (t == 0) break;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(HttpServerTest, TellsWhyItCannotListen) {
  start();
  HttpOptions options;
  options.port = port_;
  HttpServer second(options, handler_);
  try {
    second.start();
    FAIL();
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what()).find("cannot listen on 127.0.0.1:"), std::string::npos);
  }
}

}  // namespace
}  // namespace quire::server::http
