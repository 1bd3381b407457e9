#include "server/http/tls.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <new>
#include <string_view>

#include "base/error.h"
#include "base/printable.h"

namespace quire::server::http {
namespace {

// What OpenSSL first found wrong, in words; what follows it says less.
std::string first_reason() {
  const unsigned long code = ERR_peek_error();
  const char* reason = ERR_reason_error_string(code);
  return reason != nullptr ? reason : "error " + std::to_string(code);
}

[[noreturn]] void fail(const std::string& flag, const PemFile& file, std::string reason) {
  ERR_clear_error();
  throw LoadError(flag + " " + printable(file.name) + ": " + reason);
}

std::string nothing_in(const std::string& what) {
  return "it holds no PEM " + what + " that can be read (" + first_reason() + ")";
}

// OpenSSL would ask at the terminal.
int refuse_to_ask(char*, int, int, void* asked) {
  if (asked != nullptr) *static_cast<bool*>(asked) = true;
  return -1;
}

// Of what the client offers. A client that speaks other protocols only would take our answers for
// one of them.
int choose_protocol(SSL*, const unsigned char** chosen, unsigned char* size,
                    const unsigned char* offered, unsigned offered_size, void*) {
  constexpr std::string_view kOurs = "\x08http/1.1\x08http/1.0";
  unsigned char* out = nullptr;
  const int found =
      SSL_select_next_proto(&out, size, reinterpret_cast<const unsigned char*>(kOurs.data()),
                            static_cast<unsigned>(kOurs.size()), offered, offered_size);
  *chosen = out;
  return found == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_ALERT_FATAL;
}

using Bio = std::unique_ptr<BIO, int (*)(BIO*)>;
using Certificate = std::unique_ptr<X509, void (*)(X509*)>;
using Key = std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)>;

Bio reader_of(const PemFile& file) {
  ERR_clear_error();
  Bio bio(BIO_new_mem_buf(file.text.data(), static_cast<int>(file.text.size())), BIO_free);
  if (bio == nullptr) throw std::bad_alloc();
  return bio;
}

// A certificate that can be read may be refused, such as for a key that is too short.
void use_certificate(SSL_CTX* context, const PemFile& file) {
  const Bio bio = reader_of(file);
  const Certificate own(PEM_read_bio_X509_AUX(bio.get(), nullptr, refuse_to_ask, nullptr),
                        X509_free);
  if (own == nullptr) fail("--ssl-certfile", file, nothing_in("certificate"));
  if (SSL_CTX_use_certificate(context, own.get()) != 1)
    fail("--ssl-certfile", file, first_reason());
  for (;;) {
    Certificate next(PEM_read_bio_X509(bio.get(), nullptr, refuse_to_ask, nullptr), X509_free);
    if (next == nullptr) break;
    if (SSL_CTX_add0_chain_cert(context, next.get()) != 1)
      fail("--ssl-certfile", file, first_reason());
    (void)next.release();  // the context's now
  }
  const unsigned long end = ERR_peek_last_error();
  if (ERR_GET_LIB(end) != ERR_LIB_PEM || ERR_GET_REASON(end) != PEM_R_NO_START_LINE)
    fail("--ssl-certfile", file, "a certificate behind the first is broken: " + first_reason());
  ERR_clear_error();
}

void use_key(SSL_CTX* context, const PemFile& file, const PemFile& certificate) {
  const Bio bio = reader_of(file);
  bool is_encrypted = false;
  const Key key(PEM_read_bio_PrivateKey(bio.get(), nullptr, refuse_to_ask, &is_encrypted),
                EVP_PKEY_free);
  if (is_encrypted)
    fail("--ssl-keyfile", file, "the key is encrypted, and nobody is asked for its password");
  if (key == nullptr) fail("--ssl-keyfile", file, nothing_in("key"));
  // A key of the certificate's kind is compared when it is taken, one of another kind is not.
  if (SSL_CTX_use_PrivateKey(context, key.get()) != 1 || SSL_CTX_check_private_key(context) != 1)
    fail("--ssl-keyfile", file,
         "it is not the key of the certificate in " + printable(certificate.name));
}

void set_rules(SSL_CTX* context) {
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  // The end of a connection without TLS's own: what a request lacks then shows by its length.
  SSL_CTX_set_options(
      context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_IGNORE_UNEXPECTED_EOF);
  // Buffers of a connection that waits are given back.
  SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                                SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  // Clients keep their sessions (tickets), the server holds nothing for them.
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_alpn_select_cb(context, choose_protocol, nullptr);
}

void warn_of_its_time(const SSL_CTX* context, const PemFile& file) {
  const X509* certificate = SSL_CTX_get0_certificate(context);
  if (X509_cmp_current_time(X509_get0_notAfter(certificate)) < 0)
    spdlog::warn("--ssl-certfile {}: the certificate has expired", printable(file.name));
  if (X509_cmp_current_time(X509_get0_notBefore(certificate)) > 0)
    spdlog::warn("--ssl-certfile {}: the certificate is not valid yet", printable(file.name));
}

}  // namespace

TlsContext load_tls(const PemFile& certificate, const PemFile& key) {
  const TlsContext context(SSL_CTX_new(TLS_server_method()), SSL_CTX_free);
  if (context == nullptr) throw LoadError("TLS cannot be set up: " + first_reason());
  set_rules(context.get());
  use_certificate(context.get(), certificate);
  use_key(context.get(), key, certificate);
  warn_of_its_time(context.get(), certificate);
  return context;
}

}  // namespace quire::server::http
