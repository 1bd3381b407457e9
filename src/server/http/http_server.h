#pragma once
#include <chrono>
#include <memory>

#include "server/http/exchange.h"
#include "server/http/options.h"

namespace quire::server::http {

// Accepts connections and has their requests answered by a handler. HTTP/1.0 and 1.1, bare or
// inside TLS.
class HttpServer {
 public:
  HttpServer(const HttpOptions& options, HttpHandler& handler);
  ~HttpServer();  // stop(0)
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Binds, starts the threads and returns the port. Throws LoadError if the address cannot be used.
  uint16_t start();
  // Any thread: new connections use it. The server must have been made with TLS.
  void replace_tls(TlsContext tls);
  // From now on every answer closes its connection, and idle connections are closed. New ones are
  // still accepted: that the server is going away is for the handler to say.
  void drain();
  // Gives answers in progress until `timeout` to reach their clients, then closes everything and
  // ends the threads. The handler is not called after it.
  void stop(std::chrono::milliseconds timeout);

  size_t num_connections() const;
  const Ledger& ledger() const;
  size_t num_waiting_jobs() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire::server::http
