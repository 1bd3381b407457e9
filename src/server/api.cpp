#include "server/api.h"

#include <spdlog/spdlog.h>

#include <ctime>
#include <random>

#include "server/auth.h"

namespace quire::server {

// The one table of what the server offers. GET routes also answer HEAD.
const std::vector<Api::Route>& Api::routes() {
  static const std::vector<Route> table = {
      {"GET", "/health", &Api::health},
      {"GET", "/ping", &Api::ping},
      {"POST", "/ping", &Api::ping},
      {"GET", "/version", &Api::version},
      {"GET", "/metrics", &Api::metrics},
      {"GET", "/load", &Api::load},
      {"GET", "/v1/models", &Api::list_models},
      {"GET", "/v1/models/", &Api::get_model},  // and whatever follows
      {"POST", "/v1/completions", &Api::completions},
      {"POST", "/v1/chat/completions", &Api::chat_completions},
      {"POST", "/tokenize", &Api::tokenize},
      {"POST", "/detokenize", &Api::detokenize},
  };
  return table;
}

Api::Api(EngineClient& engine, const ModelText& text, const ServerOptions& options)
    : engine_(engine),
      text_(text),
      options_(options),
      parse_context_{options.limits, text.defaults, options.trust_request_chat_template,
                     engine.vocab_size()},
      planner_(text_, engine.max_model_len(), options.served_model_names.front()),
      started_(std::time(nullptr)),
      metrics_(options.served_model_names.front(), engine.max_model_len()) {}

std::string_view Api::local_path(const http::RequestHead& head) const {
  const std::string_view path = head.path;
  const std::string& root = options_.root_path;
  if (root.empty() || !path.starts_with(root)) return path;
  const std::string_view rest = path.substr(root.size());
  return rest.starts_with('/') ? rest : path;
}

const Api::Route* Api::find_route(const http::RequestHead& head) const {
  const std::string_view path = local_path(head);
  const std::string_view method = head.method == "HEAD" ? "GET" : std::string_view(head.method);
  for (const Route& route : routes()) {
    const bool is_prefix = route.path.ends_with('/');
    const bool fits = is_prefix ? path.starts_with(route.path) && path.size() > route.path.size()
                                : path == route.path;
    if (fits && method == route.method) return &route;
  }
  return nullptr;
}

std::optional<http::Response> Api::check(const http::RequestHead& head) {
  const std::string_view path = local_path(head);
  if (path != "/health" && !is_authorized(head, options_.api_keys))
    return server::error_response({401, "A valid API key is required", ""});
  const Route* route = find_route(head);
  if (route != nullptr)
    return route->method == std::string_view("POST") ? check_post(head) : std::nullopt;

  for (const char* method : {"GET", "POST"}) {
    http::RequestHead other = head;
    other.method = method;
    if (find_route(other) == nullptr) continue;
    auto refusal = server::error_response({405, head.method + " is not allowed here", ""});
    refusal.headers.emplace_back("Allow", method);
    return refusal;
  }
  return server::error_response({404, "There is nothing at this path", ""});
}

std::optional<http::Response> Api::check_post(const http::RequestHead& head) const {
  if (local_path(head) == "/ping") return std::nullopt;
  if (!head.chunked && !head.content_length)
    return server::error_response({411, "A POST needs a Content-Length", ""});
  std::string_view type = head.header("content-type");
  type = type.substr(0, type.find(';'));
  while (type.ends_with(' ')) type.remove_suffix(1);
  // Also keeps web pages of other origins from posting: they may send a few plain types unasked.
  if (type != "application/json")
    return server::error_response({415, "Only Content-Type: application/json is accepted", ""});
  return std::nullopt;
}

void Api::handle(http::ExchangePtr exchange) {
  const Route* route = find_route(exchange->request().head);
  QUIRE_CHECK(route != nullptr) << "check() let an unknown path pass";
  (this->*route->endpoint)(std::move(exchange));
}

http::Response Api::error_response(int status, const std::string& message) {
  return server::error_response({status, message, ""});
}

void Api::finished(const http::Request& request, const Outcome& outcome) {
  const Route* route = find_route(request.head);
  const std::string method = route != nullptr ? request.head.method : "other";
  metrics_.http_request(method, route != nullptr ? std::string(route->path) : "none",
                        outcome.status);
  if (!options_.access_log) return;
  // Paths come from anywhere: quoted, so that they cannot forge lines of the log.
  std::string path;
  append_json_string(path, request.head.path.substr(0, 200));
  spdlog::info("{} {} {} {}{} {:.1f} ms", request.peer, method, path, outcome.status,
               outcome.complete ? "" : " (client gone)", outcome.seconds * 1e3);
}

std::optional<ApiError> Api::unavailable() const {
  if (shutting_down_) return ApiError{503, "The server is shutting down", ""};
  return std::nullopt;
}

bool Api::is_served(std::string_view name) const {
  for (const std::string& served : options_.served_model_names)
    if (name == served) return true;
  return false;
}

Result<void, ApiError> Api::check_model(const std::string& name) const {
  if (name.empty() || is_served(name)) return {};
  return Err{ApiError{404, "The model `" + name + "` does not exist", "model"}};
}

std::string Api::new_request_id(const http::Request& request, const std::string& wanted) const {
  if (!wanted.empty()) return wanted;
  const std::string_view header = request.head.header("x-request-id");
  if (!header.empty()) return std::string(header.substr(0, 256));
  thread_local std::mt19937_64 random(std::random_device{}());
  char text[33];
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(random()),
                static_cast<unsigned long long>(random()));
  return text;
}

template <class Parse>
void Api::generate(http::ExchangePtr exchange, Parse parse) {
  if (const auto reason = unavailable()) return exchange->respond(server::error_response(*reason));
  const TimePoint arrived = Clock::now();
  exchange->run_in_background([this, exchange, parse, arrived] {
    const auto refuse = [&exchange](ApiError error) {
      exchange->post([exchange, error = std::move(error)] {
        exchange->respond(server::error_response(error));
      });
    };
    auto request = parse(exchange->take_body(), parse_context_);
    if (!request) return refuse(std::move(request).error());
    if (auto known = check_model(request->model); !known) return refuse(known.error());
    auto plan = planner_.plan(*request, new_request_id(exchange->request(), request->request_id));
    if (!plan) return refuse(std::move(plan).error());
    plan->arrived = arrived;
    const auto generation =
        std::make_shared<Generation>(exchange, engine_, metrics_, generations_, std::move(*plan));
    exchange->post([generation] { generation->start(); });
  });
}

void Api::completions(http::ExchangePtr exchange) {
  generate(std::move(exchange), openai::parse_completion);
}

void Api::chat_completions(http::ExchangePtr exchange) {
  generate(std::move(exchange), openai::parse_chat);
}

}  // namespace quire::server
