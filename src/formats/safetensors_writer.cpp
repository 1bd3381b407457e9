#include "formats/safetensors_writer.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/json.h"

namespace quire::formats {
namespace {

std::string header_of(const std::vector<TensorPlan>& plans,
                      const std::map<std::string, std::string>& metadata) {
  json::object header;
  json::object meta;
  for (const auto& [key, value] : metadata) meta[key] = value;
  header["__metadata__"] = std::move(meta);
  uint64_t at = 0;
  for (const TensorPlan& plan : plans) {
    json::array shape;
    for (const int64_t length : plan.shape) shape.emplace_back(length);
    const uint64_t end = at + plan.bytes();
    header[plan.name] = json::object{{"dtype", std::string(dtype_name(plan.dtype))},
                                     {"shape", std::move(shape)},
                                     {"data_offsets", json::array{at, end}}};
    at = end;
  }
  std::string text = dump_json(header);
  while (text.size() % 8 != 0) text += ' ';  // so that tensors are aligned
  return text;
}

}  // namespace

uint64_t TensorPlan::bytes() const {
  uint64_t n = static_cast<uint64_t>(dtype_size(dtype));
  for (const int64_t length : shape) n *= static_cast<uint64_t>(length);
  return n;
}

SafetensorsWriter::SafetensorsWriter(std::string path, const std::vector<TensorPlan>& plans,
                                     const std::map<std::string, std::string>& metadata)
    : path_(std::move(path)), file_(std::fopen(path_.c_str(), "wb"), std::fclose) {
  if (!file_) fail();
  const std::string header = header_of(plans, metadata);
  std::byte size[8];
  for (int i = 0; i < 8; ++i) size[i] = static_cast<std::byte>(uint64_t{header.size()} >> (8 * i));
  left_ = 8 + header.size();
  for (const TensorPlan& plan : plans) left_ += plan.bytes();
  append(size);
  append(std::as_bytes(std::span(header)));
}

void SafetensorsWriter::fail() const {
  throw LoadError(path_ + ": cannot write: " + std::strerror(errno) +
                  "; choose a place with enough room that you may write to");
}

void SafetensorsWriter::append(std::span<const std::byte> bytes) {
  QUIRE_CHECK(bytes.size() <= left_) << path_ << ": more bytes than planned";
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_.get()) != bytes.size()) fail();
  left_ -= bytes.size();
}

void SafetensorsWriter::finish() {
  QUIRE_CHECK(left_ == 0) << path_ << ": " << left_ << " bytes are missing";
  if (std::fflush(file_.get()) != 0 || ::fsync(::fileno(file_.get())) != 0) fail();
  if (std::fclose(file_.release()) != 0) fail();
}

}  // namespace quire::formats
