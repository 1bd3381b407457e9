#pragma once
#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace quire::hub {

// What the environment says about hubs, read from the variables that huggingface_hub reads.
struct Settings {
  std::string endpoint;    // HF_ENDPOINT: a URL without a slash at its end
  std::string token;       // empty: none
  std::string token_from;  // the variable or file that it is from
  std::string cache;       // HF_HUB_CACHE: the folder with models--ORG--NAME
  bool offline = false;    // HF_HUB_OFFLINE: what is not in the cache is an error
  // SSL_CERT_FILE or CURL_CA_BUNDLE, or else the system's file; empty: where libcurl looks by
  // itself.
  std::string certificates;
  std::string user_agent;
  // HF_HUB_DOWNLOAD_TIMEOUT: a connection that brings nothing for so long counts as cut.
  std::chrono::seconds stall{30};
};

using GetEnv = std::function<const char*(const char*)>;

// Throws LoadError naming the variable if its value cannot be used.
//   cache  HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE, $HF_HOME/hub, $XDG_CACHE_HOME/huggingface/hub or
//          ~/.cache/huggingface/hub, the first that is set
//   token  HF_TOKEN, HUGGING_FACE_HUB_TOKEN, or the file HF_TOKEN_PATH or $HF_HOME/token; none if
//          HF_HUB_DISABLE_IMPLICIT_TOKEN is true
Settings read_settings(const GetEnv& get_env, const std::string& user_agent);
// The first of these files that is there, or "". libcurl knows only where the distribution that it
// was built for keeps the certificates of the authorities that it trusts, and a packaged program
// runs on others, too.
std::string find_certificates(const std::vector<std::string>& places = {
                                  "/etc/ssl/certs/ca-certificates.crt",  // Debian, Arch, Alpine
                                  "/etc/pki/tls/certs/ca-bundle.crt",    // Fedora, RHEL
                                  "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
                                  "/etc/ssl/ca-bundle.pem",  // openSUSE
                                  "/etc/ssl/cert.pem"});
// Of this process.
Settings read_settings(const std::string& user_agent);

}  // namespace quire::hub
