#include "hub/repository.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <thread>

#include "base/error.h"
#include "base/json.h"
#include "base/printable.h"
#include "hub/blob_hash.h"
#include "hub/explain.h"

namespace quire::hub {
namespace {

constexpr double kFirstDelay = 0.125;  // doubled with each failure
constexpr std::chrono::seconds kLongestWait{300};
constexpr int kMostWaits = 20;

[[noreturn]] void no_hub(const Settings& settings, const std::string& why) {
  throw LoadError(settings.endpoint + " does not answer as a hub does: " + why +
                  "; check HF_ENDPOINT");
}

std::string text_at(const json::object& object, const char* key) {
  const json::value* value = object.if_contains(key);
  return value != nullptr && value->is_string() ? std::string(value->get_string()) : "";
}

std::string normal_etag(std::string_view etag) {
  if (etag.starts_with("W/")) etag.remove_prefix(2);
  if (etag.size() >= 2 && etag.front() == '"' && etag.back() == '"')
    etag = etag.substr(1, etag.size() - 2);
  return std::string(etag);
}

// What follows is asked again; everything else is an answer.
bool is_passing(const Response& response) {
  if (!response.failure.empty()) return !response.is_certificate;
  return response.status == 408 || response.status == 429 || response.status >= 500;
}

}  // namespace

Patience::Patience(const Settings& settings, const ModelId& id, std::string file,
                   Progress& progress, const std::atomic<bool>& stop, int failures)
    : settings_(settings),
      id_(id),
      file_(std::move(file)),
      progress_(progress),
      stop_(stop),
      most_(failures) {}

void Patience::wait(const Response& response) {
  const auto give_up = [&] { throw_failure(response, settings_, id_, file_); };
  if (stop_ || !is_passing(response)) give_up();
  const auto asked = response.failure.empty() ? asked_wait(response) : std::nullopt;
  if (asked) {
    if (*asked > kLongestWait || ++waited_ > kMostWaits) give_up();
    progress_.say("the hub wants fewer requests (" + std::to_string(response.status) +
                  "); going on in " + std::to_string(asked->count()) + " s");
    return sleep(static_cast<double>(asked->count()));
  }
  if (++failed_ >= most_) give_up();
  sleep(kFirstDelay * (1 << failed_));
}

void Patience::sleep(double seconds) {
  const TimePoint start = Clock::now();
  while (!stop_ && seconds_since(start) < seconds)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

Revision find_revision(HttpClient& client, const Settings& settings, const ModelId& id,
                       Patience patience) {
  const Request request{.url = settings.endpoint + "/api/models/" + id.repo() + "/revision/" +
                               escape_url(id.revision)};
  Response response = client.send(request);
  while (!response.ok()) {
    patience.wait(response);
    response = client.send(request);
  }
  if (response.is_too_long) no_hub(settings, "its list of files is too long");
  const auto parsed = parse_json(response.body, {.max_bytes = request.max_body});
  if (!parsed || !parsed->is_object()) no_hub(settings, "what it says about a model is no JSON");
  const json::object& info = parsed->get_object();
  Revision revision{.commit = text_at(info, "sha"), .names = {}};
  if (!is_commit(revision.commit)) no_hub(settings, "it does not say which commit is meant");
  const json::value* siblings = info.if_contains("siblings");
  if (siblings == nullptr || !siblings->is_array())
    no_hub(settings, "it does not list the model's files");
  for (const json::value& entry : siblings->get_array())
    if (entry.is_object())
      if (std::string name = text_at(entry.get_object(), "rfilename"); !name.empty())
        revision.names.push_back(std::move(name));
  return revision;
}

RemoteFile find_file(HttpClient& client, const Settings& settings, const ModelId& id,
                     const std::string& commit, const std::string& name, Patience patience) {
  if (!is_safe_path(name))
    throw LoadError(id.text() + ": the file name '" + printable(name) +
                    "' leads out of the model's folder; nothing was written");
  RemoteFile file{.name = name, .url = {}, .etag = {}};
  file.url =
      settings.endpoint + "/" + id.repo() + "/resolve/" + commit + "/" + escape_url(name, "/");
  // A large file is elsewhere; what the hub says on the way there is about the file.
  const Request request{.method = "HEAD", .url = file.url, .leave_hub = false};
  Response response = client.send(request);
  const auto is_answer = [&] {
    return response.failure.empty() && response.status >= 200 && response.status < 400;
  };
  while (!is_answer()) {
    patience.wait(response);
    response = client.send(request);
  }
  const bool is_elsewhere = response.status >= 300;
  std::string_view etag = response.header("x-linked-etag"), size = response.header("x-linked-size");
  if (etag.empty()) etag = response.header("etag");
  if (size.empty() && !is_elsewhere) size = response.header("content-length");
  file.etag = normal_etag(etag);
  const auto [end, error] = std::from_chars(size.data(), size.data() + size.size(), file.size);
  if (size.empty() || error != std::errc() || end != size.data() + size.size())
    no_hub(settings, "it does not say how long " + printable(name) + " is");
  if (!BlobHash::is_known(file.etag))
    no_hub(settings, "the etag of " + printable(name) + " ('" + printable(file.etag) +
                         "') is neither a sha256 nor a sha1, so nothing could be checked");
  return file;
}

}  // namespace quire::hub
