#include "server/http/http_server.h"

#include <gtest/gtest.h>

#include <thread>

#include "base/clock.h"
#include "server/http/test_http_server.h"
#include "server/test_client.h"
#include "server/test_eventually.h"

namespace quire::server::http {
namespace {

using std::chrono::milliseconds;

TEST(ReasonPhrase, IsThereForEveryStatusThatIsSent) {
  for (const int status :
       {200, 204, 400, 401, 403, 404, 405, 408, 411, 413, 415, 417, 429, 431, 500, 501, 503, 505})
    EXPECT_NE(reason_phrase(status), "Unknown") << status;
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
  for (const std::string expectation : {"100-continue", "100-Continue"}) {
    client.send("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nExpect: " + expectation +
                "\r\n\r\n");
    ASSERT_TRUE(client.read_until("HTTP/1.1 100 Continue\r\n\r\n")) << expectation;
    client.received().clear();
    client.send("abc");
    EXPECT_EQ(client.receive().body, "abc");
  }
}

TEST_F(HttpServerTest, OurBugsAreStatus500AndHarmNobodyElse) {
  start();
  TestClient client(port_);
  EXPECT_EQ(client.get("/throw").status, 500);
  EXPECT_EQ(client.get("/throw-in-background").status, 500);
  const auto response = client.get("/fine");
  EXPECT_EQ(response.status, 200);
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
  EXPECT_EQ(a.get("/x").status, 200);
  std::this_thread::sleep_for(milliseconds(100));  // so that it is the one that waits longest
  for (auto* client : {&b, &c}) EXPECT_EQ(client->get("/x").status, 200);
  TestClient d(port_);
  EXPECT_EQ(d.get("/x").status, 200);
  EXPECT_TRUE(a.closed_by_server());  // it has been idle longest
  b.try_send(TestClient::post_text("/echo", std::string(200'000, 'x')));
  EXPECT_EQ(b.receive().status, 503);
}

TEST_F(HttpServerTest, StopLetsAnswersReachTheirClients) {
  start();
  TestClient busy(port_), idle(port_);
  EXPECT_EQ(idle.get("/x").status, 200);
  busy.send(get_text("/later?x"));
  ASSERT_TRUE(eventually([&] { return handler_.begun == 1; }));
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

// It may have sent its request already, or be about to: closing would look like a fault.
TEST_F(HttpServerTest, DrainAnswersAConnectionThatHasJustBeenMade) {
  start();
  TestClient fresh(port_);
  ASSERT_TRUE(eventually([&] { return server_->num_connections() == 1; }));
  server_->drain();
  std::this_thread::sleep_for(milliseconds(50));
  auto answer = fresh.get("/x");
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.headers["connection"], "close");
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
