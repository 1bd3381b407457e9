#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

namespace quire::server::http {

struct HttpOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 8000;  // 0: any free one

  int io_threads = 2;      // sockets, and the small work per produced token
  int worker_threads = 4;  // parsing, templates, tokenising

  size_t max_header_bytes = 16u << 10;
  size_t max_body_bytes = 32u << 20;
  // A streaming response whose client leaves more than this unread is cut off.
  size_t max_unsent_bytes = 16u << 20;
  // Of all connections together: received bodies and unsent output.
  size_t max_buffered_bytes = size_t{2} << 30;
  size_t max_connections = 4096;

  std::chrono::milliseconds idle_timeout{75'000};    // between requests of a connection
  std::chrono::milliseconds header_timeout{30'000};  // from its first byte to its last
  std::chrono::milliseconds body_timeout{120'000};   // the same for the body
  std::chrono::milliseconds write_timeout{60'000};   // without a byte taken by the client
  // Comment lines sent in event streams that are silent for this long, so that proxies do not give
  // up during a long prefill. 0: none.
  std::chrono::milliseconds ping_interval{30'000};
};

}  // namespace quire::server::http
