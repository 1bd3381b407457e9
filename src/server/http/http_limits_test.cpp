// What one client can make an HttpServer hold, and that others get through meanwhile.
#include <gtest/gtest.h>

#include <semaphore>
#include <thread>

#include "base/clock.h"
#include "server/http/http_server.h"
#include "server/http/sse.h"
#include "server/test_client.h"
#include "server/test_eventually.h"

namespace quire::server::http {
namespace {

using std::chrono::milliseconds;
constexpr size_t kMiB = 1u << 20;

class LimitsHandler : public HttpHandler {
 public:
  std::optional<Response> check(const RequestHead&) override { return std::nullopt; }
  std::string owner(const RequestHead& head) override {
    return std::string(head.header("x-owner"));
  }
  void handle(ExchangePtr exchange) override {
    const std::string& path = exchange->request().head.path;
    if (path == "/work") return work(exchange);
    if (path == "/wait") {
      exchange->on_close([this] { ++gone; });
      ++waiting;
      return;
    }
    if (path == "/open") return open(exchange);
    if (path == "/large") return large(exchange);
    if (path == "/quick") return quick(exchange);
    if (path == "/busy") {  // keeps its thread until the test lets it go
      ++busy;
      permits.acquire();
    }
    if (path == "/client")
      return exchange->respond(error_response(200, exchange->request().client));
    exchange->respond(error_response(200, path));
  }
  Response error_response(int status, const std::string& message) override {
    Response response;
    response.status = status;
    response.body = message;
    return response;
  }
  void finished(const Request&, const Outcome& outcome) override {
    if (outcome.status == 429) ++refused;
  }

  // Writes to the stream that was opened last.
  void write(size_t bytes, const std::string& end) {
    const std::scoped_lock lock(mutex_);
    open_->post(
        [exchange = open_, data = std::string(bytes, 'e') + end] { exchange->write(data); });
  }

  std::atomic<int> started{0}, cancelled{0}, refused{0}, pieces{0}, busy{0}, waiting{0}, gone{0};
  std::counting_semaphore<> permits{0};  // for what is busy

 private:
  void open(const ExchangePtr& exchange) {
    Response head;
    head.content_type = kEventStream;
    exchange->begin_stream(std::move(head));
    exchange->on_close([this] { ++gone; });
    const std::scoped_lock lock(mutex_);
    open_ = exchange;
    ++waiting;
  }
  // Works until the budget is cancelled.
  void work(const ExchangePtr& exchange) {
    exchange->run_in_background([this, exchange] {
      ++started;
      while (!exchange->budget().cancelled) std::this_thread::sleep_for(milliseconds(1));
      ++cancelled;
    });
  }
  void quick(const ExchangePtr& exchange) {
    exchange->run_in_background([this, exchange] {
      exchange->post([=, this] { exchange->respond(error_response(200, "")); });
    });
  }
  void large(const ExchangePtr& exchange) {
    const auto left = std::make_shared<int>(400);
    exchange->respond_in_pieces({}, [this, left](std::string& out) {
      ++pieces;
      out.append(65536, static_cast<char>('a' + *left % 26));
      return --*left > 0;
    });
  }

  std::mutex mutex_;
  ExchangePtr open_;
};

class HttpLimitsTest : public testing::Test {
 protected:
  void start(const std::function<void(HttpOptions&)>& change = {}) {
    HttpOptions options;
    options.port = 0;
    if (change) change(options);
    server_ = std::make_unique<HttpServer>(options, handler_);
    port_ = server_->start();
  }
  std::vector<std::unique_ptr<TestClient>> clients(int count, const std::string& bytes) {
    std::vector<std::unique_ptr<TestClient>> all;
    for (int i = 0; i < count; ++i) {
      all.push_back(std::make_unique<TestClient>(port_));
      all.back()->try_send(bytes);
    }
    return all;
  }

  int asked_ = 0;
  LimitsHandler handler_;
  std::unique_ptr<HttpServer> server_;
  uint16_t port_ = 0;
};

std::string unfinished_body(size_t bytes) {
  return "POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 30000000\r\n\r\n" +
         std::string(bytes, 'x');
}

TEST_F(HttpLimitsTest, UnfinishedBodiesAreHeldUpToALimit) {
  start([](HttpOptions& options) {
    options.max_buffered_bytes = 32 * kMiB;
    options.max_connections = 64;
    options.max_body_bytes = 40'000'000;
  });
  auto large = clients(1, "POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 16000000\r\n\r\n");
  EXPECT_EQ(large[0]->receive().status, 503);  // before a byte of it
  // Chunks do not say how long a body will be.
  const std::string chunk = "POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n" +
                            std::string("200000\r\n") + std::string(2 * kMiB, 'x');
  std::vector<std::unique_ptr<TestClient>> taken, refused;
  for (size_t i = 1; i <= 7; ++i) {
    taken.push_back(std::move(clients(1, chunk)[0]));
    ASSERT_TRUE(eventually([&] { return server_->ledger().held(Held::kBodies) == i * 2 * kMiB; }));
  }
  for (int i = 0; i < 3; ++i) {
    refused.push_back(std::move(clients(1, chunk)[0]));
    EXPECT_EQ(refused.back()->receive().status, 503) << i;
  }
  TestClient small(port_);
  EXPECT_EQ(small.post("/small", std::string(20'000, 'x')).status, 200);
  for (const auto& client : taken) {
    client->send("\r\n0\r\n\r\n");
    EXPECT_EQ(client->receive().status, 200);
  }
  EXPECT_TRUE(eventually([&] { return server_->ledger().held() == 0; }));
}

TEST_F(HttpLimitsTest, AClientIsTheSameOnAServerForBothProtocols) {
  try {
    start([](HttpOptions& options) { options.host = "::"; });
  } catch (const std::exception& error) {
    GTEST_SKIP() << error.what();
  }
  EXPECT_EQ(TestClient(port_).get("/client").body, "127.0.0.1");
}

// 600 connections keep both threads as long as the test wants. Another client's request goes behind
// some of their requests, not behind all that each connection has sent ahead. Permits come in
// small lots, and the next one only when both threads wait again: how fast they are plays no part.
TEST_F(HttpLimitsTest, ConnectionsOfOneAddressHaveItsTurnsOnly) {
  start();
  std::string requests;
  for (int i = 0; i < 7; ++i) requests += "GET /busy HTTP/1.1\r\nHost: h\r\n\r\n";
  const auto many = clients(600, requests);
  int released = 0;
  const auto let_go = [&](int requests) {
    handler_.permits.release(requests);
    released += requests;
    return eventually([&] { return handler_.busy == released + 2; });
  };
  ASSERT_TRUE(let_go(1000));
  for (int i = 0; i < 5; ++i) {
    TestClient other(port_, "127.0.0.2");
    other.send("GET /other HTTP/1.1\r\nHost: h\r\n\r\n");
    int before = 0;
    for (; before < 600 && !other.has_input(); before += 20) ASSERT_TRUE(let_go(20)) << i;
    ASSERT_LT(before, 600) << i;
    EXPECT_EQ(other.receive().body, "/other") << i;
  }
  handler_.permits.release(600 * 7);
  // All have their answers in the end.
  for (const auto& client : many)
    for (int i = 0; i < 7; ++i) ASSERT_EQ(client->receive().body, "/busy");
}

TEST_F(HttpLimitsTest, IdleConnectionsMakeRoom) {
  start([](HttpOptions& options) { options.max_connections = 20; });
  const auto idle = clients(20, "");
  ASSERT_TRUE(eventually([&] { return server_->num_connections() == 20; }));
  TestClient client(port_);
  EXPECT_EQ(client.get("/health").status, 200);
  // The oldest went, and no other.
  EXPECT_TRUE(idle[0]->closed_by_server());
  EXPECT_EQ(idle[19]->get("/still").status, 200);
  EXPECT_EQ(client.get("/again").status, 200);
}

TEST_F(HttpLimitsTest, SlowHeadersAndBodiesMakeRoom) {
  start([](HttpOptions& options) { options.max_connections = 20; });
  const auto heads = clients(10, "GET /slow HTTP/1.1\r\nHost:");
  const auto bodies = clients(10, unfinished_body(10));
  ASSERT_TRUE(eventually([&] { return server_->num_connections() == 20; }));
  for (int i = 0; i < 12; ++i) {
    TestClient client(port_);
    EXPECT_EQ(client.get("/health").status, 200) << i;
    client.close();
  }
}

TEST_F(HttpLimitsTest, ConnectionsAtWorkStay) {
  start([](HttpOptions& options) {
    options.max_connections = 4;
    options.worker_threads = 10;  // one client uses four of those for small requests
  });
  const auto busy = clients(4, "GET /work HTTP/1.1\r\nHost: h\r\n\r\n");
  ASSERT_TRUE(eventually([&] { return handler_.started == 4; }));
  TestClient client(port_);
  EXPECT_TRUE(client.closed_by_server());
  EXPECT_EQ(handler_.cancelled, 0);
}

TEST_F(HttpLimitsTest, TheLastPlacesAreNotForOneAddress) {
  start([](HttpOptions& options) { options.max_connections = 128; });
  auto busy = clients(126, "GET /wait HTTP/1.1\r\nHost: h\r\n\r\n");
  ASSERT_TRUE(eventually([&] { return handler_.waiting == 126; }));
  EXPECT_TRUE(TestClient(port_).closed_by_server());
  EXPECT_EQ(TestClient(port_, "127.0.0.2").get("/health").status, 200);
  EXPECT_EQ(handler_.gone, 0);
  busy[0]->close();
  EXPECT_TRUE(eventually([&] { return server_->num_connections() == 125; }));
  EXPECT_EQ(TestClient(port_).get("/again").status, 200);
}

TEST_F(HttpLimitsTest, WhatIsSentAheadIsInTheLedger) {
  start();
  auto client = std::make_unique<TestClient>(port_);
  client->send("GET /wait HTTP/1.1\r\nHost: h\r\n\r\n");
  client->send(std::string(40'000, 'G'));
  EXPECT_TRUE(eventually([&] { return server_->ledger().held(Held::kBodies) == 40'000; }));
  client.reset();
  EXPECT_TRUE(eventually([&] { return handler_.gone == 1; }));
  EXPECT_TRUE(eventually([&] { return server_->ledger().held() == 0; }));
}

TEST_F(HttpLimitsTest, TheAddressWithMostConnectionsGivesItsNewestUp) {
  start([](HttpOptions& options) { options.max_connections = 20; });
  const std::string wait = "GET /wait HTTP/1.1\r\nHost: h\r\n\r\n";
  std::vector<std::unique_ptr<TestClient>> first, second, third;
  const auto fill = [&](auto& list, const char* from, int count) {
    for (int i = 0; i < count; ++i) {
      list.push_back(std::make_unique<TestClient>(port_, from));
      list.back()->send(wait);
      const int all = ++asked_;
      ASSERT_TRUE(eventually([&] { return handler_.waiting == all; }));
    }
  };
  fill(first, "127.0.0.1", 12);
  fill(second, "127.0.0.2", 8);
  EXPECT_EQ(TestClient(port_, "127.0.0.3").get("/health").status, 200);
  EXPECT_TRUE(eventually([&] { return handler_.gone == 1; }));
  EXPECT_TRUE(first[11]->closed_by_server());
  EXPECT_TRUE(eventually([&] { return server_->num_connections() == 19; }));
  fill(third, "127.0.0.3", 6);  // of 20 now 7, 7 and 6
  for (const char* from : {"127.0.0.1", "127.0.0.3"})
    EXPECT_TRUE(TestClient(port_, from).closed_by_server());
  EXPECT_TRUE(eventually([&] { return handler_.gone == 6; }));
}

// 4 KiB at a time, with packets so small that the server can send on after each.
TEST_F(HttpLimitsTest, ReadersNeedALeastPace) {
  start([](HttpOptions& options) { options.write_timeout = milliseconds(1500); });
  TestClient slow(port_, nullptr, 536);
  const TimePoint start = Clock::now();  // before the server's clock starts
  slow.send("GET /large HTTP/1.1\r\nHost: h\r\n\r\n");
  ASSERT_TRUE(eventually([&] { return server_->num_connections() == 1; }));
  bool open = true;
  while (open && seconds_since(start) < 120) {
    open = server_->num_connections() == 1 && slow.read_some(4096);
    std::this_thread::sleep_for(milliseconds(200));
  }
  EXPECT_FALSE(open);
  EXPECT_GT(seconds_since(start), 1.0);
}

TEST_F(HttpLimitsTest, WorkEndsWithItsClientAndWithTheServer) {
  start();
  clients(3, "GET /work HTTP/1.1\r\nHost: h\r\n\r\n");  // and gone
  const auto waiting = clients(6, "GET /work HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_TRUE(eventually([&] { return handler_.started - handler_.cancelled == 2; }));
  EXPECT_TRUE(eventually([&] { return server_->num_waiting_jobs() >= 4; }));
  const TimePoint start = Clock::now();
  server_->stop(milliseconds(10));
  EXPECT_LT(seconds_since(start), 120.0);
  EXPECT_EQ(handler_.started, handler_.cancelled);
}

TEST_F(HttpLimitsTest, TooMuchWorkIsRefused) {
  start([](HttpOptions& options) {
    options.worker_threads = 2;
    options.max_waiting_jobs = 5;
  });
  const std::string work = "GET /work HTTP/1.1\r\nHost: h\r\n\r\n";
  const auto running = clients(1, work);
  ASSERT_TRUE(eventually([&] { return handler_.started == 1; }));
  const auto others = clients(8, work);
  EXPECT_TRUE(eventually([&] { return server_->num_waiting_jobs() == 5; }));
  EXPECT_TRUE(eventually([&] { return handler_.refused == 3; }));
  TestClient client(port_);
  EXPECT_EQ(client.get("/work").status, 429);
}

TEST_F(HttpLimitsTest, OwnersOfOneAddressDoNotKeepEachOtherOut) {
  start([](HttpOptions& options) {
    options.worker_threads = 2;
    options.max_waiting_jobs = 3;
  });
  const std::string work = "GET /work HTTP/1.1\r\nHost: h\r\nX-Owner: a\r\n\r\n";
  const auto running = clients(1, work);
  ASSERT_TRUE(eventually([&] { return handler_.started == 1; }));
  const auto waiting = clients(3, work);
  ASSERT_TRUE(eventually([&] { return server_->num_waiting_jobs() == 3; }));
  TestClient other(port_);
  other.send("GET /quick HTTP/1.1\r\nHost: h\r\nX-Owner: b\r\n\r\n");
  EXPECT_TRUE(eventually([&] { return handler_.refused == 1; }));  // one of a's
  EXPECT_EQ(server_->num_waiting_jobs(), 3u);
  running[0]->close();
  for (const auto& client : waiting) client->close();
  EXPECT_EQ(other.receive().status, 200);
}

TEST_F(HttpLimitsTest, WorkThatWaitsTooLongIsRefused) {
  start([](HttpOptions& options) {
    options.worker_threads = 2;
    options.max_job_wait = milliseconds(200);
  });
  const std::string work = "GET /work HTTP/1.1\r\nHost: h\r\n\r\n";
  // Where a machine is so busy that the first one waits too long itself, another one is sent.
  std::vector<std::unique_ptr<TestClient>> running;
  ASSERT_TRUE(eventually([&] {
    if (handler_.refused == static_cast<int>(running.size()))
      running.push_back(std::move(clients(1, work)[0]));
    return handler_.started == 1;
  }));
  TestClient client(port_);
  EXPECT_EQ(client.get("/work").status, 429);
  EXPECT_EQ(handler_.started, 1);
}

TEST_F(HttpLimitsTest, StreamsThatAreReadGoOnWhateverOthersHold) {
  start([](HttpOptions& options) { options.max_buffered_bytes = 8 * kMiB; });
  // Each takes about half of what is left of 4 MiB.
  std::vector<std::unique_ptr<TestClient>> others;
  size_t held = 0;
  for (const size_t body : {2'000'000, 1'000'000, 500'000, 250'000, 200'000}) {
    others.push_back(std::make_unique<TestClient>(port_));
    others.back()->send("POST /x HTTP/1.1\r\nHost: h\r\nx-owner: " + std::to_string(body) +
                        "\r\nContent-Length: " + std::to_string(body) + "\r\n\r\n" +
                        std::string(body - 1, 'x'));
    held += body - 1;
    ASSERT_TRUE(eventually([&] { return server_->ledger().held() == held; })) << body;
  }
  TestClient reader(port_);
  reader.send("GET /open HTTP/1.1\r\nHost: h\r\n\r\n");
  ASSERT_TRUE(eventually([&] { return handler_.waiting == 1; }));
  for (int i = 0; i < 5; ++i) {
    handler_.write(200'000, "end " + std::to_string(i));
    ASSERT_TRUE(reader.read_until("end " + std::to_string(i)));
  }
  EXPECT_EQ(handler_.gone, 0);
}

TEST_F(HttpLimitsTest, AnEventMayBeLargerThanWhatMayBeUnread) {
  start([](HttpOptions& options) { options.max_unsent_bytes = 1u << 20; });
  TestClient client(port_);
  client.send("GET /open HTTP/1.1\r\nHost: h\r\n\r\n");
  ASSERT_TRUE(eventually([&] { return handler_.waiting == 1; }));
  handler_.write(4 * kMiB, "end");
  ASSERT_TRUE(client.read_until("end"));
  EXPECT_EQ(handler_.gone, 0);
  handler_.write(20 * kMiB, "end");
  handler_.write(1, "end");  // while most of the other is unread
  EXPECT_TRUE(eventually([&] { return handler_.gone == 1; }));
}

TEST_F(HttpLimitsTest, LargeAnswersAreMadeAsFastAsTheyAreRead) {
  start();
  TestClient slow(port_);
  slow.send("GET /large HTTP/1.1\r\nHost: h\r\n\r\n");
  ASSERT_TRUE(eventually([&] { return handler_.pieces > 0; }));
  std::this_thread::sleep_for(milliseconds(300));
  EXPECT_LT(handler_.pieces, 250);  // what the sockets take
  EXPECT_LT(server_->ledger().held(), kMiB);
  const auto response = slow.receive();
  EXPECT_TRUE(response.complete);
  ASSERT_EQ(response.body.size(), 400u * 65536);
  for (int i = 0; i < 400; ++i)
    ASSERT_EQ(response.body[static_cast<size_t>(i) * 65536], 'a' + (400 - i) % 26) << i;
  EXPECT_EQ(slow.get("/next").status, 200);
  EXPECT_TRUE(eventually([&] { return server_->ledger().held() == 0; }));
}

}  // namespace
}  // namespace quire::server::http
