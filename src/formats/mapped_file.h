#pragma once
#include <cstddef>
#include <span>
#include <string>

namespace quire::formats {

// A whole file mapped read-only. The mapping is as long as the file was when it was opened; a file
// that another process cuts short later still ends this one (SIGBUS), as with every mapped file.
class MappedFile {
 public:
  // Throws LoadError if `path` is not a regular file that can be opened and mapped.
  static MappedFile open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return bytes_; }
  const std::string& path() const { return path_; }

 private:
  MappedFile() = default;

  std::string path_;
  std::span<const std::byte> bytes_;  // empty for an empty file, which has no mapping
};

// Hints for a range of a MappedFile; they never change what is read. prefetch() starts reading it
// from disk. release() gives its pages back, for weights that were copied or packed: read again,
// they come from the page cache or from disk.
void prefetch(std::span<const std::byte> range);
void release(std::span<const std::byte> range);

// The contents of a small text file. Throws LoadError if it cannot be read or is over `max_bytes`.
std::string read_text_file(const std::string& path, size_t max_bytes);

}  // namespace quire::formats
