#pragma once
#include <bit>
#include <cstdint>
#include <string>
#include <vector>

// GGUF files for tests, made from their description in ggml's docs/gguf.md.
namespace quire::formats::testing {

// Little-endian.
inline std::string gguf_number(uint64_t value, int bytes) {
  std::string out;
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i));
  return out;
}

inline std::string gguf_string(const std::string& text) {
  return gguf_number(text.size(), 8) + text;
}

class GgufBytes {
 public:
  uint32_t version = 3;
  uint64_t alignment = 32;
  bool pad_end = true;

  GgufBytes& value(const std::string& key, uint32_t type, const std::string& bytes) {
    metadata_ += gguf_string(key) + gguf_number(type, 4) + bytes;
    ++keys_;
    return *this;
  }
  GgufBytes& u32(const std::string& key, uint32_t x) { return value(key, 4, gguf_number(x, 4)); }
  GgufBytes& u16(const std::string& key, uint16_t x) { return value(key, 2, gguf_number(x, 2)); }
  GgufBytes& i32(const std::string& key, int32_t x) {
    return value(key, 5, gguf_number(static_cast<uint32_t>(x), 4));
  }
  GgufBytes& f32(const std::string& key, float x) {
    return value(key, 6, gguf_number(std::bit_cast<uint32_t>(x), 4));
  }
  GgufBytes& flag(const std::string& key, bool x) { return value(key, 7, gguf_number(x, 1)); }
  GgufBytes& text(const std::string& key, const std::string& x) {
    return value(key, 8, gguf_string(x));
  }
  GgufBytes& texts(const std::string& key, const std::vector<std::string>& all) {
    std::string bytes = gguf_number(8, 4) + gguf_number(all.size(), 8);
    for (const std::string& x : all) bytes += gguf_string(x);
    return value(key, 9, bytes);
  }
  GgufBytes& i32s(const std::string& key, const std::vector<int32_t>& all) {
    std::string bytes = gguf_number(5, 4) + gguf_number(all.size(), 8);
    for (const int32_t x : all) bytes += gguf_number(static_cast<uint32_t>(x), 4);
    return value(key, 9, bytes);
  }
  GgufBytes& f32s(const std::string& key, const std::vector<float>& all) {
    std::string bytes = gguf_number(6, 4) + gguf_number(all.size(), 8);
    for (const float x : all) bytes += gguf_number(std::bit_cast<uint32_t>(x), 4);
    return value(key, 9, bytes);
  }

  // `dims` as in the file, the innermost first.
  GgufBytes& tensor(const std::string& name, const std::vector<uint64_t>& dims, uint32_t type,
                    const std::string& bytes) {
    data_.resize((data_.size() + alignment - 1) / alignment * alignment);
    info(name, dims, type, data_.size());
    data_ += bytes;
    return *this;
  }
  // The entry alone.
  GgufBytes& info(const std::string& name, const std::vector<uint64_t>& dims, uint32_t type,
                  uint64_t offset) {
    infos_ += gguf_string(name) + gguf_number(dims.size(), 4);
    for (const uint64_t dim : dims) infos_ += gguf_number(dim, 8);
    infos_ += gguf_number(type, 4) + gguf_number(offset, 8);
    ++tensors_;
    return *this;
  }
  GgufBytes& data(const std::string& bytes) {
    data_ += bytes;
    return *this;
  }

  std::string header() const {
    return "GGUF" + gguf_number(version, 4) + gguf_number(tensors_, 8) + gguf_number(keys_, 8) +
           metadata_ + infos_;
  }
  std::string bytes() const {
    std::string out = header();
    if (data_.empty()) return out;
    out.resize((out.size() + alignment - 1) / alignment * alignment);
    out += data_;
    if (pad_end) out.resize((out.size() + alignment - 1) / alignment * alignment);
    return out;
  }

 private:
  std::string metadata_, infos_, data_;
  uint64_t keys_ = 0, tensors_ = 0;
};

}  // namespace quire::formats::testing
