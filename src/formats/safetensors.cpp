#include "formats/safetensors.h"

#include <utility>

#include "base/error.h"

namespace quire::formats {

SafetensorsFile SafetensorsFile::open(const std::string& path) {
  SafetensorsFile out(MappedFile::open(path));
  const std::span<const std::byte> bytes = out.file_.bytes();
  auto header = parse_safetensors_header(
      {reinterpret_cast<const char*>(bytes.data()), bytes.size()}, bytes.size());
  if (!header) {
    throw LoadError(path + ": " + header.error() +
                    ". The file is incomplete, damaged or not a safetensors file: download it "
                    "again or convert the model anew");
  }
  const std::span<const std::byte> data = bytes.subspan(header->data_begin);
  out.metadata_ = std::move(header->metadata);
  out.tensors_.reserve(header->entries.size());
  for (SafetensorsEntry& entry : header->entries) {
    out.tensors_.push_back({.name = std::move(entry.name),
                            .dtype = entry.dtype,
                            .shape = std::move(entry.shape),
                            .bytes = data.subspan(entry.begin, entry.end - entry.begin),
                            .file = path});
  }
  return out;
}

}  // namespace quire::formats
