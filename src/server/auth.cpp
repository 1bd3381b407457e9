#include "server/auth.h"

namespace quire::server {

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  volatile unsigned char difference = 0;
  for (size_t i = 0; i < a.size(); ++i)
    difference = difference | static_cast<unsigned char>(a[i] ^ b[i]);
  return difference == 0;
}

bool is_authorized(const http::RequestHead& head, const std::vector<std::string>& keys) {
  if (keys.empty()) return true;
  std::string_view given = head.header("x-api-key");
  const std::string_view authorization = head.header("authorization");
  constexpr std::string_view kScheme = "Bearer ";
  if (authorization.starts_with(kScheme) || authorization.starts_with("bearer "))
    given = authorization.substr(kScheme.size());
  bool found = false;
  for (const std::string& key : keys) found |= equal_in_constant_time(given, key);
  return found;
}

}  // namespace quire::server
