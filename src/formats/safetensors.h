#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "formats/data_file.h"
#include "formats/raw_tensor.h"

namespace quire::formats {

struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  uint64_t begin = 0;  // relative to SafetensorsHeader::data_begin
  uint64_t end = 0;
};

// A header that passed every check: the entries, in the order of their offsets, tile the bytes from
// data_begin to the end of the file without overlap or hole, each as long as its shape and dtype
// say.
struct SafetensorsHeader {
  uint64_t data_begin = 0;  // from the start of the file
  std::vector<SafetensorsEntry> entries;
  std::map<std::string, std::string> metadata;
};

// The header of a file of `file_size` bytes that starts with `file_prefix` (the whole file, or at
// least 8 bytes and the header). Rules: the README of the safetensors project and its reference
// reader, plus: no duplicate key at any level (readers that keep the first and readers that keep
// the last would see two different models), no unknown keys in a tensor's entry, dims within
// kMaxDim and kMaxDims. An error names the tensor that it is about.
Result<SafetensorsHeader, std::string> parse_safetensors_header(std::string_view file_prefix,
                                                                uint64_t file_size);

// The limit of the reference reader, in bytes.
inline constexpr uint64_t kMaxSafetensorsHeader = 100'000'000;

// One open safetensors file.
class SafetensorsFile {
 public:
  // Throws LoadError naming the file, the tensor and the remedy.
  static SafetensorsFile open(const std::string& path);

  // In the order of their offsets.
  const std::vector<RawTensor>& tensors() const { return tensors_; }
  // From now on what is read of the tensors is counted in their digests.
  void record_contents();
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  // Throws LoadError if the file has changed since it was opened.
  void check_unchanged() const { file_->check_unchanged(); }

 private:
  SafetensorsFile() = default;

  std::shared_ptr<const DataFile> file_;
  std::vector<RawTensor> tensors_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace quire::formats
