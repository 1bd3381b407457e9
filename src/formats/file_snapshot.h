#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"

namespace quire::formats {

// The bytes of a file as they were at one moment, mapped for reading. What is mapped is a clone,
// which shares the file's blocks on the disk and has no name: nobody can open it, so nobody cuts it
// or writes to it, whatever becomes of the file. Any thread may read. (A page is read from the disk
// when it is first used: if that fails, because the disk was pulled out, the process ends.)
class FileSnapshot {
 public:
  // An error says, for people, why there is none.
  using Taken = Result<std::shared_ptr<const FileSnapshot>, std::string>;

  // Clones an open file: in the folder for temporary files, or where that is another file system,
  // in the folder of `path`, which is the file's.
  static Taken take(int file, const std::string& path);
  // Maps a file that has no name. The caller closes the descriptor, which must be the only one.
  static Taken map(int nameless);
  ~FileSnapshot();
  FileSnapshot(const FileSnapshot&) = delete;
  FileSnapshot& operator=(const FileSnapshot&) = delete;

  // From the beginning of a page on. All of the last page can be read.
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  explicit FileSnapshot(std::span<std::byte> bytes) : bytes_(bytes) {}

  std::span<std::byte> bytes_;  // mapped without the right to write
};

}  // namespace quire::formats
