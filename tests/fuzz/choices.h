#pragma once
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

namespace quire::fuzz {

// Takes an input apart as libFuzzer's FuzzedDataProvider does, whose inputs keep their meaning:
// numbers come from the end, texts from the front. What is there no more is 0, or empty.
class Choices {
 public:
  Choices(const uint8_t* data, size_t size) : left_(reinterpret_cast<const char*>(data), size) {}
  Choices(const Choices&) = delete;
  Choices& operator=(const Choices&) = delete;

  size_t bytes_left() const { return left_.size(); }

  // From as many bytes as the range has; not equally likely.
  template <class T>
  T in_range(T min, T max) {
    const uint64_t range = static_cast<uint64_t>(max) - static_cast<uint64_t>(min);
    uint64_t value = 0;
    for (size_t bits = 0; bits < 8 * sizeof(T) && range >> bits > 0 && !left_.empty(); bits += 8) {
      value = value << 8 | static_cast<uint8_t>(left_.back());
      left_.remove_suffix(1);
    }
    if (range != std::numeric_limits<uint64_t>::max()) value %= range + 1;
    return static_cast<T>(static_cast<uint64_t>(min) + value);
  }
  template <class T>
  T any() {
    return in_range(std::numeric_limits<T>::min(), std::numeric_limits<T>::max());
  }
  bool flip() { return (any<uint8_t>() & 1) != 0; }

  // Up to a backslash, which is skipped with the byte behind it; two of them are one in the text.
  std::string text(size_t longest) {
    std::string text;
    while (text.size() < longest && !left_.empty()) {
      char next = take();
      if (next == '\\' && !left_.empty()) {
        next = take();
        if (next != '\\') break;
      }
      text += next;
    }
    return text;
  }
  std::string rest() {
    const std::string text(left_);
    left_ = {};
    return text;
  }

 private:
  char take() {
    const char byte = left_.front();
    left_.remove_prefix(1);
    return byte;
  }

  std::string_view left_;
};

}  // namespace quire::fuzz
