#include "formats/file_snapshot.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef __APPLE__
#include <sys/clonefile.h>
#else
#include <linux/fs.h>
#include <sys/ioctl.h>
#endif

#include <cerrno>
#include <cstring>
#include <filesystem>

namespace quire::formats {
namespace {

namespace fs = std::filesystem;

#ifdef __APPLE__
// A clone gets a name at first. It has it inside a folder that only this user can enter, until it
// is open. Returns a descriptor, or -1 with errno.
int clone_in(const std::string& folder, int file) {
  std::string hidden = folder + "/quire-XXXXXX";
  if (!::mkdtemp(hidden.data())) return -1;
  const std::string name = hidden + "/weights";
  int clone = -1;
  if (::fclonefileat(file, AT_FDCWD, name.c_str(), CLONE_NOOWNERCOPY) == 0) {
    clone = ::open(name.c_str(), O_RDONLY | O_CLOEXEC);
    ::chflags(name.c_str(), 0);  // a file that is locked cannot lose its name
    ::unlink(name.c_str());
  }
  const int error = errno;
  ::rmdir(hidden.c_str());
  errno = error;
  return clone;
}
#else
int clone_in(const std::string& folder, int file) {
  const int clone = ::open(folder.c_str(), O_TMPFILE | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
  if (clone < 0 || ::ioctl(clone, FICLONE, file) == 0) return clone;
  const int error = errno;
  ::close(clone);
  errno = error;
  return -1;
}
#endif

std::string reason(int error) {
  if (error == ENOTSUP || error == EOPNOTSUPP || error == ENOTTY || error == EINVAL)
    return "its file system does not clone files";
  return std::string("it cannot be cloned: ") + std::strerror(error);
}

}  // namespace

FileSnapshot::Taken FileSnapshot::take(int file, const std::string& path) {
  std::error_code ignored;
  // The names in the cache of huggingface_hub are links into another folder.
  const fs::path own = fs::canonical(path, ignored).parent_path();
  std::string why;
  for (const fs::path& folder : {fs::temp_directory_path(ignored), own}) {
    if (folder.empty()) continue;
    const int clone = clone_in(folder.string(), file);
    if (clone < 0) {
      why = reason(errno);
      continue;
    }
    Taken taken = map(clone);
    ::close(clone);
    return taken;
  }
  return Err{path + ": " + why};
}

FileSnapshot::Taken FileSnapshot::map(int nameless) {
  struct stat info{};
  if (::fstat(nameless, &info) != 0) return Err{std::string(std::strerror(errno))};
  if (info.st_nlink != 0) return Err{std::string("the clone of a weight file has a name")};
  const auto size = static_cast<size_t>(info.st_size);
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, nameless, 0);
  if (data == MAP_FAILED)
    return Err{std::string("a weight file cannot be mapped: ") + std::strerror(errno)};
  return std::shared_ptr<const FileSnapshot>(
      new FileSnapshot({static_cast<std::byte*>(data), size}));
}

FileSnapshot::~FileSnapshot() { ::munmap(bytes_.data(), bytes_.size()); }

}  // namespace quire::formats
