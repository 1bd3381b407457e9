#include "server/auth.h"

namespace quire::server {
namespace {

// The token of "Bearer TOKEN"; empty for any other scheme. A scheme is read without regard to case
// and may be followed by several spaces (RFC 9110, section 11).
std::string_view bearer_token(std::string_view authorization) {
  const std::string_view scheme = authorization.substr(0, authorization.find(' '));
  if (http::lower_case(scheme) != "bearer") return {};
  std::string_view token = authorization.substr(scheme.size());
  while (token.starts_with(' ')) token.remove_prefix(1);
  return token;
}

}  // namespace

std::string_view given_key(const http::RequestHead& head) {
  const std::string_view token = bearer_token(head.header("authorization"));
  return token.empty() ? head.header("x-api-key") : token;
}

}  // namespace quire::server
