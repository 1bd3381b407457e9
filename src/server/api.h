#pragma once
#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "server/admission.h"
#include "server/api_keys.h"
#include "server/cache_doctor.h"
#include "server/generation.h"
#include "server/left_out.h"
#include "server/openai/parse.h"
#include "server/origin_policy.h"
#include "server/planner.h"

namespace quire::server {

// The endpoints: what each path does.
class Api : public http::HttpHandler {
 public:
  Api(EngineClient& engine, const ModelText& text, const ServerOptions& options);

  std::optional<http::Response> check(const http::RequestHead& head) override;
  std::string owner(const http::RequestHead& head) override;
  void handle(http::ExchangePtr exchange) override;
  http::Response error_response(int status, const std::string& message) override;
  http::Response error_for(const http::RequestHead& head, int status,
                           const std::string& message) override;
  std::vector<std::pair<std::string, std::string>> headers_for(
      const http::RequestHead& head) override {
    return origins_.headers_for(head);
  }
  void finished(const http::Request& request, const Outcome& outcome) override;

  // From now on generations are refused.
  void begin_shutdown() { shutting_down_ = true; }
  // Any thread. See ApiKeys::replace.
  void replace_api_keys(const std::vector<std::string>& keys) { keys_.replace(keys); }
  AdmissionControl& admissions() { return *admissions_; }
  GenerationRegistry& generations() { return generations_; }
  // Where /metrics finds the state of the HTTP side.
  void set_http_state(std::function<Metrics::HttpState()> state) { http_state_ = std::move(state); }

 private:
  using Endpoint = void (Api::*)(http::ExchangePtr);
  struct Route {
    const char* method;
    std::string_view path;
    Endpoint endpoint;
    unsigned fields = 0;            // of openai::EndpointBit: whose fields its body has
    Runner runner = Runner::kAuto;  // it belongs to this one; kAuto: to both
  };
  static const std::vector<Route>& routes();
  std::string_view local_path(const http::RequestHead& head) const;
  bool needs_key(std::string_view path) const;
  bool is_left_to_others(const Route& route) const;
  // Null: there is none. An empty method is any.
  const Route* route_at(std::string_view path, std::string_view method) const;
  const Route* find_route(const http::RequestHead& head) const;
  std::string allowed_methods(const http::RequestHead& head) const;
  std::optional<http::Response> check_get(const http::RequestHead& head) const;
  std::optional<http::Response> check_post(const http::RequestHead& head) const;

  void page(http::ExchangePtr exchange);
  void health(http::ExchangePtr exchange);
  void ping(http::ExchangePtr exchange);
  void version(http::ExchangePtr exchange);
  void metrics(http::ExchangePtr exchange);
  void load(http::ExchangePtr exchange);
  void openapi(http::ExchangePtr exchange);
  void tokenizer_info(http::ExchangePtr exchange);
  void list_models(http::ExchangePtr exchange);
  void get_model(http::ExchangePtr exchange);
  void completions(http::ExchangePtr exchange);
  void chat_completions(http::ExchangePtr exchange);
  void responses(http::ExchangePtr exchange);
  void messages(http::ExchangePtr exchange);
  void embeddings(http::ExchangePtr exchange);
  void rerank(http::ExchangePtr exchange);
  void score(http::ExchangePtr exchange);
  void count_tokens(http::ExchangePtr exchange);
  void tokenize(http::ExchangePtr exchange);
  void detokenize(http::ExchangePtr exchange);

  // A request with a place among those at work. Several keys are tenants; without keys, or with one
  // that all share, addresses are, and on loopback, where all clients have one, connections.
  struct Admitted {
    uint64_t tenant = 0;
    uint64_t counted_as = 0;  // the key or the address
    std::string cache;  // whose cached prefixes it may use: the key's, or everybody's if empty
    bool beside_others = false;
    std::shared_ptr<Admission> admission;
  };
  Result<Admitted, ApiError> admit(const http::ExchangePtr& exchange);
  static void assign(GenerationPlan& plan, const Admitted& client);
  // What parses a body, so that the JSON inside its strings is charged to `held`, too.
  // Both end with what the request may use.
  openai::ParseContext charged_context(http::Charge& held, const RequestMeans& means) const;
  // On a worker: parses, plans, and starts the generation on the strand. With a grammar, all but
  // the first is done beside other grammars.
  struct Arrival;
  template <class Parse>
  void generate(http::ExchangePtr exchange, bool renders, Parse parse);
  void examine_cache(const http::Request& http_request, uint64_t client,
                     const GenerationPlan& plan);
  template <class Request>
  void begin(Arrival& arrival, const Request& request);
  // Of a text that is not too long.
  Result<std::vector<int32_t>, ApiError> encode_text(std::string_view text, bool add_special_tokens,
                                                     const char* param,
                                                     const RequestMeans& means) const;
  // `held` covers what the answer is made from.
  Result<json::value, ApiError> tokenize_body(const http::Request& http_request,
                                              std::string_view body, const RequestMeans& means,
                                              http::Charge& held);
  Result<json::value, ApiError> count_tokens_body(const http::Request& http_request,
                                                  std::string_view body, const RequestMeans& means,
                                                  http::Charge& held);
  Result<json::value, ApiError> detokenize_body(const http::Request& http_request,
                                                std::string_view body, const RequestMeans& means,
                                                http::Charge& held);
  template <class Make>
  void answer_in_background(http::ExchangePtr exchange, Make make);
  Result<void, ApiError> check_model(const std::string& name) const;
  std::optional<ApiError> unavailable() const;
  bool is_served(std::string_view name) const;
  const ServedAdapter* find_adapter(std::string_view name) const;
  bool is_logged(const http::RequestHead& head) const;
  json::object model_card(const std::string& name) const;

  EngineClient& engine_;
  const ModelText text_;
  const ServerOptions options_;
  const bool on_loopback_;  // all clients are programs of this machine
  const openai::ParseContext parse_context_;
  const Planner planner_;
  ApiKeys keys_;
  const OriginPolicy origins_;
  const std::shared_ptr<AdmissionControl> admissions_ = std::make_shared<AdmissionControl>();
  const int64_t started_;  // seconds since 1970
  Metrics metrics_;
  CacheDoctor cache_doctor_;
  GenerationRegistry generations_;
  std::function<Metrics::HttpState()> http_state_;
  std::atomic<bool> shutting_down_{false};
  LeftOutLog left_out_{text_};
};

}  // namespace quire::server
