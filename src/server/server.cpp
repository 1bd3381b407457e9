#include "server/server.h"

#include <spdlog/spdlog.h>

#include "base/check.h"
#include "server/api.h"
#include "server/http/http_server.h"

namespace quire::server {
namespace {

// For an engine that has been told to abort: one step, generously.
constexpr auto kAbortTime = std::chrono::seconds(10);
// For clients to take the last bytes of their answers.
constexpr auto kFlushTime = std::chrono::seconds(5);

}  // namespace

class Server::Impl {
 public:
  Impl(EngineClient& engine, ModelText text, ServerOptions options)
      : api_(engine, std::move(text), options), http_(options.http, api_) {
    api_.set_http_state(
        [this] { return Metrics::HttpState{http_.num_connections(), http_.buffered_bytes()}; });
  }

  uint16_t start() { return http_.start(); }

  void stop(std::chrono::milliseconds timeout) {
    api_.begin_shutdown();
    http_.drain();
    GenerationRegistry& generations = api_.generations();
    if (!generations.wait_until_empty(timeout)) {
      spdlog::info("aborting {} requests", generations.all().size());
      for (const auto& generation : generations.all()) generation->cancel();
    }
    if (!generations.wait_until_empty(kAbortTime)) {
      // The engine hangs. Its clients should not.
      for (const auto& generation : generations.all())
        generation->give_up({503, "The server is shutting down", ""});
    }
    http_.stop(kFlushTime);
  }

 private:
  Api api_;
  http::HttpServer http_;
};

Server::Server(EngineClient& engine, ModelText text, ServerOptions options) {
  QUIRE_CHECK(!options.served_model_names.empty());
  QUIRE_CHECK(text.tokenizer != nullptr);
  impl_ = std::make_unique<Impl>(engine, std::move(text), std::move(options));
}
Server::~Server() { impl_->stop(std::chrono::milliseconds(0)); }
uint16_t Server::start() { return impl_->start(); }
void Server::stop(std::chrono::milliseconds timeout) { impl_->stop(timeout); }

}  // namespace quire::server
