#include "hub/cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/trimmed.h"
#include "formats/data_file.h"

namespace quire::hub {
namespace {

namespace fs = std::filesystem;

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    throw LoadError(folder.string() + ": cannot make this folder: " + error.message() +
                    "; HF_HUB_CACHE names another place for models");
}

// In one step: readers see the text before, or this one.
void write_small(const fs::path& path, const std::string& text) {
  const fs::path pending = path.string() + "." + std::to_string(::getpid()) + ".tmp";
  {
    std::ofstream out(pending, std::ios::binary);
    out << text;
    out.close();
    if (!out) throw LoadError(path.string() + ": cannot write: " + std::strerror(errno));
  }
  std::error_code error;
  fs::rename(pending, path, error);
  if (error) throw LoadError(path.string() + ": cannot write: " + error.message());
}

}  // namespace

std::optional<std::string> read_ref(const std::string& path) {
  constexpr size_t kMostBytes = 64;  // a commit and what an editor may have added
  std::error_code error;
  if (!fs::is_regular_file(path, error) || fs::file_size(path, error) > kMostBytes || error)
    return std::nullopt;
  std::string commit(trimmed(formats::read_text_file(path, kMostBytes)));
  return is_commit(commit) ? std::optional(std::move(commit)) : std::nullopt;
}

ModelCache::ModelCache(std::string cache, ModelId id)
    : cache_(std::move(cache)), root_(cache_ + "/" + id.folder()), id_(std::move(id)) {}

std::string ModelCache::lock(const std::string& etag) const {
  return cache_ + "/.locks/" + id_.folder() + "/" + etag + ".lock";
}

std::optional<std::string> ModelCache::cached_commit() const {
  if (is_commit(id_.revision)) return id_.revision;
  return read_ref(root_ + "/refs/" + id_.revision);
}

void ModelCache::make_folders(const std::string& commit) const {
  make_folder(root_ + "/blobs");
  make_folder(snapshot(commit));
  make_folder(cache_ + "/.locks/" + id_.folder());
  const std::string tag = cache_ + "/CACHEDIR.TAG";
  std::error_code ignored;
  if (!fs::exists(tag, ignored))  // https://bford.info/cachedir/
    write_small(tag, "Signature: 8a477f597d28d172789f06886806bc55\n# Models: see `quire list`.\n");
}

bool ModelCache::has_file(const std::string& commit, const std::string& file) const {
  std::error_code ignored;
  return fs::is_regular_file(snapshot(commit) + "/" + file, ignored);
}

bool ModelCache::has_blob(const std::string& etag, uint64_t size) const {
  std::error_code error;
  const uint64_t found = fs::file_size(blob(etag), error);
  if (error) return false;
  if (found == size) return true;
  fs::remove(blob(etag), error);
  return false;
}

void ModelCache::link(const std::string& commit, const std::string& file,
                      const std::string& etag) const {
  const fs::path path = snapshot(commit) + "/" + file;
  make_folder(path.parent_path());
  std::string target = "../../blobs/" + etag;
  for (const char c : file)
    if (c == '/') target.insert(0, "../");
  const std::string pending = path.string() + "." + std::to_string(::getpid()) + ".tmp";
  ::unlink(pending.c_str());
  const bool linked = ::symlink(target.c_str(), pending.c_str()) == 0 &&
                      ::rename(pending.c_str(), path.c_str()) == 0;
  if (linked) return;
  const int error = errno;
  ::unlink(pending.c_str());
  throw LoadError(path.string() + ": cannot make a symbolic link: " + std::strerror(error) +
                  "; HF_HUB_CACHE names another place for models");
}

void ModelCache::set_commit(const std::string& commit) const {
  if (is_commit(id_.revision)) return;
  const fs::path ref = root_ + "/refs/" + id_.revision;
  if (cached_commit() == commit) return;
  make_folder(ref.parent_path());
  write_small(ref, commit);
}

BlobLock::BlobLock(const std::string& path) : path_(path) {}

BlobLock::~BlobLock() {
  if (fd_ >= 0) ::close(fd_);
}

bool BlobLock::try_take() {
  for (;;) {
    fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0664);
    if (fd_ < 0) throw LoadError(path_ + ": cannot make the lock: " + std::strerror(errno));
    if (::flock(fd_, LOCK_EX | LOCK_NB) != 0) {
      const int error = errno;
      ::close(fd_);
      fd_ = -1;
      if (error == EWOULDBLOCK || error == EINTR) return false;
      throw LoadError(path_ + ": cannot lock: " + std::strerror(error) +
                      "; HF_HUB_CACHE names another place for models");
    }
    // Whoever had it may have removed the file: then a third one could lock a new one.
    struct stat ours{}, named{};
    if (::fstat(fd_, &ours) == 0 && ::stat(path_.c_str(), &named) == 0 &&
        ours.st_ino == named.st_ino && ours.st_dev == named.st_dev)
      return true;
    ::close(fd_);
    fd_ = -1;
  }
}

uint64_t free_bytes(const std::string& folder) {
  fs::path path = folder;
  struct statvfs info{};
  while (::statvfs(path.c_str(), &info) != 0) {
    if (!path.has_parent_path() || path == path.parent_path())
      throw LoadError(folder + ": cannot find out how much room there is: " + std::strerror(errno));
    path = path.parent_path();
  }
  return static_cast<uint64_t>(info.f_bavail) * info.f_frsize;
}

}  // namespace quire::hub
