#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "server/http/tls.h"

namespace quire::server::http {

struct HttpOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 8000;  // 0: any free one
  // Where a Unix socket lies that is bound_socket; empty: a TCP socket. Host and port say nothing
  // then.
  std::string unix_path;
  // A socket of bind_address() or UnixPath, which the server takes over; -1: it binds host and
  // port itself.
  int bound_socket = -1;

  TlsContext tls;  // null: no TLS

  int io_threads = 2;  // sockets, and the small work per produced token
  // Parsing, templates, tokenising. Half of them, rounded down, takes the large bodies.
  int worker_threads = 6;
  // For worker threads; beyond it they are refused (429). See WorkQueue.
  size_t max_waiting_jobs = 1024;
  std::chrono::milliseconds max_job_wait{30'000};
  size_t large_body_bytes = 64u << 10;             // from which a body is large
  std::chrono::milliseconds max_text_time{1'000};  // processor time of a request's text work

  size_t max_header_bytes = 16u << 10;
  size_t max_body_bytes = 32u << 20;
  // A streaming response whose client leaves more than this unread is cut off.
  size_t max_unsent_bytes = 16u << 20;
  // Of all connections together: see Ledger.
  size_t max_buffered_bytes = size_t{512} << 20;
  size_t max_connections = 4096;

  std::chrono::milliseconds idle_timeout{75'000};    // between requests of a connection
  std::chrono::milliseconds header_timeout{30'000};  // from its first byte to its last
  std::chrono::milliseconds body_timeout{120'000};   // the same for the body
  std::chrono::milliseconds write_timeout{60'000};   // in which the client takes 64 KiB, or all
  // Comment lines sent in event streams that are silent for this long, so that proxies do not give
  // up during a long prefill; and how often a client that ended its sending is looked for. 0: none.
  std::chrono::milliseconds ping_interval{15'000};
};

}  // namespace quire::server::http
