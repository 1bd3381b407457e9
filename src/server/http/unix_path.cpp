#include "server/http/unix_path.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/printable.h"
#include "base/socket.h"

namespace quire::server::http {
namespace {

[[noreturn]] void fail(const std::string& path, const std::string& why) {
  throw LoadError("--uds " + printable(path) + ": " + why);
}

std::string lock_name(const std::string& path) { return path + ".lock"; }

sockaddr_un address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path)
    fail(path, "the path of a Unix socket has 1 to " + std::to_string(sizeof address.sun_path - 1) +
                   " bytes");
  std::memcpy(address.sun_path, path.c_str(), path.size());
  return address;
}

// What stands in the file of a lock, so that somebody else's file of that name is known from it.
constexpr std::string_view kLockText = "The lock of a server's Unix socket (quire serve --uds)\n";

int open_lock(const std::string& path) {
  const int lock = ::open(lock_name(path).c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (lock < 0) fail(path, lock_name(path) + ": " + std::strerror(errno));
  if (::flock(lock, LOCK_EX | LOCK_NB) == 0) return lock;
  const int error = errno;
  ::close(lock);
  fail(path, error == EWOULDBLOCK ? "another server has it"
                                  : lock_name(path) + " cannot be locked: " + std::strerror(error));
}

// An empty file is one that we have just made, or that an earlier release or a server that was
// ended just there has left.
void mark_lock(const std::string& path, int lock) {
  std::string text(kLockText.size() + 1, '\0');
  const ssize_t length = ::pread(lock, text.data(), text.size(), 0);
  if (length >= 0) text.resize(static_cast<size_t>(length));
  if (length < 0 || (!text.empty() && text != kLockText))
    fail(path, lock_name(path) + " is a file of somebody's, and the lock needs that name");
  if (text.empty() && ::pwrite(lock, kLockText.data(), kLockText.size(), 0) !=
                          static_cast<ssize_t>(kLockText.size()))
    fail(path, lock_name(path) + ": " + std::strerror(errno));
}

// The file of a lock may be removed by who held it between our opening and locking it: then the
// lock is on no file's, and it is tried again.
int take_lock(const std::string& path) {
  for (;;) {
    const int lock = open_lock(path);
    struct stat ours{}, there{};
    const bool is_there = ::fstat(lock, &ours) == 0 &&
                          ::stat(lock_name(path).c_str(), &there) == 0 &&
                          ours.st_ino == there.st_ino;
    try {
      if (is_there) {
        mark_lock(path, lock);
        return lock;
      }
    } catch (const LoadError&) {
      ::close(lock);
      throw;
    }
    ::close(lock);
  }
}

// A server that ended by force has left its socket; a program that listens answers.
void remove_stale(const std::string& path) {
  struct stat info{};
  if (::lstat(path.c_str(), &info) != 0) return;
  if (!S_ISSOCK(info.st_mode)) fail(path, "there is a file that is no socket");
  const sockaddr_un address = address_of(path);
  const int probe = open_socket(AF_UNIX, SOCK_STREAM, 0);
  (void)::fcntl(probe, F_SETFL, O_NONBLOCK);
  const bool refused =
      ::connect(probe, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 &&
      errno == ECONNREFUSED;
  ::close(probe);
  if (!refused) fail(path, "another program listens there");
  if (::unlink(path.c_str()) != 0) fail(path, std::strerror(errno));
}

ino_t inode_at(const std::string& path) {
  struct stat info{};
  return ::lstat(path.c_str(), &info) == 0 ? info.st_ino : 0;
}

}  // namespace

int UnixPath::bind(const std::string& path, mode_t mode) {
  remove();
  const sockaddr_un address = address_of(path);
  const std::scoped_lock lock(mutex_);
  lock_ = take_lock(path);
  path_ = path;
  remove_stale(path);
  const int socket = open_socket(AF_UNIX, SOCK_STREAM, 0);
  if (socket < 0) fail(path, std::strerror(errno));
  const bool is_bound =
      ::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  if (is_bound) inode_ = inode_at(path);  // from here on remove() removes it
  if (!is_bound || ::chmod(path.c_str(), mode) != 0) {
    const int error = errno;
    ::close(socket);
    fail(path, std::strerror(error));
  }
  return socket;
}

void UnixPath::remove() {
  const std::scoped_lock lock(mutex_);
  if (path_.empty()) return;
  if (inode_ != 0 && inode_at(path_) == inode_) ::unlink(path_.c_str());
  struct stat ours{};
  if (::fstat(lock_, &ours) == 0 && inode_at(lock_name(path_)) == ours.st_ino)
    ::unlink(lock_name(path_).c_str());
  ::close(lock_);
  path_.clear();
  inode_ = 0;
}

}  // namespace quire::server::http
