#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "formats/file_snapshot.h"

namespace quire::formats {

// A large file that is read in pieces. It is never mapped itself: a mapped file that another
// process cuts short ends this one (SIGBUS), and one that is written to changes under whoever reads
// it.
class DataFile {
 public:
  // Throws LoadError if `path` is not a regular file that can be opened.
  static std::shared_ptr<const DataFile> open(const std::string& path);
  ~DataFile();
  DataFile(const DataFile&) = delete;
  DataFile& operator=(const DataFile&) = delete;

  const std::string& path() const { return path_; }
  // In bytes, when it was opened.
  uint64_t size() const { return opened_.size; }
  // Fills `out` with the bytes from `begin` on. Any thread. Throws LoadError if the file cannot be
  // read or ends before.
  void read(uint64_t begin, std::span<std::byte> out) const;
  // Throws LoadError if the file was written to, cut, replaced or removed since it was opened: what
  // was read before and after may not belong together.
  void check_unchanged() const;
  // Maps the bytes that it had when it was opened, where the file system can clone it. Throws
  // LoadError if it has changed since.
  FileSnapshot::Taken snapshot() const;

 private:
  // What changes with a file. A change of contents, of links (a rename over it removes one) and of
  // rights each moves the time of the last change.
  struct State {
    uint64_t size = 0;
    int64_t modified_ns = 0, changed_ns = 0;
    bool operator==(const State&) const = default;
  };
  DataFile() = default;
  State state() const;

  std::string path_;
  int fd_ = -1;
  State opened_;
};

// The contents of a small text file. Throws LoadError if it cannot be read or is over `max_bytes`.
std::string read_text_file(const std::string& path, size_t max_bytes);

}  // namespace quire::formats
