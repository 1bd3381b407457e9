#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "server/http/message.h"

namespace quire::server {

// Compares in a time that depends on the lengths only, so that a key cannot be guessed byte by
// byte.
bool equal_in_constant_time(std::string_view a, std::string_view b);

// Whether the request brings one of the keys, as `Authorization: Bearer KEY` or `X-Api-Key: KEY`.
// Without keys everybody may.
bool is_authorized(const http::RequestHead& head, const std::vector<std::string>& keys);

}  // namespace quire::server
