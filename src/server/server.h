#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "server/engine_client.h"
#include "server/options.h"

namespace quire::server {

// The OpenAI-compatible server: an engine and its model's texts, reachable over HTTP.
class Server {
 public:
  // Of a model that is still to come: every request gets a 503 until open() is called.
  explicit Server(const http::HttpOptions& options);
  // Of a model that is there.
  Server(EngineClient& engine, const ModelText& text, const ServerOptions& options);
  ~Server();  // stop(0)
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Any thread, once: from now on requests are for this model. `engine` must outlive stop().
  // served_model_names must not be empty; options.http is not looked at for sockets.
  void open(EngineClient& engine, const ModelText& text, const ServerOptions& options);
  // Returns the port. Throws LoadError if the address cannot be used.
  uint16_t start();
  // Any thread, once it is open: from now on these keys are taken, with the tenants of those that
  // stay. The server must have been made with keys, and the list must not be empty.
  void replace_api_keys(const std::vector<std::string>& keys);
  // Any thread: new connections get this certificate. The server must have been made with one.
  void replace_tls(http::TlsContext tls);
  // Refuses new generations (503) at once and lets requests at work finish until `timeout`. What is
  // not finished then is aborted, and its client told: a 503, or an error event in a stream.
  // Returns when every thread has ended; a worker or an engine that is stuck can hold it up. The
  // engine itself is not shut down.
  void stop(std::chrono::milliseconds timeout);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire::server
