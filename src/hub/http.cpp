#include "hub/http.h"

#include <curl/curl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <exception>
#include <mutex>

#include "base/check.h"
#include "base/error.h"
#include "base/printable.h"
#include "base/socket.h"
#include "base/trimmed.h"
#include "hub/addresses.h"

namespace quire::hub {
namespace {

constexpr int kMaxRedirects = 8;
constexpr size_t kMaxHeaders = 200, kMaxErrorBody = 4096;

void start_curl() {
  static std::once_flag once;
  std::call_once(once, [] {
    QUIRE_CHECK(curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK) << "libcurl does not start";
  });
}

// The first byte that "bytes 100-199/200" is about.
std::optional<uint64_t> first_byte(std::string_view range) {
  constexpr std::string_view kUnit = "bytes ";
  if (!range.starts_with(kUnit)) return std::nullopt;
  range.remove_prefix(kUnit.size());
  uint64_t first = 0;
  const auto [end, error] = std::from_chars(range.data(), range.data() + range.size(), first);
  if (error != std::errc() || end == range.data() + range.size() || *end != '-')
    return std::nullopt;
  return first;
}

// Is libcurl's, at the time of one request to one server.
struct Exchange {
  CURL* curl;
  const Request& request;
  const std::atomic<bool>& stop;
  Response response = {};
  bool begun = false;                  // the sink's begin() was called
  bool only_public = false;            // refuse other addresses
  bool met_private = false;            // and one was refused
  std::optional<bool> to_public = {};  // whether the first connection went to a public address
  std::exception_ptr thrown = {};      // by the sink

  long status() const {
    long status = 0;
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    return status;
  }
  void take(std::span<const char> bytes);
};

void Exchange::take(std::span<const char> bytes) {
  const bool is_file = request.sink != nullptr && (status() == 200 || status() == 206);
  if (!is_file) {
    const size_t most = request.sink != nullptr ? kMaxErrorBody : request.max_body;
    const size_t room = most - std::min(most, response.body.size());
    response.body.append(bytes.data(), std::min(room, bytes.size()));
    response.is_too_long |= bytes.size() > room;
    return;
  }
  if (!begun) {
    begun = true;
    const auto first = first_byte(response.header("content-range"));
    if (status() == 206 && first != request.from)
      throw LoadError(printable(request.url) + ": the server answers with another part (" +
                      printable(response.header("content-range")) + ") than was asked for");
    request.sink->begin(status() == 206 ? request.from : 0);
  }
  request.sink->add(bytes);
}

size_t on_body(char* data, size_t, size_t size, void* user) {
  auto& exchange = *static_cast<Exchange*>(user);
  try {
    exchange.take({data, size});
    return size;
  } catch (...) {  // libcurl is C: it must not see exceptions
    exchange.thrown = std::current_exception();
    return CURL_WRITEFUNC_ERROR;
  }
}

size_t on_header(char* data, size_t, size_t size, void* user) {
  auto& headers = static_cast<Exchange*>(user)->response.headers;
  const std::string_view line(data, size);
  if (line.starts_with("HTTP/")) headers.clear();  // of a 100 or of a proxy
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos || headers.size() >= kMaxHeaders) return size;
  std::string name(line.substr(0, colon));
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  headers[name] = trimmed(line.substr(colon + 1));
  return size;
}

int on_progress(void* user, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return static_cast<Exchange*>(user)->stop.load() ? 1 : 0;
}

// Sees the address that a name came to be, so no name server can lead it astray.
curl_socket_t on_socket(void* user, curlsocktype, curl_sockaddr* address) {
  auto& exchange = *static_cast<Exchange*>(user);
  const bool is_open = is_public(address->addr);
  if (exchange.only_public && !is_open) {
    exchange.met_private = true;
    return CURL_SOCKET_BAD;
  }
  exchange.to_public = is_open;
  return open_socket(address->family, address->socktype, address->protocol);
}

std::string failure_text(CURLcode code, const char* details, const Settings& settings) {
  if (code == CURLE_OPERATION_TIMEDOUT)
    return "nothing came for " + std::to_string(settings.stall.count()) + " s";
  const std::string text = details[0] != 0 ? details : curl_easy_strerror(code);
  return printable(trimmed(text));
}

}  // namespace

std::string_view Response::header(std::string_view name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? std::string_view() : std::string_view(found->second);
}

struct HttpClient::Impl {
  const Settings& settings;
  const std::atomic<bool>& stop;
  CURL* curl = nullptr;
  std::string hub;                    // the endpoint's origin
  std::optional<bool> hub_is_public;  // by the address it was reached at

  Impl(const Settings& from, const std::atomic<bool>& when)
      : settings(from), stop(when), curl(curl_easy_init()), hub(origin_of(from.endpoint)) {
    QUIRE_CHECK(curl != nullptr) << "out of memory";
  }
  ~Impl() { curl_easy_cleanup(curl); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  Response send_once(const Request& request, bool is_redirected);
};

Response HttpClient::Impl::send_once(const Request& request, bool is_redirected) {
  Exchange exchange{.curl = curl, .request = request, .stop = stop};
  const bool is_hub = origin_of(request.url) == hub;
  exchange.only_public = is_redirected && !is_hub && hub_is_public.value_or(false);
  exchange.response.url = request.url;
  char details[CURL_ERROR_SIZE] = "";
  curl_slist* headers = curl_slist_append(nullptr, "Accept-Encoding: identity");
  if (is_hub && !settings.token.empty())
    headers = curl_slist_append(headers, ("Authorization: Bearer " + settings.token).c_str());
  const std::string range = std::to_string(request.from) + "-";
  const auto set = [this](CURLoption option, auto value) {
    QUIRE_CHECK(curl_easy_setopt(curl, option, value) == CURLE_OK) << "libcurl's option " << option;
  };
  curl_easy_reset(curl);  // connections stay
  set(CURLOPT_URL, request.url.c_str());
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_NOBODY, std::string_view(request.method) == "HEAD" ? 1L : 0L);
  set(CURLOPT_HTTPHEADER, headers);
  set(CURLOPT_USERAGENT, settings.user_agent.c_str());
  if (request.from > 0) set(CURLOPT_RANGE, range.c_str());
  if (!settings.certificates.empty()) set(CURLOPT_CAINFO, settings.certificates.c_str());
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_CONNECTTIMEOUT, static_cast<long>(settings.stall.count()));
  set(CURLOPT_LOW_SPEED_LIMIT, 1L);
  set(CURLOPT_LOW_SPEED_TIME, static_cast<long>(settings.stall.count()));
  // A wish: older versions refuse it while the last transfer's buffer is there, which they keep if
  // a name was not found.
  static_cast<void>(curl_easy_setopt(curl, CURLOPT_BUFFERSIZE, 256L << 10));
  set(CURLOPT_ERRORBUFFER, static_cast<char*>(details));
  set(CURLOPT_WRITEFUNCTION, &on_body);
  set(CURLOPT_WRITEDATA, &exchange);
  set(CURLOPT_HEADERFUNCTION, &on_header);
  set(CURLOPT_HEADERDATA, &exchange);
  set(CURLOPT_XFERINFOFUNCTION, &on_progress);
  set(CURLOPT_XFERINFODATA, &exchange);
  set(CURLOPT_NOPROGRESS, 0L);
  set(CURLOPT_OPENSOCKETFUNCTION, &on_socket);
  set(CURLOPT_OPENSOCKETDATA, &exchange);
  const CURLcode code = curl_easy_perform(curl);
  curl_slist_free_all(headers);
  if (exchange.thrown) std::rethrow_exception(exchange.thrown);
  if (exchange.met_private)
    throw LoadError("the hub sends to " + printable(origin_of(request.url)) +
                    ", which is an address inside this network; nothing was fetched from there");
  Response& response = exchange.response;
  response.status = static_cast<int>(exchange.status());
  if (code != CURLE_OK) {
    response.failure = failure_text(code, details, settings);
    response.is_certificate = code == CURLE_PEER_FAILED_VERIFICATION ||
                              code == CURLE_SSL_CACERT_BADFILE || code == CURLE_SSL_CONNECT_ERROR;
  }
  if (is_hub && exchange.to_public) hub_is_public = exchange.to_public;
  return std::move(response);
}

HttpClient::HttpClient(const Settings& settings, const std::atomic<bool>& stop) {
  start_curl();
  impl_ = std::make_unique<Impl>(settings, stop);
}

HttpClient::~HttpClient() = default;

Response HttpClient::send(const Request& request) {
  Request next = request;
  for (int hops = 0; hops <= kMaxRedirects; ++hops) {
    Response response = impl_->send_once(next, hops > 0);
    const bool is_redirect = response.failure.empty() && response.status >= 300 &&
                             response.status < 400 && !response.header("location").empty();
    if (!is_redirect) return response;
    const std::string target = resolve_url(next.url, std::string(response.header("location")));
    if (!request.leave_hub && origin_of(target) != impl_->hub) return response;
    if (const auto why = refuse_redirect(impl_->settings.endpoint, target))
      throw LoadError("the hub sends " + printable(next.url) + " to " +
                      printable(response.header("location")) + ", " + *why +
                      "; nothing was fetched from there");
    next.url = target;
  }
  throw LoadError(printable(request.url) + ": the server redirects without end");
}

}  // namespace quire::hub
