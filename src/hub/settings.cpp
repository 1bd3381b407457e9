#include "hub/settings.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>

#include "base/error.h"
#include "base/printable.h"
#include "base/trimmed.h"
#include "formats/data_file.h"

namespace quire::hub {
namespace {

constexpr size_t kMaxTokenFile = 64 << 10;

class Environment {
 public:
  explicit Environment(const GetEnv& get_env) : get_env_(get_env) {}

  // A variable that is set and empty counts as not set.
  std::string get(const char* name) const {
    const char* value = get_env_(name);
    return value == nullptr ? "" : value;
  }
  bool is_true(const char* name) const {
    std::string value = get(name);
    std::ranges::transform(value, value.begin(), [](unsigned char c) { return std::toupper(c); });
    return value == "1" || value == "ON" || value == "YES" || value == "TRUE";
  }
  // A path, with ~ and $NAME or ${NAME} replaced as a shell does; what is not set stays.
  std::string path(const char* name) const { return expand(get(name)); }
  std::string home() const {
    const std::string home = get("HOME");
    if (home.empty())
      throw LoadError("there is no HOME: set HF_HOME to the folder that is to hold models");
    return home;
  }

 private:
  std::string expand(const std::string& text) const {
    std::string out;
    size_t i = 0;
    if (text == "~" || text.starts_with("~/")) out = home(), i = 1;
    while (i < text.size()) {
      if (text[i] != '$') {
        out += text[i++];
        continue;
      }
      const bool braced = i + 1 < text.size() && text[i + 1] == '{';
      const size_t begin = i + (braced ? 2 : 1);
      size_t end = begin;
      while (end < text.size() &&
             (std::isalnum(static_cast<unsigned char>(text[end])) != 0 || text[end] == '_'))
        ++end;
      const bool closed = !braced || (end < text.size() && text[end] == '}');
      const char* value =
          closed && end > begin ? get_env_(text.substr(begin, end - begin).c_str()) : nullptr;
      if (closed && braced) ++end;
      out += value != nullptr ? std::string(value) : text.substr(i, end - i);
      i = end;
    }
    return out;
  }

  const GetEnv& get_env_;
};

// A token in one line, however it was pasted.
std::string token_of(std::string text) {
  std::erase_if(text, [](char c) { return c == '\r' || c == '\n'; });
  return std::string(trimmed(text));
}

std::string home_folder(const Environment& env) {
  if (std::string home = env.path("HF_HOME"); !home.empty()) return home;
  if (std::string base = env.path("XDG_CACHE_HOME"); !base.empty()) return base + "/huggingface";
  return env.home() + "/.cache/huggingface";
}

std::string cache_folder(const Environment& env) {
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"})
    if (std::string cache = env.path(name); !cache.empty()) return cache;
  return home_folder(env) + "/hub";
}

void read_token(const Environment& env, Settings& settings) {
  if (env.is_true("HF_HUB_DISABLE_IMPLICIT_TOKEN")) return;
  for (const char* name : {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"}) {
    settings.token = token_of(env.get(name));
    settings.token_from = name;
    if (!settings.token.empty()) break;
  }
  if (settings.token.empty()) {
    std::string file = env.path("HF_TOKEN_PATH");
    if (file.empty()) file = home_folder(env) + "/token";
    std::error_code ignored;
    if (!std::filesystem::exists(file, ignored)) return;
    settings.token = token_of(formats::read_text_file(file, kMaxTokenFile));
    settings.token_from = file;
  }
  // It becomes a line of a request.
  if (!std::ranges::all_of(settings.token, [](char c) { return c > 0x20 && c < 0x7f; }))
    throw LoadError(settings.token_from + " is no token: it has blanks or special characters");
}

std::string read_endpoint(const Environment& env) {
  std::string endpoint = env.get("HF_ENDPOINT");
  if (endpoint.empty()) return "https://huggingface.co";
  while (endpoint.ends_with('/')) endpoint.pop_back();
  const bool is_url = endpoint.starts_with("https://") || endpoint.starts_with("http://");
  const size_t host = endpoint.find("//") + 2;
  const bool plain = std::ranges::all_of(endpoint, [](char c) { return c > 0x20 && c < 0x7f; }) &&
                     endpoint.find_first_of("@?#\\") == std::string::npos;
  if (!is_url || !plain || host >= endpoint.size())
    throw LoadError("HF_ENDPOINT: '" + printable(endpoint) +
                    "' is no address of a hub; write https://HOST, without a user's name");
  return endpoint;
}

}  // namespace

Settings read_settings(const GetEnv& get_env, const std::string& user_agent) {
  const Environment env(get_env);
  Settings settings;
  settings.endpoint = read_endpoint(env);
  settings.cache = cache_folder(env);
  while (settings.cache.size() > 1 && settings.cache.back() == '/') settings.cache.pop_back();
  read_token(env, settings);
  settings.offline = env.is_true("HF_HUB_OFFLINE") || env.is_true("TRANSFORMERS_OFFLINE");
  for (const char* name : {"SSL_CERT_FILE", "CURL_CA_BUNDLE"})
    if (settings.certificates.empty()) settings.certificates = env.path(name);
  settings.user_agent = user_agent;
  if (const std::string text = env.get("HF_HUB_DOWNLOAD_TIMEOUT"); !text.empty()) {
    int seconds = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
    if (error != std::errc() || end != text.data() + text.size() || seconds < 1)
      throw LoadError("HF_HUB_DOWNLOAD_TIMEOUT: '" + printable(text) + "' is no number of seconds");
    settings.stall = std::chrono::seconds(seconds);
  }
  return settings;
}

std::string find_certificates(const std::vector<std::string>& places) {
  std::error_code error;
  for (const std::string& place : places)
    if (std::filesystem::is_regular_file(place, error)) return place;
  return "";
}

Settings read_settings(const std::string& user_agent) {
  Settings settings = read_settings([](const char* name) { return std::getenv(name); }, user_agent);
  if (settings.certificates.empty()) settings.certificates = find_certificates();
  return settings;
}

}  // namespace quire::hub
