#pragma once
#include <sys/types.h>

#include <mutex>
#include <string>

namespace quire::server::http {

// The place of a Unix socket among files, as long as a server has it. Thread-safe.
class UnixPath {
 public:
  UnixPath() = default;
  ~UnixPath() { remove(); }
  UnixPath(const UnixPath&) = delete;
  UnixPath& operator=(const UnixPath&) = delete;

  // Returns a socket bound to `path`, with these permissions, which does not listen yet. What an
  // earlier server left there is removed; a path that another server has, or that is no socket,
  // is not. Two servers are told apart by a lock on the file PATH.lock; somebody else's file of
  // that name is left alone. Throws LoadError.
  int bind(const std::string& path, mode_t mode);
  // Removes the socket and the lock's file, unless they are others by now, and gives the place up.
  void remove();

 private:
  std::mutex mutex_;
  std::string path_;  // empty: none
  int lock_ = -1;
  ino_t inode_ = 0;
};

}  // namespace quire::server::http
