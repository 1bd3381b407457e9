#include "server/http/message.h"

#include <algorithm>
#include <charconv>

namespace quire::server::http {

std::string_view RequestHead::header(std::string_view name) const {
  for (const auto& [key, value] : headers)
    if (key == name) return value;
  return {};
}

std::string_view reason_phrase(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 411:
      return "Length Required";
    case 413:
      return "Content Too Large";
    case 415:
      return "Unsupported Media Type";
    case 417:
      return "Expectation Failed";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return "Unknown";
  }
}

std::string http_date(std::time_t seconds) {
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char text[64];
  // The names of days and months are English: the process never leaves the "C" locale.
  return {text, std::strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &utc)};
}

std::string format_head(const Response& response, std::optional<size_t> body_bytes, bool http_1_1,
                        bool keep_alive) {
  std::string out = "HTTP/1.1 " + std::to_string(response.status) + ' ';
  out += reason_phrase(response.status);
  out += "\r\nServer: quire\r\nDate: " + http_date(std::time(nullptr)) + "\r\n";
  if (!response.content_type.empty()) out += "Content-Type: " + response.content_type + "\r\n";
  for (const auto& [name, value] : response.headers) out += name + ": " + value + "\r\n";
  if (body_bytes) {
    out += "Content-Length: " + std::to_string(*body_bytes) + "\r\n";
  } else if (http_1_1) {
    out += "Transfer-Encoding: chunked\r\n";
  }
  if (!keep_alive) {
    out += "Connection: close\r\n";
  } else if (!http_1_1) {
    out += "Connection: keep-alive\r\n";
  }
  out += "\r\n";
  return out;
}

std::string lower_case(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return out;
}

std::optional<std::string> percent_decode(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    if (i + 2 >= text.size()) return std::nullopt;
    unsigned value = 0;
    const char* last = text.data() + i + 3;
    const auto parsed = std::from_chars(text.data() + i + 1, last, value, 16);
    if (parsed.ec != std::errc() || parsed.ptr != last) return std::nullopt;
    out += static_cast<char>(value);
    i += 2;
  }
  return out;
}

}  // namespace quire::server::http
