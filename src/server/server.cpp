#include "server/server.h"

#include <spdlog/spdlog.h>

#include <atomic>
#include <optional>
#include <utility>

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
const ApiError kLoading{503, "The model is being loaded", ""};

// Answers while there is no model yet, and passes everything on once there is.
class Switch final : public http::HttpHandler {
 public:
  void set(HttpHandler& handler) { handler_ = &handler; }

  std::optional<http::Response> check(const http::RequestHead& head) override {
    if (HttpHandler* handler = handler_) return handler->check(head);
    return server::error_response(kLoading, head);
  }
  std::string owner(const http::RequestHead& head) override {
    HttpHandler* handler = handler_;
    return handler != nullptr ? handler->owner(head) : std::string();
  }
  // Only what check() let pass, so there is one.
  void handle(http::ExchangePtr exchange) override {
    HttpHandler* handler = handler_;
    QUIRE_CHECK(handler != nullptr);
    handler->handle(std::move(exchange));
  }
  http::Response error_response(int status, const std::string& message) override {
    if (HttpHandler* handler = handler_) return handler->error_response(status, message);
    return server::error_response({status, message, ""}, {});
  }
  http::Response error_for(const http::RequestHead& head, int status,
                           const std::string& message) override {
    if (HttpHandler* handler = handler_) return handler->error_for(head, status, message);
    return server::error_response({status, message, ""}, head);
  }
  std::vector<std::pair<std::string, std::string>> headers_for(
      const http::RequestHead& head) override {
    if (HttpHandler* handler = handler_) return handler->headers_for(head);
    return {};
  }
  void finished(const http::Request& request, const Outcome& outcome) override {
    if (HttpHandler* handler = handler_) handler->finished(request, outcome);
  }

 private:
  std::atomic<HttpHandler*> handler_{nullptr};
};

}  // namespace

class Server::Impl {
 public:
  explicit Impl(const http::HttpOptions& options) : http_(options, switch_) {}

  void open(EngineClient& engine, const ModelText& text, const ServerOptions& options) {
    QUIRE_CHECK(api_ == nullptr);
    QUIRE_CHECK(!options.served_model_names.empty());
    QUIRE_CHECK(text.tokenizer != nullptr);
    api_ = std::make_unique<Api>(engine, text, options);
    api_->set_http_state([this] {
      Metrics::HttpState state{http_.num_connections(), http_.num_waiting_jobs(), {}};
      for (size_t i = 0; i < http::kHeldKinds; ++i)
        state.held_bytes[i] = http_.ledger().held(static_cast<http::Held>(i));
      return state;
    });
    switch_.set(*api_);
  }

  uint16_t start() { return http_.start(); }

  void stop(std::chrono::milliseconds timeout) {
    if (std::exchange(stopped_, true)) return;
    if (api_ != nullptr) api_->begin_shutdown();
    http_.drain();
    if (api_ != nullptr) {
      if (!api_->admissions().wait_until_none(timeout)) cut_answers();
      api_->generations().close();
      api_->generations().wait_until_empty(kAbortTime);
    }
    http_.stop(kFlushTime);
  }

  void replace_tls(http::TlsContext tls) { http_.replace_tls(std::move(tls)); }
  void replace_api_keys(const std::vector<std::string>& keys) { api_->replace_api_keys(keys); }

 private:
  // Nobody gets an answer that looks complete and is not.
  void cut_answers() {
    const ApiError reason{503, "The server is shutting down", ""};
    const auto num_cut = api_->admissions().exchanges().size();
    const auto generations = api_->generations().close();
    for (const auto& generation : generations) generation->give_up(reason);
    // Those that are not generations yet.
    const auto exchanges = api_->admissions().exchanges();
    for (const http::ExchangePtr& exchange : exchanges)
      exchange->post([exchange, reason] { respond_with(*exchange, reason); });
    spdlog::info("{} requests were cut short", num_cut);
  }

  Switch switch_;
  std::unique_ptr<Api> api_;  // null: no model yet
  http::HttpServer http_;
  bool stopped_ = false;
};

Server::Server(const http::HttpOptions& options) : impl_(std::make_unique<Impl>(options)) {}
Server::Server(EngineClient& engine, const ModelText& text, const ServerOptions& options)
    : Server(options.http) {
  open(engine, text, options);
}
void Server::open(EngineClient& engine, const ModelText& text, const ServerOptions& options) {
  impl_->open(engine, text, options);
}
Server::~Server() { impl_->stop(std::chrono::milliseconds(0)); }
void Server::replace_api_keys(const std::vector<std::string>& keys) {
  impl_->replace_api_keys(keys);
}
void Server::replace_tls(http::TlsContext tls) { impl_->replace_tls(std::move(tls)); }
uint16_t Server::start() { return impl_->start(); }
void Server::stop(std::chrono::milliseconds timeout) { impl_->stop(timeout); }

}  // namespace quire::server
