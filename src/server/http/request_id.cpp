#include "server/http/request_id.h"

#include <algorithm>
#include <cstdio>
#include <random>

namespace quire::server::http {
namespace {

constexpr size_t kMaxIdBytes = 128;

std::string random_id() {
  thread_local std::mt19937_64 random(std::random_device{}());
  char text[33];
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(random()),
                static_cast<unsigned long long>(random()));
  return text;
}

}  // namespace

bool is_usable_request_id(std::string_view id) {
  return !id.empty() && id.size() <= kMaxIdBytes && std::all_of(id.begin(), id.end(), [](char c) {
    return c > ' ' && c <= '~' && c != '"' && c != '\\';
  });
}

std::string choose_request_id(const RequestHead& head) {
  const std::string_view given = head.header("x-request-id");
  return is_usable_request_id(given) ? std::string(given) : random_id();
}

}  // namespace quire::server::http
