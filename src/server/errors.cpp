#include "server/errors.h"

#include <algorithm>
#include <string>

namespace quire::server {
namespace {

// A request's transfer coding (501) and its version of HTTP (505) are its client's choice.
bool is_clients_fault(int status) { return status < 500 || status == 501 || status == 505; }

const char* type_of(int status) {
  if (status == 429) return "requests";
  return is_clients_fault(status) ? "invalid_request_error" : "server_error";
}

const char* usual_code(int status) {
  switch (status) {
    case 401:
      return "invalid_api_key";
    case 405:
      return "method_not_supported";
    case 429:
      return "rate_limit_exceeded";
    default:
      return "";
  }
}

json::value text_or_null(const std::string& text) {
  return text.empty() ? json::value() : json::value(text);
}

int status_of(engine::RequestError::Kind kind) {
  using Kind = engine::RequestError::Kind;
  switch (kind) {
    case Kind::kInvalid:
    case Kind::kTooLong:
      return 400;
    case Kind::kOverloaded:
      return 429;
    case Kind::kShuttingDown:
    case Kind::kEngineDead:
      return 503;
  }
  return 500;
}

const char* anthropic_type_of(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    default:
      return is_clients_fault(status) ? "invalid_request_error" : "api_error";
  }
}

}  // namespace

ApiError to_api_error(const engine::RequestError& error) {
  const bool too_long = error.kind == engine::RequestError::Kind::kTooLong;
  return {status_of(error.kind), error.message, error.param, too_long ? kContextLengthExceeded : "",
          std::max<int64_t>(1, error.retry_after)};
}

json::value error_body(const ApiError& error) {
  json::object inner;
  inner["message"] = error.message;
  inner["type"] = type_of(error.status);
  inner["param"] = text_or_null(error.param);
  inner["code"] = text_or_null(error.code.empty() ? usual_code(error.status) : error.code);
  return json::object{{"error", std::move(inner)}};
}

// Clients that make room in the context by themselves look for the first words.
json::value anthropic_error_body(const ApiError& error, const std::string& request_id) {
  const bool too_long = error.code == kContextLengthExceeded;
  json::object inner;
  inner["type"] = anthropic_type_of(error.status);
  inner["message"] = too_long ? "prompt is too long: " + error.message : error.message;
  return json::object{
      {"type", "error"}, {"error", std::move(inner)}, {"request_id", text_or_null(request_id)}};
}

bool is_anthropic_path(std::string_view path) {
  return path.ends_with("/v1/messages") || path.ends_with("/v1/messages/count_tokens");
}

http::Response error_response(const ApiError& error, const http::RequestHead& head) {
  const bool anthropic = is_anthropic_path(head.path);
  http::Response response;
  response.status = error.status;
  response.body = dump_json(anthropic ? anthropic_error_body(error, head.id) : error_body(error));
  if (anthropic && !head.id.empty()) response.headers.emplace_back("request-id", head.id);
  if (error.status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  if (error.status == 429 || error.status == 503)
    response.headers.emplace_back("Retry-After", std::to_string(error.retry_after));
  return response;
}

void respond_with(http::Exchange& exchange, const ApiError& error) {
  exchange.respond(error_response(error, exchange.request().head));
}

}  // namespace quire::server
