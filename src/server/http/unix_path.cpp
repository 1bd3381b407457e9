#include "server/http/unix_path.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/printable.h"

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

// The file of a lock may be removed by who held it between our opening and locking it: then the
// lock is on no file's, and it is tried again.
int take_lock(const std::string& path) {
  const std::string name = lock_name(path);
  for (;;) {
    const int lock = ::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (lock < 0) fail(path, std::strerror(errno));
    if (::flock(lock, LOCK_EX | LOCK_NB) != 0) {
      const int error = errno;
      ::close(lock);
      fail(path, error == EWOULDBLOCK ? "another server has it" : std::strerror(error));
    }
    struct stat ours{}, there{};
    if (::fstat(lock, &ours) == 0 && ::stat(name.c_str(), &there) == 0 &&
        ours.st_ino == there.st_ino)
      return lock;
    ::close(lock);
  }
}

// A server that ended by force has left its socket; a program that listens answers.
void remove_stale(const std::string& path) {
  struct stat info{};
  if (::lstat(path.c_str(), &info) != 0) return;
  if (!S_ISSOCK(info.st_mode)) fail(path, "there is a file that is no socket");
  const sockaddr_un address = address_of(path);
  const int probe = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
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
  const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
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
  ::unlink(lock_name(path_).c_str());
  ::close(lock_);
  path_.clear();
  inode_ = 0;
}

}  // namespace quire::server::http
