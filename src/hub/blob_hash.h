#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace quire::hub {

// Checks a file's bytes against the etag that a hub names it by: the sha256 of a large file (64
// hexadecimal digits), or git's sha1 of a small one (40), which is that of "blob SIZE\0" and the
// bytes.
class BlobHash {
 public:
  // Whether `etag` is of one of the two kinds; else nothing can be checked.
  static bool is_known(std::string_view etag);

  // `size`: of the whole file, in bytes.
  BlobHash(std::string_view etag, uint64_t size);
  ~BlobHash();
  BlobHash(const BlobHash&) = delete;
  BlobHash& operator=(const BlobHash&) = delete;

  void restart();
  void add(std::span<const char> bytes);
  // Of everything that was added, in hexadecimal digits. Ends it: restart() comes next.
  std::string finish();
  const char* kind() const;  // "sha256" or "git's sha1"

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire::hub
