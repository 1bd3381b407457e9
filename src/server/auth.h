#pragma once
#include <string_view>

#include "server/http/message.h"

namespace quire::server {

// Compares in a time that depends on the lengths only, so that a key cannot be guessed byte by
// byte.
bool equal_in_constant_time(std::string_view a, std::string_view b);

// What the request brings as its key, in `Authorization: Bearer KEY` or `X-Api-Key: KEY`; empty if
// it brings none.
std::string_view given_key(const http::RequestHead& head);

}  // namespace quire::server
