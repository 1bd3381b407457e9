// The endpoints that do not generate.
#include "server/api.h"

namespace quire::server {
namespace {

http::Response json_response(const json::value& body) {
  http::Response response;
  response.body = dump_json(body);
  return response;
}

// Answers from a worker thread with what `make` returns.
template <class Make>
void answer_in_background(http::ExchangePtr exchange, Make make) {
  exchange->run_in_background([exchange, make] {
    const auto made = make(exchange->request().body);
    auto response = made ? json_response(*made) : error_response(made.error());
    exchange->post([exchange, response = std::move(response)] { exchange->respond(response); });
  });
}

}  // namespace

void Api::health(http::ExchangePtr exchange) {
  const engine::EngineStats status = engine_.stats();
  if (!status.healthy) {
    return exchange->respond(
        server::error_response({503, "The engine has failed: " + status.failure, ""}));
  }
  if (const auto reason = unavailable()) return exchange->respond(server::error_response(*reason));
  exchange->respond(json_response(json::object{{"status", "ok"}}));
}

void Api::ping(http::ExchangePtr exchange) { health(std::move(exchange)); }

void Api::version(http::ExchangePtr exchange) {
  exchange->respond(json_response(json::object{{"version", QUIRE_VERSION}}));
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

json::object Api::model_card(const std::string& name) const {
  return {{"id", name},
          {"object", "model"},
          {"created", started_},
          {"owned_by", "quire"},
          {"root", options_.served_model_names.front()},
          {"parent", nullptr},
          {"max_model_len", engine_.max_model_len()}};
}

void Api::list_models(http::ExchangePtr exchange) {
  json::array cards;
  for (const std::string& name : options_.served_model_names) cards.push_back(model_card(name));
  exchange->respond(json_response(json::object{{"object", "list"}, {"data", std::move(cards)}}));
}

void Api::get_model(http::ExchangePtr exchange) {
  const std::string name(
      local_path(exchange->request().head).substr(std::string_view("/v1/models/").size()));
  if (auto known = check_model(name); !known)
    return exchange->respond(server::error_response(known.error()));
  exchange->respond(json_response(model_card(name)));
}

void Api::tokenize(http::ExchangePtr exchange) {
  answer_in_background(std::move(exchange),
                       [this](std::string_view body) { return tokenize_body(body); });
}

Result<json::value, ApiError> Api::tokenize_body(std::string_view body) const {
  auto request = openai::parse_tokenize(body, parse_context_);
  if (!request) return Err{std::move(request).error()};
  if (auto known = check_model(request->model); !known) return Err{known.error()};
  const PromptBuilder& prompts = planner_.prompts();
  std::string text;
  const char* param = "prompt";
  if (const auto* chat = std::get_if<openai::ChatInput>(&request->input)) {
    auto rendered = prompts.render(*chat);
    if (!rendered) return Err{std::move(rendered).error()};
    text = std::move(*rendered);
    param = "messages";
  } else {
    text = std::move(std::get<std::string>(request->input));
  }
  auto ids = prompts.encode(text, request->add_special_tokens, param);
  if (!ids) return Err{std::move(ids).error()};
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

void Api::detokenize(http::ExchangePtr exchange) {
  answer_in_background(std::move(exchange),
                       [this](std::string_view body) { return detokenize_body(body); });
}

Result<json::value, ApiError> Api::detokenize_body(std::string_view body) const {
  auto request = openai::parse_detokenize(body, parse_context_);
  if (!request) return Err{std::move(request).error()};
  if (auto known = check_model(request->model); !known) return Err{known.error()};
  auto text = text_.tokenizer->decode(request->tokens, false);
  if (!text) return Err{ApiError{400, text.error(), "tokens"}};
  return json::value(json::object{{"prompt", std::move(*text)}});
}

}  // namespace quire::server
