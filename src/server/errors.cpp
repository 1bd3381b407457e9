#include "server/errors.h"

namespace quire::server {
namespace {

const char* type_of(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 404:
      return "not_found_error";
    case 429:
      return "rate_limit_error";
    case 503:
      return "unavailable_error";
    default:
      return status < 500 ? "invalid_request_error" : "server_error";
  }
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

}  // namespace

ApiError to_api_error(const engine::RequestError& error) {
  return {status_of(error.kind), error.message, error.param};
}

json::value error_body(const ApiError& error) {
  json::object inner;
  inner["message"] = error.message;
  inner["type"] = type_of(error.status);
  inner["param"] = error.param.empty() ? json::value() : json::value(error.param);
  inner["code"] = error.status;
  return json::object{{"error", std::move(inner)}};
}

http::Response error_response(const ApiError& error) {
  http::Response response;
  response.status = error.status;
  response.body = dump_json(error_body(error));
  if (error.status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  // A second is about how long it takes for a place in the queue to become free.
  if (error.status == 429 || error.status == 503) response.headers.emplace_back("Retry-After", "1");
  return response;
}

}  // namespace quire::server
