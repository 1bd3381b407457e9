#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "server/http/message.h"

namespace quire::server::http {

// One request and the answer being made for it. Everything but post() and run_in_background() is
// called on the connection's strand: in HttpHandler::handle and in posted functions.
//
// The answer is either one respond(), or begin_stream(), any number of writes, end_stream(). After
// the client has gone (on_close) calls have no effect.
class Exchange {
 public:
  virtual ~Exchange() = default;

  virtual const Request& request() const = 0;
  // Moves the body out, so that it need not live as long as a long answer. Once, on the strand or
  // in the one background task that reads it.
  virtual std::string take_body() = 0;

  virtual void respond(Response response) = 0;
  virtual void begin_stream(Response head) = 0;  // its body is not used
  virtual void write(std::string_view data) = 0;
  virtual void end_stream() = 0;
  virtual bool answered() const = 0;  // respond or begin_stream was called

  // Called once, on the strand, if the client goes away or stops reading before the answer is
  // complete.
  virtual void on_close(std::function<void()> callback) = 0;

  // Any thread: runs `task` on the strand, never inside this call.
  virtual void post(std::function<void()> task) = 0;
  // Any thread: runs `task` on a worker thread. If it throws, the client gets status 500.
  virtual void run_in_background(std::function<void()> task) = 0;
};

using ExchangePtr = std::shared_ptr<Exchange>;

// What answers the requests of an HttpServer. Methods are called on several threads at once.
class HttpHandler {
 public:
  virtual ~HttpHandler() = default;
  // Judges a request by its head, before its body is read. A response refuses it.
  virtual std::optional<Response> check(const RequestHead& head) = 0;
  virtual void handle(ExchangePtr exchange) = 0;
  // The answer to what never became a request, or whose handling failed.
  virtual Response error_response(int status, const std::string& message) = 0;

  struct Outcome {
    int status = 0;  // 0: the client went away before an answer
    double seconds = 0;
    bool complete = false;
  };
  virtual void finished(const Request& request, const Outcome& outcome) = 0;
};

}  // namespace quire::server::http
