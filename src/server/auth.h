#pragma once
#include <string_view>

#include "server/http/message.h"

namespace quire::server {

// What the request brings as its key, in `Authorization: Bearer KEY` or `X-Api-Key: KEY`; empty if
// it brings none.
std::string_view given_key(const http::RequestHead& head);

}  // namespace quire::server
