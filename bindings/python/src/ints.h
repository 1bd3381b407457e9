#pragma once
#include <cstdint>
#include <tuple>

namespace quire_kernels {

// Integers of any width where Python keeps them, one after the other.
class Ints {
 public:
  // Address, number of elements, and bytes of one, negative if they have no sign.
  using Description = std::tuple<uintptr_t, int64_t, int>;

  explicit Ints(const Description& d)
      : data_(std::get<0>(d)), size_(std::get<1>(d)), kind_(std::get<2>(d)) {}

  int64_t size() const { return size_; }
  int64_t operator[](int64_t i) const {
    switch (kind_) {
      case 4:
        return at<int32_t>(i);
      case 8:
      case -8:
        return at<int64_t>(i);
      case 2:
        return at<int16_t>(i);
      case 1:
        return at<int8_t>(i);
      case -1:
        return at<uint8_t>(i);
      case -2:
        return at<uint16_t>(i);
      case -4:
        return at<uint32_t>(i);
      default:
        return 0;
    }
  }

 private:
  template <class T>
  int64_t at(int64_t i) const {
    return static_cast<int64_t>(reinterpret_cast<const T*>(data_)[i]);
  }

  uintptr_t data_;
  int64_t size_;
  int kind_;
};

}  // namespace quire_kernels
