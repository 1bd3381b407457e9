#include "server/api.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <ctime>

#include "base/printable.h"
#include "server/anthropic/parse.h"
#include "server/auth.h"
#include "server/http/media_type.h"
#include "server/responses/parse.h"
#include "server/web_origin.h"

namespace quire::server {
namespace {

const ApiError kNoKey{401, "A valid API key is required", ""};
constexpr const char* kOtherRunner =
    "This server was started with a --runner that does not do this";

int64_t num_prompts(const openai::CompletionRequest& request) {
  return static_cast<int64_t>(request.prompts.size());
}
int64_t num_prompts(const openai::ChatRequest&) { return 1; }
int64_t num_prompts(const pooling::EmbeddingRequest& request) {
  return static_cast<int64_t>(request.prompts.size());
}
int64_t num_prompts(const pooling::ScoreRequest& request) {
  return static_cast<int64_t>(request.documents.size());
}

// Of a prompt's plan, beside its text: what takes as long as so many bytes of text.
constexpr size_t kPromptBytes = 512;

// Of the text that a request's plan reads, if that may take far longer than its body is large: many
// prompts, and pairs, of which every one has the query, and `fixed` bytes of its prompt. A client's
// own template is a program, which may take as long as it likes.
size_t multiplied_bytes(const openai::ChatRequest& request, size_t) {
  return request.chat.chat_template ? SIZE_MAX : 0;
}
template <class Request>
size_t multiplied_bytes(const Request& request, size_t) {
  return request.prompts.size() * kPromptBytes;
}
size_t multiplied_bytes(const pooling::ScoreRequest& request, size_t fixed) {
  size_t bytes = request.documents.size() * (request.instruction.size() + fixed + kPromptBytes);
  for (const std::string& query : request.queries) bytes += query.size();
  if (request.queries.size() == 1)
    bytes += (request.documents.size() - 1) * request.queries[0].size();
  for (const std::string& document : request.documents) bytes += document.size();
  return bytes;
}

// For the log, whose sink escapes control characters: what comes from anywhere cannot pass for the
// rest of its line.
std::string in_quotes(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

// Tenants are random and their names have one length.
std::string tenant_name(uint64_t tenant) { return fmt::format("{:016x}", tenant); }

// Of "OPTIONS *": what the server as a whole takes (RFC 9110, section 9.3.7).
http::Response answer_options() {
  http::Response response;
  response.content_type.clear();
  response.headers = {{"Allow", "GET, HEAD, POST, OPTIONS"}};
  return response;
}

}  // namespace

// The one table of what the server offers. GET routes also answer HEAD.
const std::vector<Api::Route>& Api::routes() {
  static const std::vector<Route> table = {
      {"GET", "/", &Api::page, 0, Runner::kGenerate},
      {"GET", "/health", &Api::health},
      {"GET", "/ping", &Api::ping},
      {"POST", "/ping", &Api::ping},
      {"GET", "/version", &Api::version},
      {"GET", "/metrics", &Api::metrics},
      {"GET", "/load", &Api::load},
      {"GET", "/openapi.json", &Api::openapi},
      {"GET", "/tokenizer_info", &Api::tokenizer_info},
      {"GET", "/v1/models", &Api::list_models},
      {"GET", "/v1/models/", &Api::get_model},  // and whatever follows
      {"POST", "/v1/completions", &Api::completions, openai::kCompletion, Runner::kGenerate},
      {"POST", "/v1/chat/completions", &Api::chat_completions, openai::kChat, Runner::kGenerate},
      {"POST", "/v1/responses", &Api::responses, openai::kResponses, Runner::kGenerate},
      {"POST", "/v1/messages", &Api::messages, openai::kMessages, Runner::kGenerate},
      {"POST", "/v1/embeddings", &Api::embeddings, openai::kEmbedding, Runner::kPooling},
      {"POST", "/v1/rerank", &Api::rerank, openai::kRerank, Runner::kPooling},
      {"POST", "/v2/rerank", &Api::rerank, openai::kRerank, Runner::kPooling},
      {"POST", "/rerank", &Api::rerank, openai::kRerank, Runner::kPooling},
      {"POST", "/v1/score", &Api::score, openai::kScore, Runner::kPooling},
      {"POST", "/score", &Api::score, openai::kScore, Runner::kPooling},
      {"POST", "/v1/messages/count_tokens", &Api::count_tokens, openai::kMessages},
      {"POST", "/tokenize", &Api::tokenize, openai::kTokenize},
      {"POST", "/detokenize", &Api::detokenize, openai::kDetokenize},
  };
  return table;
}

Api::Api(EngineClient& engine, const ModelText& text, const ServerOptions& options)
    : engine_(engine),
      text_(text),
      options_(options),
      on_loopback_(!options.http.unix_path.empty() || is_loopback(options.http.host)),
      parse_context_{options.limits,
                     text.defaults,
                     options.trust_request_chat_template,
                     engine.vocab_size(),
                     engine.hidden_size(),
                     engine.honours_priority(),
                     options.keep_billing_header},
      planner_(text_, engine, options),
      keys_(options.api_keys),
      // No page can reach a Unix socket.
      origins_(options.allowed_origins,
               options.api_keys.empty() && on_loopback_ && options.http.unix_path.empty()),
      started_(std::time(nullptr)),
      metrics_(options, engine.max_model_len()) {}

std::string_view Api::local_path(const http::RequestHead& head) const {
  const std::string_view path = head.path;
  const std::string& root = options_.root_path;
  if (root.empty() || !path.starts_with(root)) return path;
  const std::string_view rest = path.substr(root.size());
  return rest.starts_with('/') ? rest : path;
}

const Api::Route* Api::route_at(std::string_view path, std::string_view method) const {
  if (path == "/" && !options_.page) return nullptr;
  for (const Route& route : routes()) {
    const bool is_prefix = route.path.size() > 1 && route.path.ends_with('/');
    const bool fits = is_prefix ? path.starts_with(route.path) && path.size() > route.path.size()
                                : path == route.path;
    if (fits && (method.empty() || method == route.method)) return &route;
  }
  return nullptr;
}

const Api::Route* Api::find_route(const http::RequestHead& head) const {
  return route_at(local_path(head), head.method == "HEAD" ? "GET" : std::string_view(head.method));
}

bool Api::needs_key(std::string_view path) const {
  return path != "/health" && !(path == "/" && options_.page);
}

bool Api::is_left_to_others(const Route& route) const {
  return route.runner != Runner::kAuto && options_.runner != Runner::kAuto &&
         route.runner != options_.runner;
}

std::optional<http::Response> Api::check(const http::RequestHead& head) {
  const std::string_view path = local_path(head);
  if (auto answer = origins_.answer_preflight(head)) return answer;
  if (needs_key(path) && !keys_.empty() && !keys_.find(given_key(head)))
    return server::error_response(kNoKey, head);
  if (const auto reason = origins_.why_refused(head)) return server::error_response(*reason, head);
  const Route* route = find_route(head);
  if (route != nullptr && is_left_to_others(*route))
    return server::error_response({404, kOtherRunner, "", "unknown_url"}, head);
  if (route != nullptr)
    return route->method == std::string_view("POST") ? check_post(head) : check_get(head);

  if (path == "*") return answer_options();
  if (const std::string methods = allowed_methods(head); !methods.empty()) {
    auto refusal = server::error_response({405, head.method + " is not allowed here", ""}, head);
    refusal.headers.emplace_back("Allow", methods);
    return refusal;
  }
  return server::error_response({404, "There is nothing at this path", "", "unknown_url"}, head);
}

// Of the head's path; empty if there is nothing there.
std::string Api::allowed_methods(const http::RequestHead& head) const {
  std::string methods;
  for (const char* method : {"GET", "POST"}) {
    if (route_at(local_path(head), method) == nullptr) continue;
    if (!methods.empty()) methods += ", ";
    methods += method == std::string_view("GET") ? "GET, HEAD" : method;
  }
  return methods;
}

// Nothing reads a body there, and a stranger's would be held.
std::optional<http::Response> Api::check_get(const http::RequestHead& head) const {
  if (!head.chunked && head.content_length.value_or(0) == 0) return std::nullopt;
  return server::error_response({413, "A GET has no body here", ""}, head);
}

std::optional<http::Response> Api::check_post(const http::RequestHead& head) const {
  if (local_path(head) == "/ping") return std::nullopt;
  if (!head.chunked && !head.content_length)
    return server::error_response({411, "A POST needs a Content-Length", ""}, head);
  if (const auto reason = http::why_unreadable(head)) {
    auto refusal = server::error_response({415, *reason, ""}, head);
    refusal.headers.emplace_back("Accept-Encoding", "identity");
    return refusal;
  }
  return std::nullopt;
}

std::string Api::owner(const http::RequestHead& head) {
  if (keys_.size() <= 1) return {};
  const auto tenant = keys_.find(given_key(head));
  return tenant ? tenant_name(*tenant) : std::string();
}

void Api::handle(http::ExchangePtr exchange) {
  const Route* route = find_route(exchange->request().head);
  QUIRE_CHECK(route != nullptr) << "check() let an unknown path pass";
  (this->*route->endpoint)(std::move(exchange));
}

http::Response Api::error_response(int status, const std::string& message) {
  return server::error_response({status, message, ""}, {});
}

http::Response Api::error_for(const http::RequestHead& head, int status,
                              const std::string& message) {
  return server::error_response({status, message, ""}, head);
}

void Api::finished(const http::Request& request, const Outcome& outcome) {
  const bool is_allowed = find_route(request.head) != nullptr;
  const Route* route = route_at(local_path(request.head), {});
  metrics_.http_request(is_allowed ? request.head.method : "other",
                        route != nullptr ? std::string(route->path) : "none", outcome.status);
  if (!is_logged(request.head)) return;
  const size_t key = keys_.size() > 1 ? keys_.place_of(given_key(request.head)) : 0;
  spdlog::info("{} {} {} {} id={}{}{}{} {:.1f} ms{}", request.peer,
               request.head.method.substr(0, 32), in_quotes(request.head.path.substr(0, 200)),
               outcome.status, request.head.id, key > 0 ? " key=" + std::to_string(key) : "",
               outcome.note.empty() ? "" : " ", outcome.note, outcome.seconds * 1e3,
               outcome.complete   ? ""
               : outcome.given_up ? " (not read)"
                                  : " (client gone)");
}

bool Api::is_logged(const http::RequestHead& head) const {
  const auto& silent = options_.silent_paths;
  const auto is_silent = [&](std::string_view path) {
    return std::find(silent.begin(), silent.end(), path) != silent.end();
  };
  return options_.access_log && !is_silent(local_path(head)) && !is_silent(head.path);
}

std::optional<ApiError> Api::unavailable() const {
  if (shutting_down_) return ApiError{503, "The server is shutting down", ""};
  return std::nullopt;
}

bool Api::is_served(std::string_view name) const {
  for (const std::string& served : options_.served_model_names)
    if (name == served) return true;
  return find_adapter(name) != nullptr;
}

const ServedAdapter* Api::find_adapter(std::string_view name) const {
  const auto found = std::ranges::find(options_.adapters, name, &ServedAdapter::name);
  return found == options_.adapters.end() ? nullptr : &*found;
}

Result<void, ApiError> Api::check_model(const std::string& name) const {
  if (name.empty() || is_served(name)) return {};
  return Err{ApiError{404, "The model `" + name + "` does not exist", "model", "model_not_found"}};
}

Result<Api::Admitted, ApiError> Api::admit(const http::ExchangePtr& exchange) {
  const http::Request& request = exchange->request();
  const std::hash<std::string_view> hash;
  Admitted client;
  uint64_t counted_as = hash(request.client);
  // All clients of a server on loopback have one address: there connections take turns.
  client.tenant = on_loopback_ ? hash(request.peer) : counted_as;
  if (!keys_.empty()) {
    const auto key = keys_.find(given_key(request.head));
    if (!key) return Err{kNoKey};  // taken away since check()
    counted_as = *key;
    if (keys_.size() > 1) client.tenant = *key;
    if (!options_.share_prefix_cache) client.cache = tenant_name(*key);
  }
  client.counted_as = counted_as;
  client.beside_others = keys_.size() > 1 || !on_loopback_;
  const ClientLimits& limits = options_.client_limits;
  auto admission =
      admissions_->admit(counted_as, {limits.max_requests, limits.max_generations}, exchange);
  if (!admission) return Err{std::move(admission).error()};
  client.admission = std::move(*admission);
  return client;
}

// No client can write a salt that becomes another key's: see tenant_name.
void Api::assign(GenerationPlan& plan, const Admitted& client) {
  for (engine::Request& request : plan.requests) {
    request.tenant = client.tenant;
    request.beside_others = client.beside_others;
    request.cache_salt.insert(0, client.cache);
  }
}

// What the tasks of a request have in hand on the workers.
struct Api::Arrival {
  http::ExchangePtr exchange;
  TimePoint arrived;
  Admitted client;
  http::Charge document;

  void refuse(ApiError error) {
    // The place is free before the client can know that it is.
    exchange->post([exchange = exchange, admission = std::move(client.admission),
                    error = std::move(error)]() mutable {
      admission.reset();
      respond_with(*exchange, error);
    });
  }
};

// Prompts are not logged otherwise: this is a line's worth of what differs.
void Api::examine_cache(const http::Request& http_request, uint64_t client,
                        const GenerationPlan& plan) {
  const engine::Request& request = plan.requests.front();
  // Prompts with different salts are kept apart on purpose, perhaps for users of one key.
  if (!options_.cache_doctor || request.pooling || !request.cache_salt.empty()) return;
  const auto finding = cache_doctor_.look_at(client, request.prompt);
  if (!finding) return;
  const auto shown = [this](const std::vector<int32_t>& ids) {
    const auto text = text_.tokenizer->decode(ids, false);
    return in_quotes(printable(text ? *text : std::string(), 64));
  };
  spdlog::warn(
      "{} id={} the prompts of this client differ at token {}, and are the same again behind that: "
      "{} "
      "became {}. Nothing behind it is found in the prefix cache; leave it out, or move it to the "
      "end "
      "(said once a client; --disable-cache-doctor)",
      http_request.peer, http_request.head.id, finding->position, shown(finding->before),
      shown(finding->after));
}

openai::ParseContext Api::charged_context(http::Charge& held, const RequestMeans& means) const {
  openai::ParseContext context = parse_context_;
  context.budget = &means.budget;
  context.charge_parsing =
      [&held, account = means.account](std::string_view text) -> std::optional<ApiError> {
    const size_t bytes = document_bytes(text);
    if (held.try_add(bytes)) return std::nullopt;
    return does_not_fit(*account, bytes);
  };
  return context;
}

template <class Parse>
void Api::generate(http::ExchangePtr exchange, bool renders, Parse parse) {
  if (const auto reason = unavailable()) return respond_with(*exchange, *reason);
  auto admitted = admit(exchange);
  if (!admitted) return respond_with(*exchange, admitted.error());
  const auto arrival =
      std::make_shared<Arrival>(Arrival{exchange, Clock::now(), std::move(*admitted),
                                        http::Charge(exchange->account(), http::Held::kDocuments)});
  exchange->run_in_background([this, arrival, renders, parse] {
    const http::ExchangePtr& exchange = arrival->exchange;
    if (const auto reason = unavailable()) return arrival->refuse(*reason);
    auto request = [&]() -> decltype(parse(std::string(), parse_context_)) {
      const http::Body body = exchange->take_body();
      const auto context =
          charged_context(arrival->document, {exchange->budget(), exchange->account()});
      if (auto refused = context.charge_parsing(body.text)) return Err{std::move(*refused)};
      if (const size_t bytes = renders ? rendering_bytes(body.text) : 0;
          !arrival->document.try_add(bytes))
        return Err{does_not_fit(*exchange->account(), bytes)};
      return parse(body.text, context);
    }();
    if (!request) return arrival->refuse(std::move(request).error());
    if (auto known = check_model(request->model); !known) return arrival->refuse(known.error());
    left_out_.log(exchange->request(), *request);
    const int64_t generations = num_prompts(*request) * request->n;
    if (auto granted = arrival->client.admission->add_generations(generations); !granted)
      return arrival->refuse(granted.error());
    const size_t bytes = multiplied_bytes(*request, planner_.fixed_pair_bytes());
    const bool is_long = bytes >= options_.http.large_body_bytes;
    if (!request->needs_grammar && !is_long) return begin(*arrival, *request);
    auto task = [this, arrival,
                 request = std::make_shared<std::decay_t<decltype(*request)>>(
                     std::move(*request))] { begin(*arrival, *request); };
    if (is_long) return exchange->run_beside_large(std::move(task));
    exchange->run_beside_grammars(std::move(task));
  });
}

template <class Request>
void Api::begin(Arrival& arrival, const Request& request) {
  if (const auto reason = unavailable()) return arrival.refuse(*reason);
  const http::ExchangePtr& exchange = arrival.exchange;
  // As in vLLM the header goes before the body's field.
  const http::Request& http_request = exchange->request();
  const http::RequestHead& head = http_request.head;
  const bool by_header = head.id == head.header("x-request-id") || request.request_id.empty();
  const std::string id = by_header ? head.id : request.request_id;
  auto plan = planner_.plan(request, id, {exchange->budget(), exchange->account()});
  if (!plan) return arrival.refuse(std::move(plan).error());
  plan->arrived = arrival.arrived;
  examine_cache(http_request, arrival.client.counted_as, *plan);
  assign(*plan, arrival.client);
  plan->admission = std::move(arrival.client.admission);
  const auto generation =
      std::make_shared<Generation>(exchange, engine_, metrics_, generations_, std::move(*plan));
  exchange->post([exchange, generation, id] {
    exchange->set_request_id(id);
    generation->start();
  });
}

void Api::completions(http::ExchangePtr exchange) {
  generate(std::move(exchange), /*renders=*/false, openai::parse_completion);
}

void Api::chat_completions(http::ExchangePtr exchange) {
  generate(std::move(exchange), /*renders=*/true, openai::parse_chat);
}

void Api::responses(http::ExchangePtr exchange) {
  generate(std::move(exchange), /*renders=*/true, responses::parse_responses);
}

void Api::embeddings(http::ExchangePtr exchange) {
  generate(std::move(exchange), /*renders=*/false, pooling::parse_embeddings);
}

void Api::rerank(http::ExchangePtr exchange) {
  generate(std::move(exchange), /*renders=*/true, pooling::parse_rerank);
}

void Api::score(http::ExchangePtr exchange) {
  generate(std::move(exchange), /*renders=*/true, pooling::parse_score);
}

void Api::messages(http::ExchangePtr exchange) {
  generate(std::move(exchange), /*renders=*/true, anthropic::parse_messages);
}

}  // namespace quire::server
