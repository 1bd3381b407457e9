#include "cli/listen_flags.h"

#include "base/error.h"
#include "base/printable.h"
#include "server/http/bind.h"

namespace quire::cli {

void add_listen_flags(CLI::App& command, ListenFlags& flags, server::http::HttpOptions& http) {
  command.add_option("--host", http.host, "Address to bind; 0.0.0.0 for all")
      ->capture_default_str();
  command.add_option("--port", http.port, "0: any free one")->capture_default_str();
  command
      .add_option("--ssl-certfile", flags.certificate_file,
                  "Speak TLS alone (https) with this certificate, PEM, with those that lead to its "
                  "root behind it; read again at SIGHUP")
      ->type_name("FILE");
  command
      .add_option("--ssl-keyfile", flags.key_file,
                  "Its key, PEM, not encrypted; default: in the certificate's file")
      ->type_name("FILE");
}

server::http::TlsContext read_certificate(const ListenFlags& flags) {
  if (flags.certificate_file.empty()) return nullptr;
  return server::http::load_tls(flags.certificate_file,
                                flags.key_file.empty() ? flags.certificate_file : flags.key_file);
}

void open_listener(const ListenFlags& flags, server::http::HttpOptions& http) {
  if (flags.certificate_file.empty() && !flags.key_file.empty())
    throw LoadError("--ssl-keyfile does nothing without --ssl-certfile");
  http.tls = read_certificate(flags);
  http.bound_socket = server::http::bind_address(http.host, http.port);
}

std::string invitation(const server::http::HttpOptions& http, uint16_t port,
                       const std::string& root_path, const std::string& model) {
  const bool any = http.host == "0.0.0.0" || http.host == "::";
  const std::string shown = any                                        ? "127.0.0.1"
                            : http.host.find(':') == std::string::npos ? http.host
                                                                       : "[" + http.host + "]";
  const std::string url = (http.tls != nullptr ? "https://" : "http://") + shown + ":" +
                          std::to_string(port) + root_path;
  return "listening on " + url + "\n\n  curl " + url +
         "/v1/chat/completions -H 'Content-Type: application/json' \\\n    -d '{\"model\": \"" +
         printable(model) +
         "\", \"messages\": [{\"role\": \"user\", \"content\": \"What is 123 + 456?\"}]}'\n\n";
}

}  // namespace quire::cli
