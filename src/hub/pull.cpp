#include "hub/pull.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/printable.h"
#include "hub/cache.h"
#include "hub/download.h"
#include "hub/explain.h"
#include "hub/needed_files.h"
#include "hub/progress.h"
#include "hub/repository.h"

namespace quire::hub {
namespace {

constexpr size_t kWorkers = 4;
constexpr std::chrono::milliseconds kPrintEvery{200};

// One pull of one model.
class Puller {
 public:
  Puller(const ModelId& id, const Settings& settings, const PullOptions& options)
      : id_(id),
        settings_(settings),
        options_(options),
        cache_(settings.cache, id),
        progress_(options.output, id.text()) {
    for (size_t i = 0; i < kWorkers; ++i)
      clients_.push_back(std::make_unique<HttpClient>(settings_, stop_));
  }

  std::string run();
  Preview preview();

 private:
  std::optional<std::string> cached_folder() const;
  std::string offline_folder() const;
  std::string fetch(const Revision& revision);
  // The weights' names, when all other files are there.
  std::vector<std::string> fetch_small(const Revision& revision);
  std::vector<RemoteFile> find_files(const std::string& commit,
                                     const std::vector<std::string>& names);
  void fetch_files(const std::string& commit, const std::vector<std::string>& names,
                   bool are_weights);
  void check_room(const std::vector<RemoteFile>& files) const;
  // Calls `work` for every item, some at a time; the first error ends all.
  template <class Item>
  void in_parallel(const std::vector<Item>& items,
                   const std::function<void(HttpClient&, const Item&, size_t)>& work);
  Patience patience(const std::string& file, int failures = 5) {
    return Patience(settings_, id_, file, progress_, stop_, failures);
  }

  const ModelId& id_;
  const Settings& settings_;
  const PullOptions& options_;
  ModelCache cache_;
  Progress progress_;
  std::atomic<bool> stop_{false};
  std::vector<std::unique_ptr<HttpClient>> clients_;
};

// The folder of the commit that the cache has, if nothing is missing there.
std::optional<std::string> Puller::cached_folder() const {
  const auto commit = cache_.cached_commit();
  if (!commit) return std::nullopt;
  const std::string folder = cache_.snapshot(*commit);
  const std::string missing = missing_file(folder);
  const bool is_weight = missing.ends_with(".safetensors");
  if (missing.empty() || (!options_.weights && is_weight)) return folder;
  return std::nullopt;
}

std::string Puller::offline_folder() const {
  if (const auto folder = cached_folder()) return *folder;
  const auto commit = cache_.cached_commit();
  const std::string missing = commit ? missing_file(cache_.snapshot(*commit)) : "";
  throw LoadError(
      id_.text() + " is not in " + settings_.cache +
      (missing.empty() ? std::string() : " as a whole: " + printable(missing) + " is missing") +
      ", and HF_HUB_OFFLINE forbids to fetch it");
}

std::string Puller::run() {
  if (settings_.offline) return offline_folder();
  const auto cached = cached_folder();
  // A commit never changes.
  if (cached && is_commit(id_.revision)) return *cached;
  Revision revision;
  try {
    const int failures = cached && options_.cache_will_do ? 2 : 4;
    revision = find_revision(*clients_[0], settings_, id_, patience("", failures));
  } catch (const LoadError& error) {
    if (!cached || !options_.cache_will_do) throw;
    progress_.say(std::string(error.what()) + "; taking what is in the cache");
    return *cached;
  }
  const std::string folder = fetch(revision);
  progress_.end();
  return folder;
}

Preview Puller::preview() {
  if (const auto folder = cached_folder()) return {.folder = *folder, .is_whole = true};
  if (settings_.offline) return {.folder = offline_folder(), .is_whole = true};
  const Revision revision = find_revision(*clients_[0], settings_, id_, patience("", 4));
  const std::vector<std::string> weights = fetch_small(revision);
  Preview preview{.folder = cache_.snapshot(revision.commit)};
  for (const RemoteFile& file : find_files(revision.commit, weights))
    preview.weight_bytes += file.size;
  progress_.end();
  return preview;
}

std::vector<std::string> Puller::fetch_small(const Revision& revision) {
  NeededFiles needed = choose_files(id_, revision.names);
  cache_.make_folders(revision.commit);
  fetch_files(revision.commit, needed.small, false);
  if (!needed.has_index) return needed.weights;
  return shards_of(cache_.snapshot(revision.commit) + "/" + kIndexFile, revision.names);
}

std::string Puller::fetch(const Revision& revision) {
  if (options_.weights) {
    fetch_files(revision.commit, fetch_small(revision), true);
  } else {
    cache_.make_folders(revision.commit);
    fetch_files(revision.commit, tokenizer_files(id_, revision.names), false);
  }
  cache_.set_commit(revision.commit);
  return cache_.snapshot(revision.commit);
}

std::vector<RemoteFile> Puller::find_files(const std::string& commit,
                                           const std::vector<std::string>& names) {
  std::vector<RemoteFile> files(names.size());
  in_parallel<std::string>(names, [&](HttpClient& client, const std::string& name, size_t i) {
    files[i] = find_file(client, settings_, id_, commit, name, patience(name));
  });
  return files;
}

void Puller::fetch_files(const std::string& commit, const std::vector<std::string>& names,
                         bool are_weights) {
  std::vector<std::string> wanted;
  for (const std::string& name : names)
    if (!cache_.has_file(commit, name)) wanted.push_back(name);
  if (wanted.empty()) return;
  if (are_weights && options_.check) {
    progress_.end();
    options_.check(cache_.snapshot(commit));
  }
  const std::vector<RemoteFile> files = find_files(commit, wanted);
  check_room(files);
  uint64_t bytes = 0;
  for (const RemoteFile& file : files) bytes += file.size;
  progress_.expect(bytes, static_cast<int>(files.size()));
  const Destination to{settings_, id_, cache_, commit, progress_, stop_};
  in_parallel<RemoteFile>(files, [&](HttpClient& client, const RemoteFile& file, size_t) {
    fetch_file(client, to, file);
  });
}

void Puller::check_room(const std::vector<RemoteFile>& files) const {
  double needed = 0;  // hubs may name any size
  for (const RemoteFile& file : files) needed += static_cast<double>(bytes_to_fetch(cache_, file));
  const auto room = static_cast<double>(free_bytes(cache_.root()));
  if (needed <= room) return;
  throw LoadError(id_.text() + " needs " + bytes_text(needed) + " more in " + settings_.cache +
                  ", but " + bytes_text(room) +
                  " are free: make room, or name a folder on another disk in HF_HUB_CACHE; none of "
                  "it was fetched");
}

template <class Item>
void Puller::in_parallel(const std::vector<Item>& items,
                         const std::function<void(HttpClient&, const Item&, size_t)>& work) {
  std::mutex mutex;
  std::condition_variable changed;
  std::exception_ptr error;
  std::atomic<size_t> next{0};
  const size_t count = std::min(kWorkers, items.size());
  size_t running = count;
  std::vector<std::thread> threads;
  for (size_t worker = 0; worker < count; ++worker)
    threads.emplace_back([&, worker] {
      try {
        for (size_t i = next++; i < items.size() && !stop_; i = next++)
          work(*clients_[worker], items[i], i);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!error) error = std::current_exception();
        stop_ = true;
      }
      const std::lock_guard lock(mutex);
      --running;
      changed.notify_one();
    });
  {
    std::unique_lock lock(mutex);
    while (!changed.wait_for(lock, kPrintEvery, [&] { return running == 0; }))
      progress_.print(Clock::now());
  }
  for (std::thread& thread : threads) thread.join();
  if (!error) return;
  progress_.end();
  std::rethrow_exception(error);
}

}  // namespace

std::string pull(const ModelId& id, const Settings& settings, const PullOptions& options) {
  return Puller(id, settings, options).run();
}

Preview preview(const ModelId& id, const Settings& settings, int output) {
  const PullOptions options{.check = {}, .output = output};
  return Puller(id, settings, options).preview();
}

}  // namespace quire::hub
