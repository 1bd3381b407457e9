#include "server/origin_policy.h"

#include <algorithm>

#include "base/error.h"
#include "base/printable.h"
#include "server/web_origin.h"

namespace quire::server {
namespace {

// For how many seconds a browser need not ask again.
constexpr const char* kPreflightAge = "600";

const ApiError kForeignPage{403,
                            "Web pages from other machines may not use a server on loopback that "
                            "has no --api-key; --allowed-origins names those that may",
                            ""};
const ApiError kForeignHost{403,
                            "The Host of this request is no name of this machine, and the server "
                            "has no --api-key; --allowed-origins names the pages that may use it",
                            ""};

// The scheme, "://" and a host, with or without a port; no path, no user.
bool is_origin(std::string_view text) {
  const size_t scheme_end = text.find("://");
  if (scheme_end == std::string_view::npos || scheme_end == 0) return false;
  const std::string_view rest = text.substr(scheme_end + 3);
  return !rest.empty() && rest.find_first_of("/?#@*\\ ") == std::string_view::npos;
}

void add_origin(std::string_view text, std::vector<std::string>& origins) {
  if (text.ends_with('/')) text.remove_suffix(1);
  const std::string origin = http::lower_case(text);
  if (origin != "*" && !is_origin(origin))
    throw LoadError("--allowed-origins: \"" + printable(text) +
                    "\" is no origin, like https://chat.example or http://10.0.0.1:3000, and not "
                    "\"*\"");
  origins.push_back(origin);
}

void add_some(std::string_view text, std::vector<std::string>& origins) {
  for (;;) {
    const size_t comma = text.find(',');
    add_origin(text.substr(0, comma), origins);
    if (comma == std::string_view::npos) return;
    text.remove_prefix(comma + 1);
  }
}

void add_list(const std::string& text, std::vector<std::string>& origins) {
  const auto list = parse_json(text);
  if (!list || !list->is_array())
    throw LoadError("--allowed-origins: " + printable(text) + " is no JSON list");
  for (const json::value& item : list->get_array()) {
    if (!item.is_string())
      throw LoadError("--allowed-origins: " + printable(text) + " has an item that is no string");
    add_origin(std::string_view(item.get_string().data(), item.get_string().size()), origins);
  }
}

std::string_view host_of_origin(std::string_view origin) {
  return host_of(origin.substr(origin.find("://") + 3));
}

}  // namespace

std::vector<std::string> parse_allowed_origins(const std::vector<std::string>& texts) {
  std::vector<std::string> origins;
  for (const std::string& text : texts)
    text.starts_with('[') ? add_list(text, origins) : add_some(text, origins);
  return origins;
}

OriginPolicy::OriginPolicy(std::vector<std::string> allowed, bool address_is_only_guard)
    : allowed_(std::move(allowed)),
      any_(std::find(allowed_.begin(), allowed_.end(), "*") != allowed_.end()),
      address_is_only_guard_(address_is_only_guard) {}

bool OriginPolicy::allows(std::string_view origin) const {
  if (origin.empty() || allowed_.empty()) return false;
  return any_ ||
         std::find(allowed_.begin(), allowed_.end(), http::lower_case(origin)) != allowed_.end();
}

// Rebinding takes a name of the public DNS, which has a dot; an address cannot be rebound. A
// program of HTTP/1.0 may send no Host.
bool OriginPolicy::allows_host(std::string_view authority) const {
  const std::string lower = http::lower_case(authority);
  const std::string_view host = host_of(lower);
  if (any_ || host.find('.') == std::string_view::npos || is_address(host) || is_loopback(host))
    return true;
  return std::any_of(allowed_.begin(), allowed_.end(),
                     [&](const std::string& origin) { return host_of_origin(origin) == host; });
}

std::optional<http::Response> OriginPolicy::answer_preflight(const http::RequestHead& head) const {
  if (head.method != "OPTIONS" || head.header("access-control-request-method").empty() ||
      !allows(head.header("origin")))
    return std::nullopt;
  http::Response response;
  response.content_type.clear();
  response.headers = {{"Access-Control-Allow-Methods", "GET, POST"},
                      {"Access-Control-Max-Age", kPreflightAge}};
  const std::string_view wanted = head.header("access-control-request-headers");
  if (!wanted.empty()) response.headers.emplace_back("Access-Control-Allow-Headers", wanted);
  return response;
}

std::optional<ApiError> OriginPolicy::why_refused(const http::RequestHead& head) const {
  if (!address_is_only_guard_) return std::nullopt;
  const std::string_view origin = head.header("origin");
  if (is_foreign_page(origin) && !allows(origin)) return kForeignPage;
  if (!allows_host(head.header("host"))) return kForeignHost;
  return std::nullopt;
}

std::vector<std::pair<std::string, std::string>> OriginPolicy::headers_for(
    const http::RequestHead& head) const {
  if (allowed_.empty()) return {};
  std::vector<std::pair<std::string, std::string>> headers{{"Vary", "Origin"}};
  const std::string_view origin = head.header("origin");
  if (!allows(origin)) return headers;
  headers.emplace_back("Access-Control-Allow-Origin", origin);
  headers.emplace_back("Access-Control-Expose-Headers", "X-Request-Id");
  return headers;
}

}  // namespace quire::server
