#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "formats/data_file.h"
#include "formats/raw_tensor.h"

namespace quire::formats {

// The types of GGUF's metadata, by the numbers that files have.
enum class GgufType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

// A value of the metadata: of one element, or an array of them. Integers and bools are int64_t,
// floats double.
struct GgufValue {
  GgufType type = GgufType::kU8;  // of an element; never kArray
  std::variant<int64_t, double, std::string, std::vector<int64_t>, std::vector<double>,
               std::vector<std::string>>
      value;
};

struct GgufEntry {
  std::string key;
  GgufValue value;
};

struct GgufTensor {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;  // outermost first, as in RawTensor; files have it the other way
  uint64_t begin = 0;          // relative to GgufHeader::data_begin
  uint64_t size = 0;           // in bytes
};

// A header that passed every check: keys and names are unique; the tensors, in the order of their
// offsets, follow each other from data_begin to the end of the file, each as long as its shape and
// type say, with no more between them than the alignment needs.
struct GgufHeader {
  uint32_t version = 0;     // 2 or 3
  uint32_t alignment = 32;  // of tensors, in bytes
  uint64_t data_begin = 0;  // from the start of the file
  std::vector<GgufEntry> metadata;
  std::vector<GgufTensor> tensors;
};

struct GgufProblem {
  std::string text;             // names the key or tensor that it is about
  bool is_short = false;        // the prefix ended too early, and the file may be in order
  bool is_unsupported = false;  // the file may be in order, but it is of a kind that is not read
};

// The header of a file of `file_size` bytes that begins with `file_prefix`. The format is that of
// docs/gguf.md in ggml's repository; little-endian files of versions 2 and 3.
Result<GgufHeader, GgufProblem> parse_gguf_header(std::string_view file_prefix, uint64_t file_size);

// Far above any file: the vocabulary is most of a header, and the largest takes 30 MB.
inline constexpr uint64_t kMaxGgufHeader = uint64_t{1} << 28;

// The number that files have for a tensor's type. Only of types that a GGUF file may have.
uint32_t gguf_type(DType dtype);

// Whether the file begins as GGUF files do. False if it cannot be read.
bool is_gguf_file(const std::string& path);

// An open model in GGUF: one file, or all that it was split into.
class GgufModel {
 public:
  // `path` is the only file or the first of several (X-00001-of-00003.gguf). Throws LoadError
  // naming the file, the key or tensor, and the remedy.
  static GgufModel open(const std::string& path);

  // Of the first file, in its order.
  const std::vector<GgufEntry>& metadata() const { return metadata_; }
  // Of all files, with GGUF's names, in the order of files and offsets.
  const std::vector<RawTensor>& tensors() const { return tensors_; }
  const std::vector<std::shared_ptr<const DataFile>>& files() const { return files_; }

 private:
  GgufModel() = default;
  GgufHeader add_file(const std::string& path);
  void add_other_parts(const std::string& path);

  std::vector<std::shared_ptr<const DataFile>> files_;
  std::vector<GgufEntry> metadata_;
  std::vector<RawTensor> tensors_;
};

}  // namespace quire::formats
