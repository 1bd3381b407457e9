#pragma once
#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "server/generation.h"
#include "server/openai/parse.h"
#include "server/planner.h"

namespace quire::server {

// The endpoints: what each path does.
class Api : public http::HttpHandler {
 public:
  Api(EngineClient& engine, const ModelText& text, const ServerOptions& options);

  std::optional<http::Response> check(const http::RequestHead& head) override;
  void handle(http::ExchangePtr exchange) override;
  http::Response error_response(int status, const std::string& message) override;
  void finished(const http::Request& request, const Outcome& outcome) override;

  // From now on generations are refused.
  void begin_shutdown() { shutting_down_ = true; }
  GenerationRegistry& generations() { return generations_; }
  // Where /metrics finds the state of the HTTP side.
  void set_http_state(std::function<Metrics::HttpState()> state) { http_state_ = std::move(state); }

 private:
  using Endpoint = void (Api::*)(http::ExchangePtr);
  struct Route {
    const char* method;
    std::string_view path;
    Endpoint endpoint;
  };
  static const std::vector<Route>& routes();
  std::string_view local_path(const http::RequestHead& head) const;
  const Route* find_route(const http::RequestHead& head) const;
  std::optional<http::Response> check_post(const http::RequestHead& head) const;

  void health(http::ExchangePtr exchange);
  void ping(http::ExchangePtr exchange);
  void version(http::ExchangePtr exchange);
  void metrics(http::ExchangePtr exchange);
  void load(http::ExchangePtr exchange);
  void list_models(http::ExchangePtr exchange);
  void get_model(http::ExchangePtr exchange);
  void completions(http::ExchangePtr exchange);
  void chat_completions(http::ExchangePtr exchange);
  void tokenize(http::ExchangePtr exchange);
  void detokenize(http::ExchangePtr exchange);

  // Runs on a worker: parses, plans, and starts the generation on the strand.
  template <class Parse>
  void generate(http::ExchangePtr exchange, Parse parse);
  Result<json::value, ApiError> tokenize_body(std::string_view body) const;
  Result<json::value, ApiError> detokenize_body(std::string_view body) const;
  Result<void, ApiError> check_model(const std::string& name) const;
  std::optional<ApiError> unavailable() const;
  bool is_served(std::string_view name) const;
  json::object model_card(const std::string& name) const;
  std::string new_request_id(const http::Request& request, const std::string& wanted) const;

  EngineClient& engine_;
  const ModelText text_;
  const ServerOptions options_;
  const openai::ParseContext parse_context_;
  const Planner planner_;
  const int64_t started_;  // seconds since 1970
  Metrics metrics_;
  GenerationRegistry generations_;
  std::function<Metrics::HttpState()> http_state_;
  std::atomic<bool> shutting_down_{false};
};

}  // namespace quire::server
