#include "formats/pending_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/error.h"

namespace quire::formats {
namespace {

namespace fs = std::filesystem;

std::string without_last_slash(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

// A hidden name beside `target`; the folder that it is in is made if need be.
std::string beside(const std::string& target, const char* suffix) {
  const fs::path path(target), parent = path.parent_path();
  std::error_code error;
  if (!parent.empty()) fs::create_directories(parent, error);
  if (error)
    throw LoadError(target + ": cannot make the folder it is to be in: " + error.message());
  return (parent / ("." + path.filename().string() + suffix)).string();
}

// Waits until a file, or the names in a folder, are on disk.
void sync_to_disk(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const bool synced = fd >= 0 && ::fsync(fd) == 0;
  const int error = errno;
  if (fd >= 0) ::close(fd);
  if (!synced) throw LoadError(path.string() + ": cannot write to disk: " + std::strerror(error));
}

}  // namespace

LockFile::LockFile(std::string path) : path_(std::move(path)) {
  while (!take()) continue;
}

// False if the holder before removed the file between our opening and locking it.
bool LockFile::take() {
  const auto fail = [this](const std::string& why) {
    const std::string message = path_ + ": " + why;
    if (fd_ >= 0) ::close(fd_);
    throw LoadError(message);
  };
  fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (fd_ < 0) fail(std::string("cannot make the lock: ") + std::strerror(errno));
  if (::flock(fd_, LOCK_EX | LOCK_NB) != 0) {
    fail(errno == EWOULDBLOCK ? "another process is writing there; wait for it, or choose another "
                                "name"
                              : std::string("cannot lock: ") + std::strerror(errno));
  }
  struct stat named{}, opened{};
  if (::stat(path_.c_str(), &named) == 0 && ::fstat(fd_, &opened) == 0 &&
      named.st_dev == opened.st_dev && named.st_ino == opened.st_ino)
    return true;
  ::close(std::exchange(fd_, -1));
  return false;
}

LockFile::~LockFile() {
  ::unlink(path_.c_str());
  ::close(fd_);
}

PendingFolder::PendingFolder(const std::string& target)
    : target_(without_last_slash(target)), lock_(beside(target_, ".quire-lock")) {
  std::error_code error;
  const std::string path = beside(target_, ".quire-partial");
  fs::remove_all(path, error);
  if (error) throw LoadError(path + ": cannot remove what an earlier run left: " + error.message());
  if (fs::exists(target_, error) &&
      (!fs::is_directory(target_, error) || !fs::is_empty(target_, error)))
    throw LoadError(target_ + ": exists already and is not an empty folder; choose another name");
  if (!fs::create_directory(path, error))
    throw LoadError(target_ + ": cannot make the folder: " + error.message());
  path_ = path;
}

PendingFolder::~PendingFolder() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
}

void PendingFolder::commit() {
  for (const auto& entry : fs::directory_iterator(path_)) sync_to_disk(entry.path());
  sync_to_disk(path_);
  std::error_code error;
  fs::rename(path_, target_, error);  // replaces an empty folder
  if (error) throw LoadError(target_ + ": cannot rename " + path_ + ": " + error.message());
  path_.clear();
  const fs::path parent = fs::path(target_).parent_path();
  sync_to_disk(parent.empty() ? fs::path(".") : parent);
}

}  // namespace quire::formats
