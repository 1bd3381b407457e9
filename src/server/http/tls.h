#pragma once
#include <memory>
#include <string>

struct ssl_ctx_st;  // OpenSSL's SSL_CTX

namespace quire::server::http {

// A certificate with its key, and how TLS is spoken with it: versions 1.2 and 1.3, no
// renegotiation, no early data, HTTP/1.1 or 1.0 where the client asks (ALPN). Connections share it;
// null: no TLS.
using TlsContext = std::shared_ptr<ssl_ctx_st>;

// What a file of PEM holds; `name` is the file's, for messages.
struct PemFile {
  std::string name, text;
};

// The server's certificate with those that lead to its root behind it, and its key. A key that is
// encrypted is refused: nobody is there to be asked. Throws LoadError that names the flag and the
// file. Logs a certificate whose time is not now.
TlsContext load_tls(const PemFile& certificate, const PemFile& key);

}  // namespace quire::server::http
