#pragma once
#include <cstdio>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "formats/raw_tensor.h"

namespace quire::formats {

struct TensorPlan {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  uint64_t bytes() const;
};

// Writes a safetensors file tensor by tensor: the header first, from the plans, then the bytes of
// each, in the order of the plans. Throws LoadError naming the file if it cannot be written.
class SafetensorsWriter {
 public:
  SafetensorsWriter(std::string path, const std::vector<TensorPlan>& plans,
                    const std::map<std::string, std::string>& metadata);
  void append(std::span<const std::byte> bytes);
  // After the last byte; only then is the file known to be on disk.
  void finish();

 private:
  [[noreturn]] void fail() const;

  std::string path_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
  uint64_t left_ = 0;
};

}  // namespace quire::formats
