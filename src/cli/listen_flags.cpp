#include "cli/listen_flags.h"

#include <charconv>

#include "base/error.h"
#include "base/printable.h"
#include "cli/flag_checks.h"
#include "formats/data_file.h"
#include "server/http/bind.h"

namespace quire::cli {
namespace {

constexpr size_t kMaxPemBytes = size_t{1} << 20;
constexpr const char* kUnixMode = "660";

mode_t parse_mode(const std::string& text) {
  mode_t mode = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, mode, 8);
  if (error != std::errc() || stop != end || mode > 0777)
    throw LoadError("--uds-mode " + printable(text) + " is no octal number like 660");
  return mode;
}

// Never waits, as for who writes into a pipe: SIGHUP must not hold the server up.
server::http::PemFile read_pem(const std::string& flag, const std::string& file) {
  try {
    return {file, formats::read_text_file(file, kMaxPemBytes)};
  } catch (const LoadError& error) {
    throw LoadError(flag + " " + printable(error.what()));
  }
}

}  // namespace

void add_listen_flags(CLI::App& command, ListenFlags& flags, server::http::HttpOptions& http) {
  command.add_option("--host", http.host, "Address to bind; 0.0.0.0 for all")
      ->check(not_empty())
      ->capture_default_str();
  command.add_option("--port", http.port, "0: any free one")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  command
      .add_option("--ssl-certfile", flags.certificate_file,
                  "Speak TLS alone (https) with this certificate, PEM, with those that lead to its "
                  "root behind it; read again at SIGHUP")
      ->check(not_empty())
      ->type_name("FILE");
  command
      .add_option("--ssl-keyfile", flags.key_file,
                  "Its key, PEM, not encrypted; default: in the certificate's file")
      ->check(not_empty())
      ->type_name("FILE");
  command
      .add_option("--uds", flags.unix_path,
                  "Listen on a Unix socket at this path, and not on --host and --port")
      ->check(not_empty())
      ->type_name("PATH");
  command
      .add_option("--uds-mode", flags.unix_mode,
                  "Its permissions, octal: whose programs may connect")
      ->check(not_empty())
      ->default_str(kUnixMode);
}

server::http::TlsContext read_certificate(const ListenFlags& flags) {
  if (flags.certificate_file.empty()) return nullptr;
  const auto certificate = read_pem("--ssl-certfile", flags.certificate_file);
  if (flags.key_file.empty()) return server::http::load_tls(certificate, certificate);
  return server::http::load_tls(certificate, read_pem("--ssl-keyfile", flags.key_file));
}

void open_listener(const ListenFlags& flags, server::http::HttpOptions& http,
                   server::http::UnixPath& unix_path) {
  if (flags.certificate_file.empty() && !flags.key_file.empty())
    throw LoadError("--ssl-keyfile does nothing without --ssl-certfile");
  http.tls = read_certificate(flags);
  if (flags.unix_path.empty() && !flags.unix_mode.empty())
    throw LoadError("--uds-mode does nothing without --uds");
  const mode_t mode = parse_mode(flags.unix_mode.empty() ? kUnixMode : flags.unix_mode);
  http.unix_path = flags.unix_path;
  http.bound_socket = http.unix_path.empty() ? server::http::bind_address(http.host, http.port)
                                             : unix_path.bind(http.unix_path, mode);
}

std::string invitation(const server::http::HttpOptions& http, uint16_t port,
                       const std::string& root_path, const std::string& model) {
  const std::string request =
      "/v1/chat/completions -H 'Content-Type: application/json' \\\n    -d '{\"model\": \"" +
      printable(model) +
      "\", \"messages\": [{\"role\": \"user\", \"content\": \"What is 123 + 456?\"}]}'\n\n";
  const std::string scheme = http.tls != nullptr ? "https://" : "http://";
  if (!http.unix_path.empty())
    return "listening on unix:" + printable(http.unix_path) + "\n\n  curl --unix-socket '" +
           printable(http.unix_path) + "' " + scheme + "localhost" + root_path + request;
  const bool any = http.host == "0.0.0.0" || http.host == "::";
  const std::string shown = any                                        ? "127.0.0.1"
                            : http.host.find(':') == std::string::npos ? http.host
                                                                       : "[" + http.host + "]";
  const std::string url = scheme + shown + ":" + std::to_string(port) + root_path;
  return "listening on " + url + "\n\n  curl " + url + request;
}

}  // namespace quire::cli
