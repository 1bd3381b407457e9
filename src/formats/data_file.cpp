#include "formats/data_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace quire::formats {
namespace {

[[noreturn]] void fail(const std::string& path, const std::string& doing, int error) {
  throw LoadError(path + ": cannot " + doing + ": " + std::strerror(error) +
                  "; check that the file is complete and readable");
}

// POSIX's names are not those of macOS.
#ifdef __APPLE__
timespec modified(const struct stat& info) { return info.st_mtimespec; }
timespec changed(const struct stat& info) { return info.st_ctimespec; }
#else
timespec modified(const struct stat& info) { return info.st_mtim; }
timespec changed(const struct stat& info) { return info.st_ctim; }
#endif

int64_t nanoseconds(const timespec& time) {
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

}  // namespace

std::shared_ptr<const DataFile> DataFile::open(const std::string& path) {
  const std::shared_ptr<DataFile> file(new DataFile);
  file->path_ = path;
  // O_NONBLOCK: opening a named pipe must not wait for a writer; it has no effect on regular files.
  file->fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file->fd_ < 0) fail(path, "open the file", errno);
  file->opened_ = file->state();
  return file;
}

DataFile::~DataFile() {
  if (fd_ >= 0) ::close(fd_);
}

DataFile::State DataFile::state() const {
  struct stat info{};
  if (::fstat(fd_, &info) != 0) fail(path_, "read the size of the file", errno);
  if (!S_ISREG(info.st_mode)) throw LoadError(path_ + ": not a regular file");
  return {.size = static_cast<uint64_t>(info.st_size),
          .modified_ns = nanoseconds(modified(info)),
          .changed_ns = nanoseconds(changed(info))};
}

void DataFile::read(uint64_t begin, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t n = ::pread(fd_, out.data(), out.size(), static_cast<off_t>(begin));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(path_, "read the file", errno);
    if (n == 0) {
      throw LoadError(path_ + ": ends at byte " + std::to_string(begin) + " of " +
                      std::to_string(opened_.size) +
                      ": it was cut while it was being read; load the model again when the file "
                      "is complete");
    }
    begin += static_cast<uint64_t>(n);
    out = out.subspan(static_cast<size_t>(n));
  }
}

void DataFile::check_unchanged() const {
  if (state() == opened_) return;
  throw LoadError(path_ +
                  ": was changed while it was being read; load the model again when nothing "
                  "writes to it any more");
}

FileSnapshot::Taken DataFile::snapshot() const {
  auto taken = FileSnapshot::take(fd_, path_);
  check_unchanged();  // until behind the moment of the clone
  return taken;
}

std::string read_text_file(const std::string& path, size_t max_bytes) {
  const auto file = DataFile::open(path);
  if (file->size() > max_bytes) {
    throw LoadError(path + ": " + std::to_string(file->size()) + " bytes are over the limit of " +
                    std::to_string(max_bytes) + " for this file");
  }
  std::string text(file->size(), '\0');
  file->read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

}  // namespace quire::formats
