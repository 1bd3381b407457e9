#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "formats/raw_tensor.h"

// Helpers of this room's tests: files made in code, and the message of the error they cause.
namespace quire::formats::testing {

// A folder that is removed at the end of the test.
class TempDir {
 public:
  explicit TempDir(const std::filesystem::path& in = std::filesystem::temp_directory_path()) {
    std::string name = (in / "quire-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot make " + name);
    path_ = name;
  }
  ~TempDir() { std::filesystem::remove_all(path_); }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }
  std::string write(const std::string& name, const std::string& contents) const {
    const std::string path = path_ + "/" + name;
    std::ofstream(path, std::ios::binary) << contents;
    return path;
  }

 private:
  std::string path_;
};

// A tensor's bytes.
inline std::string bytes_of(const RawTensor& tensor) {
  const std::vector<std::byte> bytes = tensor.read_all();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// The bytes of a safetensors file with this header and `data_size` bytes 0, 1, 2...
inline std::string safetensors_bytes(const std::string& header, size_t data_size) {
  std::string out;
  for (int i = 0; i < 8; ++i) out += static_cast<char>(uint64_t{header.size()} >> (8 * i));
  out += header;
  for (size_t i = 0; i < data_size; ++i) out += static_cast<char>(i);
  return out;
}

// A folder for files that tests clone: on a file system that can, if QUIRE_TEST_CLONE_DIR names a
// folder there (tests/metal/run.sh makes one), else where temporary files are.
inline std::filesystem::path folder_for_clones() {
  const char* asked = std::getenv("QUIRE_TEST_CLONE_DIR");
  return asked ? std::filesystem::path(asked) : std::filesystem::temp_directory_path();
}

// What a file system makes that clones files, where there is none: a copy without a name.
inline FileSnapshot::Taken copied_snapshot(const DataFile& file) {
  std::vector<std::byte> bytes(file.size());
  file.read(0, bytes);
  std::string name = (std::filesystem::temp_directory_path() / "quire-XXXXXX").string();
  const int copy = ::mkstemp(name.data());
  ::unlink(name.c_str());
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = ::write(copy, bytes.data() + done, bytes.size() - done);
    if (n <= 0) throw std::runtime_error("cannot write " + name);
    done += static_cast<size_t>(n);
  }
  auto taken = FileSnapshot::map(copy);
  ::close(copy);
  return taken;
}

// The message of the LoadError that `call` throws; "" and a failed test if it throws none.
template <class Call>
std::string load_error(Call&& call) {
  try {
    call();
  } catch (const LoadError& error) {
    return error.what();
  }
  ADD_FAILURE() << "no LoadError";
  return "";
}

}  // namespace quire::formats::testing
