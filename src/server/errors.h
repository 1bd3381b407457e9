#pragma once
#include <string>

#include "base/json.h"
#include "engine/request.h"
#include "server/http/message.h"

namespace quire::server {

// Why a request gets no answer, as the client will read it.
struct ApiError {
  int status = 400;
  std::string message;
  std::string param;  // the field at fault; empty: none
};

ApiError to_api_error(const engine::RequestError& error);

// {"error": {"message", "type", "param", "code"}}
json::value error_body(const ApiError& error);
http::Response error_response(const ApiError& error);

}  // namespace quire::server
