#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "hub/settings.h"

namespace quire::hub {

// What came back. `failure` is set if nothing whole did: the connection could not be made, or was
// cut.
struct Response {
  int status = 0;                                           // 0: no answer
  std::map<std::string, std::string, std::less<>> headers;  // names in lower case
  std::string body;  // what no sink took: at most Request::max_body bytes
  std::string url;   // the last that was asked
  std::string failure;
  bool is_certificate = false;  // the failure is that the server cannot be trusted
  bool is_too_long = false;     // the body is longer than max_body

  bool ok() const { return failure.empty() && status >= 200 && status < 300; }
  // The header's value, or "".
  std::string_view header(std::string_view name) const;
};

// Takes the bytes of a file. Both may throw; the request ends then, and throws the same.
struct Sink {
  // The answer begins at this byte of the file: where it was asked to, or at 0.
  std::function<void(uint64_t offset)> begin;
  std::function<void(std::span<const char> bytes)> add;
};

struct Request {
  const char* method = "GET";  // or HEAD
  std::string url;
  uint64_t from = 0;  // byte of the file to begin at
  const Sink* sink = nullptr;
  // Whether to go on where the server sends elsewhere than to the hub itself.
  bool leave_hub = true;
  size_t max_body = size_t{64} << 20;
};

// One connection at a time to a hub and to where it sends. Redirects are followed by its own rules:
// the token goes to the hub alone (scheme, host and port), https stays https, and from a hub that
// everybody can reach no redirect leads to an address that not everybody can.
class HttpClient {
 public:
  // `stop`: set by any thread, it ends requests.
  HttpClient(const Settings& settings, const std::atomic<bool>& stop);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // Throws LoadError if a redirect is refused.
  Response send(const Request& request);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// "https://host:443" of a URL, in lower case; empty if it is none of http or https.
std::string origin_of(const std::string& url);
// `location` as a server gave it, seen from `base`; empty if it is no URL.
std::string resolve_url(const std::string& base, const std::string& location);
// `text` with all but letters, digits and -_.~ escaped, and `kept`.
std::string escape_url(std::string_view text, std::string_view kept = "");
// Nothing if a redirect from the hub at `endpoint` may lead to `target`, else why not.
std::optional<std::string> refuse_redirect(const std::string& endpoint, const std::string& target);

}  // namespace quire::hub
