#include "formats/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace quire::formats {
namespace {

// An open file descriptor that closes itself.
struct Descriptor {
  int fd = -1;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

[[noreturn]] void fail(const std::string& path, const std::string& doing, int error) {
  throw LoadError(path + ": cannot " + doing + ": " + std::strerror(error) +
                  "; check that the file is complete and readable");
}

// Opens a regular file and tells its size. O_NONBLOCK: opening a named pipe must not wait for a
// writer; it has no effect on regular files.
size_t open_regular(const std::string& path, Descriptor& file) {
  file.fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file.fd < 0) fail(path, "open the file", errno);
  struct stat info{};
  if (::fstat(file.fd, &info) != 0) fail(path, "read the size of the file", errno);
  if (!S_ISREG(info.st_mode)) throw LoadError(path + ": not a regular file");
  return static_cast<size_t>(info.st_size);
}

// madvise on the pages of `range`: all that it touches, or only those that lie wholly inside.
void advise(std::span<const std::byte> range, int advice, bool only_inside) {
  const uintptr_t page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  uintptr_t begin = reinterpret_cast<uintptr_t>(range.data());
  uintptr_t end = begin + range.size();
  begin = only_inside ? (begin + page - 1) / page * page : begin / page * page;
  if (only_inside) end = end / page * page;
  if (end > begin) (void)::madvise(reinterpret_cast<void*>(begin), end - begin, advice);
}

}  // namespace

MappedFile MappedFile::open(const std::string& path) {
  Descriptor file;
  MappedFile mapped;
  const size_t size = open_regular(path, file);
  mapped.path_ = path;
  if (size == 0) return mapped;
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (data == MAP_FAILED) fail(path, "map the file", errno);
  mapped.bytes_ = {static_cast<const std::byte*>(data), size};
  return mapped;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

void prefetch(std::span<const std::byte> range) { advise(range, MADV_WILLNEED, false); }

void release(std::span<const std::byte> range) { advise(range, MADV_DONTNEED, true); }

std::string read_text_file(const std::string& path, size_t max_bytes) {
  Descriptor file;
  const size_t size = open_regular(path, file);
  if (size > max_bytes) {
    throw LoadError(path + ": " + std::to_string(size) + " bytes are over the limit of " +
                    std::to_string(max_bytes) + " for this file");
  }
  std::string text(size, '\0');
  size_t done = 0;
  while (done < size) {
    const ssize_t n = ::read(file.fd, text.data() + done, size - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(path, "read the file", errno);
    if (n == 0) break;  // became shorter since it was opened
    done += static_cast<size_t>(n);
  }
  text.resize(done);
  return text;
}

}  // namespace quire::formats
