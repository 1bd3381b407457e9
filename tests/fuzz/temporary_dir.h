#pragma once
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "base/check.h"

namespace quire::fuzz {

// A folder of this process, in memory where the system has such a place; gone at its end.
class TemporaryDir {
 public:
  TemporaryDir() {
    const bool has_memory = std::filesystem::is_directory("/dev/shm");
    const auto base = has_memory ? "/dev/shm" : std::filesystem::temp_directory_path();
    std::string name = (base / "quire_fuzz_XXXXXX").string();
    QUIRE_CHECK(mkdtemp(name.data()) != nullptr) << name;
    path_ = name;
  }
  ~TemporaryDir() { std::filesystem::remove_all(path_); }
  TemporaryDir(const TemporaryDir&) = delete;
  TemporaryDir& operator=(const TemporaryDir&) = delete;

  const std::filesystem::path& path() const { return path_; }
  void write(const char* name, std::string_view text) const {
    std::ofstream(path_ / name, std::ios::binary) << text;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace quire::fuzz
