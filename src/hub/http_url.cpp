#include <curl/curl.h>

#include <algorithm>
#include <memory>

#include "base/printable.h"
#include "hub/addresses.h"
#include "hub/http.h"

namespace quire::hub {
namespace {

using Url = std::unique_ptr<CURLU, decltype(&curl_url_cleanup)>;

Url parse(const std::string& url) {
  Url parsed(curl_url(), &curl_url_cleanup);
  if (parsed && curl_url_set(parsed.get(), CURLUPART_URL, url.c_str(), 0) != CURLUE_OK)
    parsed.reset();
  return parsed;
}

std::string part(const Url& url, CURLUPart which, unsigned flags = 0) {
  char* text = nullptr;
  if (!url || curl_url_get(url.get(), which, &text, flags) != CURLUE_OK) return "";
  std::string out(text);
  curl_free(text);
  return out;
}

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

}  // namespace

std::string origin_of(const std::string& url) {
  const Url parsed = parse(url);
  const std::string scheme = lower(part(parsed, CURLUPART_SCHEME));
  if (scheme != "http" && scheme != "https") return "";
  return scheme + "://" + lower(part(parsed, CURLUPART_HOST)) + ":" +
         part(parsed, CURLUPART_PORT, CURLU_DEFAULT_PORT);
}

std::string resolve_url(const std::string& base, const std::string& location) {
  const Url url = parse(base);
  if (!url || curl_url_set(url.get(), CURLUPART_URL, location.c_str(), 0) != CURLUE_OK) return "";
  return part(url, CURLUPART_URL);
}

std::string escape_url(std::string_view text, std::string_view kept) {
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                       std::string_view("-_.~").find(c) != std::string_view::npos ||
                       kept.find(c) != std::string_view::npos;
    if (plain) {
      out += c;
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    out += '%';
    out += "0123456789ABCDEF"[byte >> 4];
    out += "0123456789ABCDEF"[byte & 15];
  }
  return out;
}

std::optional<std::string> refuse_redirect(const std::string& endpoint, const std::string& target) {
  const std::string origin = origin_of(target);
  if (origin.empty()) return "which is no address of the web";
  const Url from = parse(endpoint), to = parse(target);
  if (!part(to, CURLUPART_USER).empty() || !part(to, CURLUPART_PASSWORD).empty())
    return "with a user's name in it";
  if (origin_of(endpoint).starts_with("https:") && !origin.starts_with("https:"))
    return "where nothing is encrypted";
  if (is_public_host(part(from, CURLUPART_HOST)) && !is_public_host(part(to, CURLUPART_HOST)))
    return "which is an address inside this network";
  return std::nullopt;
}

}  // namespace quire::hub
