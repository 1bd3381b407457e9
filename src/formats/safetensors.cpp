#include "formats/safetensors.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace quire::formats {

namespace {

// The length, the header that it announces, and no more of the file than the limit.
std::string read_prefix(const DataFile& file) {
  const auto read = [&file](uint64_t bytes) {
    std::string prefix(std::min(bytes, file.size()), '\0');
    file.read(0, std::as_writable_bytes(std::span(prefix)));
    return prefix;
  };
  uint64_t header = 0;
  const std::string length = read(8);
  for (size_t i = 0; i < length.size(); ++i)
    header |= uint64_t{static_cast<unsigned char>(length[i])} << (8 * i);
  return read(8 + std::min(header, kMaxSafetensorsHeader));
}

}  // namespace

SafetensorsFile SafetensorsFile::open(const std::string& path) {
  SafetensorsFile out;
  out.file_ = DataFile::open(path);
  auto header = parse_safetensors_header(read_prefix(*out.file_), out.file_->size());
  if (!header) {
    throw LoadError(path + ": " + header.error() +
                    ". The file is incomplete, damaged or not a safetensors file: download it "
                    "again or convert the model anew");
  }
  out.metadata_ = std::move(header->metadata);
  out.tensors_.reserve(header->entries.size());
  for (SafetensorsEntry& entry : header->entries) {
    out.tensors_.push_back({.name = std::move(entry.name),
                            .dtype = entry.dtype,
                            .shape = std::move(entry.shape),
                            .source = out.file_,
                            .begin = header->data_begin + entry.begin,
                            .size = entry.end - entry.begin});
  }
  return out;
}

void SafetensorsFile::record_contents() {
  for (RawTensor& tensor : tensors_) tensor.record_contents();
}

}  // namespace quire::formats
