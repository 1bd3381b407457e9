#include "server/server.h"

#include <spdlog/spdlog.h>

#include "base/check.h"
#include "server/api.h"
#include "server/http/http_server.h"

namespace quire::server {
namespace {

// For an engine that has been told to abort: a step of a model that is not too slow. The clients
// have their answers by then.
constexpr auto kAbortTime = std::chrono::milliseconds(1000);
// For clients to take the last bytes of their answers.
constexpr auto kFlushTime = std::chrono::milliseconds(1500);

}  // namespace

class Server::Impl {
 public:
  Impl(EngineClient& engine, const ModelText& text, const ServerOptions& options)
      : api_(engine, text, options), http_(options.http, api_) {
    api_.set_http_state([this] {
      Metrics::HttpState state{http_.num_connections(), http_.num_waiting_jobs(), {}};
      for (size_t i = 0; i < http::kHeldKinds; ++i)
        state.held_bytes[i] = http_.ledger().held(static_cast<http::Held>(i));
      return state;
    });
  }

  uint16_t start() { return http_.start(); }

  void stop(std::chrono::milliseconds timeout) {
    api_.begin_shutdown();
    http_.drain();
    if (!api_.admissions().wait_until_none(timeout)) cut_answers();
    api_.generations().close();
    api_.generations().wait_until_empty(kAbortTime);
    http_.stop(kFlushTime);
  }

  void replace_tls(http::TlsContext tls) { http_.replace_tls(std::move(tls)); }
  void replace_api_keys(const std::vector<std::string>& keys) { api_.replace_api_keys(keys); }

 private:
  // Nobody gets an answer that looks complete and is not.
  void cut_answers() {
    const ApiError reason{503, "The server is shutting down", ""};
    const auto generations = api_.generations().close();
    for (const auto& generation : generations) generation->give_up(reason);
    // Those that are not generations yet.
    const auto exchanges = api_.admissions().exchanges();
    for (const http::ExchangePtr& exchange : exchanges)
      exchange->post([exchange, reason] { respond_with(*exchange, reason); });
    spdlog::info("{} requests were cut short", exchanges.size());
  }

  Api api_;
  http::HttpServer http_;
};

Server::Server(EngineClient& engine, const ModelText& text, const ServerOptions& options) {
  QUIRE_CHECK(!options.served_model_names.empty());
  QUIRE_CHECK(text.tokenizer != nullptr);
  impl_ = std::make_unique<Impl>(engine, text, options);
}
Server::~Server() { impl_->stop(std::chrono::milliseconds(0)); }
void Server::replace_api_keys(const std::vector<std::string>& keys) {
  impl_->replace_api_keys(keys);
}
void Server::replace_tls(http::TlsContext tls) { impl_->replace_tls(std::move(tls)); }
uint16_t Server::start() { return impl_->start(); }
void Server::stop(std::chrono::milliseconds timeout) { impl_->stop(timeout); }

}  // namespace quire::server
