#pragma once
// What the tests of HttpServer share: a handler that knows a few paths, and a server on a port that
// the system chooses.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "server/http/http_server.h"
#include "server/http/sse.h"

namespace quire::server::http {

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
      const std::chrono::milliseconds pause(request.head.path == "/late" ? 2 : 100);
      ++begun;
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

  std::atomic<int> begun{0}, closed{0}, incomplete{0};
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

  TestHandler handler_;
  std::unique_ptr<HttpServer> server_;
  uint16_t port_ = 0;
};

inline std::string get_text(const std::string& path) {
  return "GET " + path + " HTTP/1.1\r\nHost: h\r\n\r\n";
}

}  // namespace quire::server::http
