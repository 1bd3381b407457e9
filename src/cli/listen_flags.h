#pragma once
#include <CLI/CLI.hpp>
#include <string>

#include "server/http/options.h"
#include "server/http/unix_path.h"

namespace quire::cli {

// Where and how `quire serve` is reached.
struct ListenFlags {
  std::string certificate_file, key_file;  // empty: no TLS; no key file: the certificate's
  std::string unix_path;                   // empty: host and port
  std::string unix_mode;                   // empty: 660
};

void add_listen_flags(CLI::App& command, ListenFlags& flags, server::http::HttpOptions& http);

// Reads the certificate and binds the socket, so that the start ends before a weight is read if
// either is wrong. A Unix socket is there until `unix_path` goes. Throws LoadError.
void open_listener(const ListenFlags& flags, server::http::HttpOptions& http,
                   server::http::UnixPath& unix_path);

// The files of the flags, read anew; null without --ssl-certfile. Throws LoadError.
server::http::TlsContext read_certificate(const ListenFlags& flags);

// For a person to try: where the server listens, and a request.
std::string invitation(const server::http::HttpOptions& http, uint16_t port,
                       const std::string& root_path, const std::string& model);

}  // namespace quire::cli
