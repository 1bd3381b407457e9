#include "hub/explain.h"

#include <curl/curl.h>

#include <charconv>
#include <cmath>
#include <cstdio>
#include <ctime>

#include "base/printable.h"

namespace quire::hub {
namespace {

std::optional<int64_t> number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  return value;
}

std::string token_hint(const Settings& settings) {
  return settings.token.empty() ? "set HF_TOKEN to a token of an account that may read it"
                                : "the token of " + printable(settings.token_from) +
                                      " is of an account that may not read it";
}

[[noreturn]] void throw_gated(const Settings& settings, const ModelId& id) {
  const std::string page = settings.endpoint + "/" + id.repo();
  throw LoadError(id.text() + " is gated: ask for access at " + page +
                  (settings.token.empty() ? ", then set HF_TOKEN to a token of that account"
                                          : " with the account of the token that is in " +
                                                printable(settings.token_from)));
}

[[noreturn]] void throw_unauthorised(const Response& response, const Settings& settings,
                                     const ModelId& id) {
  if (response.header("x-error-code") == "GatedRepo") throw_gated(settings, id);
  if (!settings.token.empty() && response.header("x-error-code") != "RepoNotFound")
    throw LoadError(settings.endpoint + " does not take the token of " +
                    printable(settings.token_from) +
                    " (401): it is wrong or has expired; make one at " + settings.endpoint +
                    "/settings/tokens");
  throw LoadError("there is no model " + id.repo() + " at " + settings.endpoint +
                  " that everybody may read (401): check its name, or if it is private, " +
                  token_hint(settings));
}

[[noreturn]] void throw_not_found(const Response& response, const Settings& settings,
                                  const ModelId& id, const std::string& file) {
  if (response.header("x-error-code") == "RevisionNotFound")
    throw LoadError(id.repo() + " at " + settings.endpoint + " has no branch, tag or commit " +
                    id.revision + " (404)");
  if (!file.empty())
    throw LoadError(id.text() + " at " + settings.endpoint + " has no file " + printable(file) +
                    " any more (404); run this again");
  throw LoadError("there is no model " + id.repo() + " at " + settings.endpoint +
                  " (404): check its name, or if it is private, " + token_hint(settings));
}

}  // namespace

void throw_failure(const Response& response, const Settings& settings, const ModelId& id,
                   const std::string& file) {
  const std::string what = file.empty() ? id.text() : id.text() + ": " + printable(file);
  const std::string host = origin_of(response.url);
  if (response.is_certificate)
    throw LoadError(what + ": " + host + " cannot prove who it is: " + response.failure +
                    "; SSL_CERT_FILE names the certificates to trust");
  if (!response.failure.empty() && response.status == 0)
    throw HubUnreachable(what + ": " + host + " cannot be reached: " + response.failure);
  if (!response.failure.empty())
    throw HubUnreachable(what + ": the connection to " + host + " broke off: " + response.failure +
                         "; what has come is kept, and the same command goes on from there");
  switch (response.status) {
    case 401:
      throw_unauthorised(response, settings, id);
    case 403:
      if (response.header("x-error-code") == "GatedRepo") throw_gated(settings, id);
      throw LoadError(what + ": " + host + " forbids it (403)" +
                      (response.header("x-error-message").empty()
                           ? std::string()
                           : ": " + printable(response.header("x-error-message"))) +
                      "; " + token_hint(settings));
    case 404:
      throw_not_found(response, settings, id, file);
    case 429:
      throw HubUnreachable(what + ": " + host +
                           " wants fewer requests (429) and does not say when it takes some again, "
                           "or only after too long; try later, or set HF_TOKEN: accounts get more");
    default:
      break;
  }
  const std::string status = "answers with status " + std::to_string(response.status);
  if (response.status >= 500)
    throw HubUnreachable(what + ": " + host + " " + status + "; try again later");
  throw LoadError(what + ": " + host + " " + status +
                  ", which is no answer of a hub; check HF_ENDPOINT");
}

std::optional<std::chrono::seconds> asked_wait(const Response& response) {
  const std::string_view after = response.header("retry-after");
  if (const auto seconds = number(after))
    return std::chrono::seconds(std::max<int64_t>(0, *seconds));
  if (!after.empty()) {
    const time_t when = curl_getdate(std::string(after).c_str(), nullptr);
    if (when >= 0) return std::chrono::seconds(std::max<int64_t>(0, when - std::time(nullptr)));
  }
  // RateLimit: "resolvers";r=0;t=137
  const std::string_view limit = response.header("ratelimit");
  if (const size_t at = limit.find(";t="); at != std::string_view::npos)
    if (const auto seconds = number(limit.substr(at + 3)))
      return std::chrono::seconds(std::max<int64_t>(0, *seconds));
  return std::nullopt;
}

std::string bytes_text(double bytes) {
  const char* const units[] = {"bytes", "kB", "MB", "GB", "TB", "PB"};
  size_t unit = 0;
  while (bytes >= 999.5 && unit + 1 < std::size(units)) bytes /= 1000, ++unit;
  char text[32];
  std::snprintf(text, sizeof text, unit >= 3 && bytes < 99.5 ? "%.1f %s" : "%.0f %s", bytes,
                units[unit]);
  return text;
}

std::string duration_text(double seconds) {
  const auto whole = static_cast<int64_t>(std::ceil(std::min(seconds, 1e9)));
  const int64_t h = whole / 3600, min = whole / 60 % 60, s = whole % 60;
  if (h > 0) return std::to_string(h) + " h " + std::to_string(min) + " min";
  if (min > 0) return std::to_string(min) + " min " + std::to_string(s) + " s";
  return std::to_string(s) + " s";
}

}  // namespace quire::hub
