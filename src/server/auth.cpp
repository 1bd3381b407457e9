#include "server/auth.h"

namespace quire::server {

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  volatile unsigned char difference = 0;
  for (size_t i = 0; i < a.size(); ++i)
    difference = difference | static_cast<unsigned char>(a[i] ^ b[i]);
  return difference == 0;
}

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
