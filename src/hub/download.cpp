#include "hub/download.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/printable.h"
#include "hub/blob_hash.h"
#include "hub/explain.h"

namespace quire::hub {
namespace {

constexpr double kQuietWait = 1;  // seconds before it is said that another process has the lock

// What has come of a blob, and the hash of it.
class PartialBlob {
 public:
  PartialBlob(const Destination& to, const RemoteFile& file);
  ~PartialBlob() {
    if (fd_ >= 0) ::close(fd_);
  }
  PartialBlob(const PartialBlob&) = delete;
  PartialBlob& operator=(const PartialBlob&) = delete;

  uint64_t size() const { return size_; }
  void restart();
  void add(std::span<const char> bytes);
  // Gives it the blob's name if it is what the hub named; else removes it and returns its hash.
  std::string finish();

 private:
  [[noreturn]] void fail(int error) const;
  void read_what_is_there();

  const Destination& to_;
  const RemoteFile& file_;
  const std::string path_;
  int fd_ = -1;
  uint64_t size_ = 0;
  BlobHash hash_;
};

PartialBlob::PartialBlob(const Destination& to, const RemoteFile& file)
    : to_(to), file_(file), path_(to.cache.partial(file.etag)), hash_(file.etag, file.size) {
  fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (fd_ < 0) fail(errno);
  read_what_is_there();
}

void PartialBlob::read_what_is_there() {
  struct stat info{};
  if (::fstat(fd_, &info) != 0) fail(errno);
  const auto there = static_cast<uint64_t>(info.st_size);
  if (!S_ISREG(info.st_mode) || there > file_.size) return restart();
  std::vector<char> buffer(size_t{1} << 20);
  while (size_ < there && !to_.stop) {
    const ssize_t n = ::read(fd_, buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return restart();
    hash_.add({buffer.data(), static_cast<size_t>(n)});
    size_ += static_cast<uint64_t>(n);
  }
  to_.progress.have(static_cast<int64_t>(size_));
}

void PartialBlob::restart() {
  if (::ftruncate(fd_, 0) != 0 || ::lseek(fd_, 0, SEEK_SET) != 0) fail(errno);
  to_.progress.have(-static_cast<int64_t>(size_));
  size_ = 0;
  hash_.restart();
}

void PartialBlob::add(std::span<const char> bytes) {
  if (size_ + bytes.size() > file_.size) {
    restart();
    throw LoadError(to_.id.text() + ": " + printable(file_.name) +
                    " is longer than the hub says; nothing of it is kept");
  }
  hash_.add(bytes);
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(errno);
    size_ += static_cast<uint64_t>(n);
    to_.progress.received(static_cast<uint64_t>(n));
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
}

std::string PartialBlob::finish() {
  const std::string hash = hash_.finish();
  if (hash != file_.etag) {
    restart();
    ::unlink(path_.c_str());
    return hash;
  }
  if (::fsync(fd_) != 0) fail(errno);
  if (::rename(path_.c_str(), to_.cache.blob(file_.etag).c_str()) != 0) fail(errno);
  return "";
}

void PartialBlob::fail(int error) const {
  if (error != ENOSPC && error != EDQUOT)
    throw LoadError(path_ + ": cannot write: " + std::strerror(error));
  throw LoadError(to_.id.text() + ": the disk with " + to_.cache.root() +
                  " is full: " + printable(file_.name) + " needs " +
                  bytes_text(static_cast<double>(file_.size - size_)) +
                  " more. What has come is kept: make room, and the same command goes on from "
                  "there; HF_HUB_CACHE names another place for models");
}

// Until this process has the lock.
void take_lock(BlobLock& lock, const Destination& to, const RemoteFile& file) {
  const TimePoint start = Clock::now();
  bool said = false;
  while (!lock.try_take()) {
    if (to.stop) throw LoadError("stopped");
    if (!said && seconds_since(start) > kQuietWait) {
      to.progress.say("another process is fetching " + file.name + "; waiting for it");
      said = true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

// Fills the blob up to its size.
void fill(HttpClient& client, const Destination& to, const RemoteFile& file, PartialBlob& blob) {
  Patience patience(to.settings, to.id, file.name, to.progress, to.stop);
  const Sink sink{.begin =
                      [&](uint64_t offset) {
                        if (offset != blob.size()) blob.restart();
                      },
                  .add =
                      [&](std::span<const char> bytes) {
                        patience.made_progress();
                        blob.add(bytes);
                      }};
  while (blob.size() < file.size) {
    if (to.stop) throw LoadError("stopped");
    const uint64_t from = blob.size();
    Response response = client.send({.url = file.url, .from = from, .sink = &sink});
    if (blob.size() == file.size) return;
    // 416: there is nothing from there on.
    const bool is_short =
        response.status == 416 || (response.ok() && !response.header("content-length").empty());
    if (is_short) {
      blob.restart();
      if (from > 0) continue;  // what was there may have been of another server
      throw LoadError(to.id.text() + ": " + printable(file.name) +
                      " is shorter than the hub says; nothing of it is kept");
    }
    if (response.ok()) response.failure = "it ended before the file did";
    patience.wait(response);
  }
}

}  // namespace

uint64_t bytes_to_fetch(const ModelCache& cache, const RemoteFile& file) {
  if (cache.has_blob(file.etag, file.size)) return 0;
  std::error_code error;
  const uint64_t there = std::filesystem::file_size(cache.partial(file.etag), error);
  return error || there > file.size ? file.size : file.size - there;
}

void fetch_file(HttpClient& client, const Destination& to, const RemoteFile& file) {
  BlobLock lock(to.cache.lock(file.etag));
  take_lock(lock, to, file);
  if (to.cache.has_blob(file.etag, file.size)) {
    to.progress.have(static_cast<int64_t>(file.size));
  } else {
    PartialBlob blob(to, file);
    bool is_resumed = blob.size() > 0;
    fill(client, to, file, blob);
    std::string other = blob.finish();
    if (!other.empty() && is_resumed) {
      // What was there before may have been the beginning of something else.
      PartialBlob again(to, file);
      fill(client, to, file, again);
      other = again.finish();
    }
    if (!other.empty())
      throw LoadError(to.id.text() + ": " + printable(file.name) + " is not what " +
                      to.settings.endpoint + " says it is: its hash is " + other + ", not " +
                      file.etag +
                      ". It was changed on the way, or the hub is broken; nothing of "
                      "it is kept, and the same command fetches it again");
  }
  to.cache.link(to.commit, file.name, file.etag);
  to.progress.file_done(file.name, file.size);
}

}  // namespace quire::hub
