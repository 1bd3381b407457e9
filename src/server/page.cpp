#include "server/page.h"

#include <cstdio>
#include <random>
#include <string>

namespace quire::server {
namespace {

constexpr std::string_view kMark = "{{NONCE}}";

// 128 bits of the system's random source, which nobody guesses.
std::string make_nonce() {
  std::random_device random;
  std::string nonce;
  for (int i = 0; i < 4; ++i) {
    char word[9];
    std::snprintf(word, sizeof word, "%08x", random());
    nonce += word;
  }
  return nonce;
}

std::string with_nonce(std::string_view page, const std::string& nonce) {
  std::string out;
  for (;;) {
    const size_t mark = page.find(kMark);
    out += page.substr(0, mark);
    if (mark == std::string_view::npos) return out;
    out += nonce;
    page.remove_prefix(mark + kMark.size());
  }
}

}  // namespace

http::Response page_response() {
  const std::string nonce = make_nonce();
  http::Response response;
  response.content_type = "text/html; charset=utf-8";
  response.headers = {
      {"Content-Security-Policy",
       "default-src 'none'; script-src 'nonce-" + nonce + "'; style-src 'nonce-" + nonce +
           "'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
           "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"},
      {"X-Content-Type-Options", "nosniff"},
      {"X-Frame-Options", "DENY"},
      {"Referrer-Policy", "no-referrer"},
      {"Cross-Origin-Opener-Policy", "same-origin"},
      {"Cross-Origin-Resource-Policy", "same-origin"},
      {"Cache-Control", "no-store"}};
  response.body = with_nonce(kPage, nonce);
  return response;
}

}  // namespace quire::server
