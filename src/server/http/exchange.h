#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/work_budget.h"
#include "server/http/ledger.h"
#include "server/http/message.h"

namespace quire::server::http {

// A request's body and what it holds of the ledger.
struct Body {
  std::string text;
  Charge charge;
};

// Appends the next bytes of an answer, some 64 KiB. False: there are none behind these.
using PieceSource = std::function<bool(std::string& out)>;

// One request and the answer being made for it. Everything but post(), account() and budget() is
// called on the connection's strand: in HttpHandler::handle and in posted functions.
//
// The answer is one respond(), or one respond_in_pieces(), or begin_stream(), any number of writes,
// end_stream(). After the client has gone (on_close) calls have no effect. What
// begin_stream_later() was given takes the place of begin_stream().
class Exchange {
 public:
  virtual ~Exchange() = default;

  virtual const Request& request() const = 0;
  // Moves the body out, so that it need not live as long as a long answer. Once, on the strand or
  // in the one background task that reads it.
  virtual Body take_body() = 0;

  // The connection's. What is to be held for this request is charged to it first.
  virtual const std::shared_ptr<Account>& account() const = 0;
  // What this request may spend on text. Cancelled when the client is gone.
  virtual WorkBudget& budget() = 0;
  // Another id than the one that came with the head. Only before an answer.
  virtual void set_request_id(std::string id) = 0;
  // What Outcome::note will say.
  virtual void set_note(std::string note) = 0;

  virtual void respond(Response response) = 0;
  // For large answers: `next` is called on a worker thread, each time when the client has taken
  // the piece before. The head's body is not used.
  virtual void respond_in_pieces(Response head, PieceSource next) = 0;
  virtual void begin_stream(Response head) = 0;  // its body is not used
  // Calls `begin`, which calls begin_stream() and writes what stands first, when something is to be
  // sent: before the first write that is not empty, before the end, and when the client has waited
  // for as long as pings are apart. Until then the answer may still be a respond().
  virtual void begin_stream_later(std::function<void()> begin) = 0;
  virtual void write(std::string_view data) = 0;
  virtual void end_stream() = 0;
  virtual bool answered() const = 0;  // one of them was called

  // Called once, on the strand, if the client goes away or stops reading before the answer is
  // complete.
  virtual void on_close(std::function<void()> callback) = 0;

  // Any thread: runs `task` on the strand, never inside this call.
  virtual void post(std::function<void()> task) = 0;
  // Runs `task` on a worker thread; if too many wait already, the client gets status 429 instead.
  // If it throws, the client gets status 500.
  virtual void run_in_background(std::function<void()> task) = 0;
  // The same among the requests with large bodies, for a small one that makes as much work.
  virtual void run_beside_large(std::function<void()> task) = 0;
  // The same where a grammar is compiled, from any thread: behind the owner's other grammars.
  virtual void run_beside_grammars(std::function<void()> task) = 0;
};

using ExchangePtr = std::shared_ptr<Exchange>;

// What answers the requests of an HttpServer. Methods are called on several threads at once.
class HttpHandler {
 public:
  virtual ~HttpHandler() = default;
  // Judges a request by its head, before its body is read. A response refuses it.
  virtual std::optional<Response> check(const RequestHead& head) = 0;
  // For whom a request that check() let pass is worked on: owners have equal shares of memory and
  // take turns. Empty: the client's address, see client_of().
  virtual std::string owner(const RequestHead&) { return {}; }
  virtual void handle(ExchangePtr exchange) = 0;
  // The answer to what never became a request, or whose handling failed.
  virtual Response error_response(int status, const std::string& message) = 0;
  // The same where the head is known.
  virtual Response error_for(const RequestHead&, int status, const std::string& message) {
    return error_response(status, message);
  }

  // What every answer to the request has among its headers.
  virtual std::vector<std::pair<std::string, std::string>> headers_for(const RequestHead&) {
    return {};
  }

  struct Outcome {
    int status = 0;  // 0: the client went away before an answer
    double seconds = 0;
    bool complete = false;
    bool given_up = false;  // not complete, because the client did not read it
    std::string note;       // what the handler had to say about the answer
  };
  virtual void finished(const Request& request, const Outcome& outcome) = 0;
};

}  // namespace quire::server::http
