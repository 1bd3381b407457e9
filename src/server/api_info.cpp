// The endpoints that do not generate.
#include "server/anthropic/parse.h"
#include "server/api.h"
#include "server/openapi.h"
#include "server/page.h"

namespace quire::server {
namespace {

http::Response json_response(const json::value& body) {
  http::Response response;
  response.body = dump_json(body);
  return response;
}

// What an id of /tokenize's answer takes as a JSON value and as text; with its spelling.
constexpr size_t kIdBytes = 48, kSpelledIdBytes = 144;
// Of /detokenize's text: itself or the body, and its JSON value.
constexpr size_t kTextCopies = 2;

}  // namespace

// Answers from a worker thread with what `make` returns.
template <class Make>
void Api::answer_in_background(http::ExchangePtr exchange, Make make, bool is_long) {
  auto admitted = admit(exchange);
  if (!admitted) return respond_with(*exchange, admitted.error());
  auto task = [this, exchange, make, admission = std::move(admitted->admission)]() mutable {
    const auto held = std::make_shared<http::Charge>(exchange->account(), http::Held::kDocuments);
    const RequestMeans means{exchange->budget(), exchange->account()};
    const auto made = [&]() -> Result<json::value, ApiError> {
      if (const auto reason = unavailable()) return Err{*reason};
      const http::Body body = exchange->take_body();
      const size_t bytes = document_bytes(body.text);
      if (!held->try_add(bytes)) return Err{does_not_fit(*means.account, bytes)};
      return (this->*make)(exchange->request(), body.text, means, *held);
    }();
    const http::Request& request = exchange->request();
    auto response = std::make_shared<http::Response>(
        made ? json_response(*made) : server::error_response(made.error(), request.head));
    exchange->post([exchange, response, held, admission = std::move(admission)]() mutable {
      admission.reset();
      exchange->respond(std::move(*response));
    });
  };
  if (is_long) return exchange->run_beside_large(std::move(task));
  exchange->run_in_background(std::move(task));
}

void Api::health(http::ExchangePtr exchange) {
  const engine::EngineStats status = engine_.stats();
  if (!status.healthy) {
    return respond_with(*exchange, {503, "The engine has failed: " + status.failure, ""});
  }
  if (const auto reason = unavailable()) return respond_with(*exchange, *reason);
  exchange->respond(json_response(json::object{{"status", "ok"}}));
}

void Api::page(http::ExchangePtr exchange) { exchange->respond(page_response()); }

void Api::ping(http::ExchangePtr exchange) { health(std::move(exchange)); }

void Api::version(http::ExchangePtr exchange) {
  const engine::EngineStats status = engine_.stats();
  exchange->respond(json_response(json::object{{"version", QUIRE_VERSION},
                                               {"device", status.device},
                                               {"device_description", status.device_description},
                                               // whether an answer's bits depend on itself alone
                                               {"batch_invariant", status.device != "metal"}}));
}

void Api::metrics(http::ExchangePtr exchange) {
  http::Response response;
  response.content_type = "text/plain; version=0.0.4; charset=utf-8";
  response.body = metrics_.render(engine_.stats(), http_state_());
  exchange->respond(std::move(response));
}

void Api::load(http::ExchangePtr exchange) {
  const auto load = static_cast<int64_t>(generations_.all().size());
  exchange->respond(json_response(json::object{{"server_load", load}}));
}

// As vLLM has it: an adapter's root is its folder, its parent the model.
json::object Api::model_card(const std::string& name) const {
  const ServedAdapter* adapter = find_adapter(name);
  const std::string& model = options_.served_model_names.front();
  return {{"id", name},
          {"object", "model"},
          {"created", started_},
          {"owned_by", "quire"},
          {"root", adapter ? adapter->path : model},
          {"parent", adapter ? json::value(model) : json::value()},
          {"max_model_len", engine_.max_model_len()}};
}

void Api::openapi(http::ExchangePtr exchange) {
  std::vector<DescribedRoute> described;
  for (const Route& route : routes())
    if (route.path != "/" && !is_left_to_others(route))
      described.push_back({route.method, route.path, route.fields});
  json::value document = openapi_document(described, QUIRE_VERSION);
  if (!options_.root_path.empty())
    document.get_object()["servers"] = json::array{json::object{{"url", options_.root_path}}};
  exchange->respond(json_response(document));
}

// As vLLM has it, for clients that tokenise and render with what the server has (lm-eval's remote
// tokenizer).
void Api::tokenizer_info(http::ExchangePtr exchange) {
  json::object info{{"tokenizer_class", "PreTrainedTokenizerFast"},
                    {"model_max_length", engine_.max_model_len()},
                    {"vocab_size", engine_.vocab_size()},
                    {"chat_template", nullptr}};
  if (text_.chat_template) info["chat_template"] = text_.chat_template->source();
  for (const char* name : {"bos_token", "eos_token", "pad_token", "unk_token"}) {
    const auto token = text_.tokenizer->special_token(name);
    info[name] = token ? json::value(*token) : json::value();
  }
  exchange->respond(json_response(info));
}

void Api::list_models(http::ExchangePtr exchange) {
  json::array cards;
  for (const std::string& name : options_.served_model_names) cards.push_back(model_card(name));
  for (const ServedAdapter& adapter : options_.adapters) cards.push_back(model_card(adapter.name));
  exchange->respond(json_response(json::object{{"object", "list"}, {"data", std::move(cards)}}));
}

void Api::get_model(http::ExchangePtr exchange) {
  const std::string name(
      local_path(exchange->request().head).substr(std::string_view("/v1/models/").size()));
  if (auto known = check_model(name); !known) return respond_with(*exchange, known.error());
  exchange->respond(json_response(model_card(name)));
}

void Api::tokenize(http::ExchangePtr exchange) {
  // A chat may bring a template of its own, which is a program.
  answer_in_background(std::move(exchange), &Api::tokenize_body,
                       options_.trust_request_chat_template);
}

Result<std::vector<int32_t>, ApiError> Api::encode_text(std::string_view text,
                                                        bool add_special_tokens, const char* param,
                                                        const RequestMeans& means) const {
  if (text.size() > options_.limits.max_tokenize_bytes) {
    return Err{ApiError{400,
                        "The text of " + std::to_string(text.size()) + " bytes is too long: " +
                            std::to_string(options_.limits.max_tokenize_bytes) +
                            " bytes are tokenised at once",
                        param}};
  }
  text::EncodeOptions encode;
  encode.add_special_tokens = add_special_tokens;
  return planner_.prompts().encode(text, encode, param, means);
}

Result<json::value, ApiError> Api::tokenize_body(const http::Request& http_request,
                                                 std::string_view body, const RequestMeans& means,
                                                 http::Charge& held) {
  auto request = openai::parse_tokenize(body, charged_context(held, means));
  if (!request) return Err{std::move(request).error()};
  if (auto known = check_model(request->model); !known) return Err{known.error()};
  left_out_.log(http_request, *request);
  const PromptBuilder& prompts = planner_.prompts();
  std::string text;
  const char* param = "prompt";
  if (const auto* chat = std::get_if<openai::ChatInput>(&request->input)) {
    if (const size_t bytes = rendering_bytes(body); !held.try_add(bytes))
      return Err{does_not_fit(*means.account, bytes)};
    auto rendered = prompts.render(*chat, means.budget);
    if (!rendered) return Err{std::move(rendered).error()};
    text = std::move(*rendered);
    param = "messages";
  } else {
    text = std::move(std::get<std::string>(request->input));
  }
  auto ids = encode_text(text, request->add_special_tokens, param, means);
  if (!ids) return Err{std::move(ids).error()};
  const size_t bytes = ids->size() * (request->return_token_strs ? kSpelledIdBytes : kIdBytes);
  if (!held.try_add(bytes)) return Err{does_not_fit(*means.account, bytes)};
  json::array tokens(ids->begin(), ids->end());
  json::value strings;
  if (request->return_token_strs) {
    strings.emplace_array();
    for (const int32_t id : *ids) {
      const std::string_view spelled = text_.tokenizer->id_to_token(id);
      strings.get_array().push_back(json::value(json::string_view(spelled.data(), spelled.size())));
    }
  }
  return json::value(json::object{{"count", ids->size()},
                                  {"max_model_len", engine_.max_model_len()},
                                  {"tokens", std::move(tokens)},
                                  {"token_strs", std::move(strings)}});
}

void Api::count_tokens(http::ExchangePtr exchange) {
  answer_in_background(std::move(exchange), &Api::count_tokens_body);
}

Result<json::value, ApiError> Api::count_tokens_body(const http::Request& http_request,
                                                     std::string_view body,
                                                     const RequestMeans& means,
                                                     http::Charge& held) {
  if (const size_t bytes = rendering_bytes(body); !held.try_add(bytes))
    return Err{does_not_fit(*means.account, bytes)};
  auto request = anthropic::parse_count_tokens(body, charged_context(held, means));
  if (!request) return Err{std::move(request).error()};
  if (auto known = check_model(request->model); !known) return Err{known.error()};
  left_out_.log(http_request, *request);
  auto text = planner_.prompts().render(request->chat, means.budget);
  if (!text) return Err{std::move(text).error()};
  auto ids = encode_text(*text, request->add_special_tokens, "messages", means);
  if (!ids) return Err{std::move(ids).error()};
  if (const size_t bytes = ids->size() * sizeof(int32_t); !held.try_add(bytes))
    return Err{does_not_fit(*means.account, bytes)};
  return json::value(json::object{{"input_tokens", ids->size()}});
}

void Api::detokenize(http::ExchangePtr exchange) {
  answer_in_background(std::move(exchange), &Api::detokenize_body);
}

Result<json::value, ApiError> Api::detokenize_body(const http::Request& http_request,
                                                   std::string_view body, const RequestMeans& means,
                                                   http::Charge& held) {
  auto request = openai::parse_detokenize(body, charged_context(held, means));
  if (!request) return Err{std::move(request).error()};
  if (auto known = check_model(request->model); !known) return Err{known.error()};
  left_out_.log(http_request, *request);
  const size_t most = options_.limits.max_detokenize_ids;
  if (request->tokens.size() > most)
    return Err{ApiError{400, "`tokens` has more than " + std::to_string(most) + " ids", "tokens"}};
  const size_t bytes = request->tokens.size() * kIdBytes;
  if (!held.try_add(bytes)) return Err{does_not_fit(*means.account, bytes)};
  const size_t text_bytes = kTextCopies * text_.tokenizer->decoded_bytes(request->tokens);
  if (!held.try_add(text_bytes)) return Err{does_not_fit(*means.account, text_bytes)};
  auto text = planner_.prompts().decode(request->tokens, {.budget = &means.budget}, "tokens");
  if (!text) return Err{std::move(text).error()};
  return json::value(json::object{{"prompt", std::move(*text)}});
}

}  // namespace quire::server
