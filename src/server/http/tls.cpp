#include "server/http/tls.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
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

// OpenSSL's own words for a file that is missing, or is none, say little.
void check_file(const std::string& flag, const std::string& file) {
  struct stat info{};
  if (::stat(file.c_str(), &info) != 0)
    throw LoadError(flag + " " + printable(file) + ": " + std::strerror(errno));
  if (!S_ISREG(info.st_mode) && !S_ISFIFO(info.st_mode))
    throw LoadError(flag + " " + printable(file) + " is no file");
}

[[noreturn]] void fail(const std::string& flag, const std::string& file, std::string reason) {
  ERR_clear_error();
  throw LoadError(flag + " " + printable(file) + ": " + reason);
}

std::string nothing_in(const std::string& what) {
  return "it holds no PEM " + what + " that can be read (" + first_reason() + ")";
}

void use_certificate(SSL_CTX* context, const std::string& file) {
  ERR_clear_error();
  if (SSL_CTX_use_certificate_chain_file(context, file.c_str()) == 1) return;
  // A certificate that can be read may be refused, such as for a key that is too short.
  const bool is_read = SSL_CTX_get0_certificate(context) != nullptr ||
                       (ERR_GET_LIB(ERR_peek_error()) == ERR_LIB_SSL &&
                        ERR_GET_REASON(ERR_peek_error()) != ERR_R_PEM_LIB);
  fail("--ssl-certfile", file, is_read ? first_reason() : nothing_in("certificate"));
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

void use_key(SSL_CTX* context, const std::string& file, const std::string& certificate_file) {
  bool is_encrypted = false;
  ERR_clear_error();
  SSL_CTX_set_default_passwd_cb_userdata(context, &is_encrypted);
  const bool is_read = SSL_CTX_use_PrivateKey_file(context, file.c_str(), SSL_FILETYPE_PEM) == 1;
  SSL_CTX_set_default_passwd_cb_userdata(context, nullptr);
  if (is_encrypted)
    fail("--ssl-keyfile", file, "the key is encrypted, and nobody is asked for its password");
  // A key of the certificate's kind is compared when it is taken, one of another kind is not.
  const bool is_another =
      !is_read && ERR_GET_REASON(ERR_peek_last_error()) == X509_R_KEY_VALUES_MISMATCH;
  if (is_another || (is_read && SSL_CTX_check_private_key(context) != 1))
    fail("--ssl-keyfile", file,
         "it is not the key of the certificate in " + printable(certificate_file));
  if (!is_read) fail("--ssl-keyfile", file, nothing_in("key"));
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

void warn_of_its_time(const SSL_CTX* context, const std::string& file) {
  const X509* certificate = SSL_CTX_get0_certificate(context);
  if (X509_cmp_current_time(X509_get0_notAfter(certificate)) < 0)
    spdlog::warn("--ssl-certfile {}: the certificate has expired", printable(file));
  if (X509_cmp_current_time(X509_get0_notBefore(certificate)) > 0)
    spdlog::warn("--ssl-certfile {}: the certificate is not valid yet", printable(file));
}

}  // namespace

TlsContext load_tls(const std::string& certificate_file, const std::string& key_file) {
  check_file("--ssl-certfile", certificate_file);
  check_file("--ssl-keyfile", key_file);
  const TlsContext context(SSL_CTX_new(TLS_server_method()), SSL_CTX_free);
  if (context == nullptr) throw LoadError("TLS cannot be set up: " + first_reason());
  set_rules(context.get());
  SSL_CTX_set_default_passwd_cb(context.get(), refuse_to_ask);
  use_certificate(context.get(), certificate_file);
  use_key(context.get(), key_file, certificate_file);
  warn_of_its_time(context.get(), certificate_file);
  return context;
}

}  // namespace quire::server::http
