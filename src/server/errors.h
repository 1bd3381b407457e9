#pragma once
#include <string>
#include <string_view>

#include "base/json.h"
#include "engine/request.h"
#include "server/http/exchange.h"
#include "server/http/message.h"

namespace quire::server {

// Why a request gets no answer, as the client will read it.
struct ApiError {
  int status = 400;
  std::string message;
  std::string param;      // the field at fault; empty: none
  std::string code = {};  // what programs read; empty: what belongs to the status, perhaps nothing
  int64_t retry_after = 1;  // seconds, told with 429 and 503
};

// The code of prompts and answers that do not fit into the model's context.
inline constexpr const char* kContextLengthExceeded = "context_length_exceeded";

ApiError to_api_error(const engine::RequestError& error);

// {"error": {"message", "type", "param", "code"}}, with OpenAI's types and codes.
json::value error_body(const ApiError& error);
// {"type": "error", "error": {"type", "message"}, "request_id"}: of Anthropic's API.
json::value anthropic_error_body(const ApiError& error, const std::string& request_id);

// In the form of the API that the path belongs to.
http::Response error_response(const ApiError& error, const http::RequestHead& head);
void respond_with(http::Exchange& exchange, const ApiError& error);
// Whether the path is one of Anthropic's API, whatever stands before it.
bool is_anthropic_path(std::string_view path);

}  // namespace quire::server
