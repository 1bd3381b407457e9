// Clients that are slow, idle, gone or far ahead, and what HttpServer does about them.
#include <gtest/gtest.h>

#include <thread>

#include "server/http/test_http_server.h"
#include "server/test_client.h"
#include "server/test_eventually.h"

namespace quire::server::http {
namespace {

using std::chrono::milliseconds;

// Clients that begin a request and do not end it: half of them within the head, half within the
// body.
std::vector<std::unique_ptr<TestClient>> begin_slow_requests(uint16_t port) {
  std::vector<std::unique_ptr<TestClient>> slow;
  for (int i = 0; i < 50; ++i) {
    slow.push_back(std::make_unique<TestClient>(port));
    slow.back()->send(i % 2 == 0
                          ? "GET / HT"
                          : "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 9000\r\n\r\nx");
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
    options.header_timeout = milliseconds(500);
    options.body_timeout = milliseconds(500);
  });
  const auto slow = begin_slow_requests(port_);
  // A byte now and then does not restart the clock.
  const std::jthread drip([&](const std::stop_token& stop) {
    for (; !stop.stop_requested(); std::this_thread::sleep_for(milliseconds(20)))
      for (int i = 0; i < 2; ++i) slow[static_cast<size_t>(i)]->try_send("x");
  });
  for (const auto& client : slow) {
    EXPECT_EQ(client->receive().status, 408);
    EXPECT_TRUE(client->closed_by_server());
  }
}

TEST_F(HttpServerTest, IdleConnectionsAreClosed) {
  start([](HttpOptions& options) { options.idle_timeout = milliseconds(500); });
  // A client that a busy machine holds up before its request is closed as well: it comes again.
  std::optional<TestClient> client;
  ASSERT_TRUE(eventually([&] {
    client.emplace(port_);
    return client->try_send(get_text("/a")) && client->receive().status == 200;
  }));
  EXPECT_TRUE(client->closed_by_server());
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

TEST_F(HttpServerTest, AnswersClientsThatHaveEndedTheirSending) {
  start();
  for (const std::string path : {"/later?x", "/events", "/echo"}) {
    SCOPED_TRACE(path);
    TestClient direct(port_);
    const auto expected = direct.get(path).body;
    TestClient client(port_);
    client.send(get_text(path) + get_text(path));  // also what was sent ahead
    client.end_sending();
    for (int i = 0; i < 2; ++i) EXPECT_EQ(client.receive().body, expected);
    EXPECT_TRUE(client.closed_by_server());
  }
  EXPECT_TRUE(eventually([&] { return server_->num_connections() == 0; }));
  EXPECT_EQ(handler_.incomplete, 0);
}

// Nothing may be sent to an old client before its answer: its end of sending counts as its end.
TEST_F(HttpServerTest, OldClientsThatEndTheirSendingBeforeAnAnswerAreGone) {
  start();
  TestClient stream(port_);
  stream.send("GET /events HTTP/1.0\r\n\r\n");
  stream.end_sending();
  EXPECT_EQ(stream.receive().body, "data: 0\n\ndata: 1\n\ndata: 2\n\n");
  TestClient waiting(port_);
  waiting.send("GET /never HTTP/1.0\r\n\r\n");
  waiting.end_sending();
  EXPECT_TRUE(eventually([&] { return handler_.closed == 1; }));
}

// First it ends its sending, then it goes: no packet says so, only the next ping finds out.
TEST_F(HttpServerTest, NoticesClientsThatGoAfterTheirSending) {
  start([](HttpOptions& options) { options.ping_interval = milliseconds(100); });
  auto client = std::make_unique<TestClient>(port_);
  client->send(get_text("/never"));
  client->end_sending();
  ASSERT_TRUE(client->read_until("HTTP/1.1 100 Continue\r\n\r\n"));
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_EQ(handler_.closed, 0);
  client.reset();
  EXPECT_TRUE(eventually([&] { return handler_.closed == 1; }));
}

// What it has sent ahead hides the end of its sending.
TEST_F(HttpServerTest, NoticesClientsThatGoAfterSendingFarAhead) {
  start();
  for (const size_t ahead : {100'000, 3'000'000}) {
    auto client = std::make_unique<TestClient>(port_);
    client->send(get_text("/never"));
    std::thread sender([&] { client->try_send(std::string(ahead, 'G')); });
    ASSERT_TRUE(client->read_until("HTTP/1.1 100 Continue\r\n\r\n"));
    const int closed = handler_.closed;
    client->end_sending();
    sender.join();
    client.reset();
    EXPECT_TRUE(eventually([&] { return handler_.closed == closed + 1; }));
  }
}

TEST_F(HttpServerTest, AnswersClientsThatHaveSentFarAhead) {
  start();
  TestClient client(port_);
  std::string ahead = get_text("/later?x");
  for (int i = 0; i < 5; ++i) ahead += TestClient::post_text("/echo", std::string(40'000, 'a'));
  client.send(ahead);
  client.end_sending();
  EXPECT_EQ(client.receive().body, "late x");
  for (int i = 0; i < 5; ++i) EXPECT_EQ(client.receive().body.size(), 40'000u);
  EXPECT_TRUE(client.closed_by_server());
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
  EXPECT_EQ(server_->ledger().held(), 0u);
}

// An answer from a worker waits for a turn. If its client goes meanwhile, the turn must not be
// lost.
TEST_F(HttpServerTest, TurnsComeBackFromClientsThatGo) {
  start();
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 8; ++thread) {
    threads.emplace_back([this, thread] {
      for (int i = 0; i < 60; ++i) {
        TestClient client(port_);
        const std::string one = get_text("/late?x");
        client.try_send(one + one);
        if (i % 3 == thread % 3) {
          EXPECT_EQ(client.receive().body, "late x");
        }
        if (i % 3 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(thread));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(eventually([&] { return server_->num_connections() == 0; }));
  TestClient client(port_);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(client.get("/late?y").body, "late y");
}

}  // namespace
}  // namespace quire::server::http
