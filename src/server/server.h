#pragma once
#include <chrono>
#include <cstdint>
#include <memory>

#include "server/engine_client.h"
#include "server/options.h"

namespace quire::server {

// The OpenAI-compatible server: an engine and its model's texts, reachable over HTTP.
class Server {
 public:
  // `engine` must outlive the server. served_model_names must not be empty.
  Server(EngineClient& engine, ModelText text, ServerOptions options);
  ~Server();  // stop(0)
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Returns the port. Throws LoadError if the address cannot be used.
  uint16_t start();
  // Refuses new generations (503) at once, lets those at work finish until `timeout`, then aborts
  // them; their clients get what there is, with finish_reason "abort". Returns when nothing is left
  // and every thread has ended. The engine itself is not shut down.
  void stop(std::chrono::milliseconds timeout);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire::server
