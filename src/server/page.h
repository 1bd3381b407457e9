#pragma once
#include <string_view>

#include "server/http/message.h"

namespace quire::server {

// The chat page of src/server/page, put together when Quire is built (cmake/embed_page.cmake), with
// {{NONCE}} where its style and its script have theirs.
extern const std::string_view kPage;

// The answer to `GET /`: the page with a nonce of its own. Its Content-Security-Policy lets nothing
// run or load but what stands in it, and lets it talk to its own origin only.
http::Response page_response();

}  // namespace quire::server
