#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/errors.h"
#include "server/http/message.h"

namespace quire::server {

// The origins of --allowed-origins. Each text is origins (scheme://host[:port]) or "*", separated
// by commas, or vLLM's JSON list of these. Origins come back in lower case. Throws LoadError for
// anything else.
std::vector<std::string> parse_allowed_origins(const std::vector<std::string>& texts);

// Which web pages may use the server (the Fetch standard calls this CORS).
//
// Pages of allowed origins may read its answers. On a server that is guarded only by its address
// (loopback, no key) other pages are refused by their Origin, and those whose name was made to
// point here (DNS rebinding) by their Host, which no script can choose.
class OriginPolicy {
 public:
  OriginPolicy(std::vector<std::string> allowed, bool address_is_only_guard);

  // The answer to a preflight request of an allowed page; it brings no key.
  std::optional<http::Response> answer_preflight(const http::RequestHead& head) const;
  // Why the request is refused, if it is.
  std::optional<ApiError> why_refused(const http::RequestHead& head) const;
  // What the answer to the request needs so that the page may read it.
  std::vector<std::pair<std::string, std::string>> headers_for(const http::RequestHead& head) const;

 private:
  bool allows(std::string_view origin) const;
  bool allows_host(std::string_view authority) const;

  const std::vector<std::string> allowed_;
  const bool any_;
  const bool address_is_only_guard_;
};

}  // namespace quire::server
