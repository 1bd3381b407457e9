#pragma once
#include <string>

namespace quire::formats {

// A lock that ends with the process, however it ends: an flock on a file that is removed with this
// object.
class LockFile {
 public:
  // Throws LoadError if another process holds the lock, or if the file cannot be made.
  explicit LockFile(std::string path);
  ~LockFile();
  LockFile(const LockFile&) = delete;
  LockFile& operator=(const LockFile&) = delete;

 private:
  bool take();

  std::string path_;
  int fd_ = -1;
};

// A folder in the making beside its target: ".NAME.quire-partial", locked by ".NAME.quire-lock". It
// gets the target's name when it is complete, or goes away with this object. What a process that
// was killed left behind is removed by the next one with the same target.
class PendingFolder {
 public:
  // Throws LoadError if `target` exists and is not an empty folder, if another process is making
  // it, or if the folder cannot be made.
  explicit PendingFolder(const std::string& target);
  ~PendingFolder();
  PendingFolder(const PendingFolder&) = delete;
  PendingFolder& operator=(const PendingFolder&) = delete;

  const std::string& path() const { return path_; }
  // Puts all files on disk, then gives the folder its name. Throws LoadError.
  void commit();

 private:
  std::string target_;  // without a slash at its end
  LockFile lock_;
  std::string path_;
};

}  // namespace quire::formats
