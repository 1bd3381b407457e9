#include "ops/runtime/shape_check.h"

#include <sstream>
#include <stdexcept>

namespace quire::ops {

std::string shape_string(const mx::array& x) {
  std::string text = "[";
  for (int i = 0; i < static_cast<int>(x.ndim()); ++i)
    text += (i ? ", " : "") + std::to_string(x.shape(i));
  return text + "]";
}

void check_shape(std::string_view op, std::string_view name, const mx::array& x,
                 std::initializer_list<int64_t> expected) {
  bool match = x.ndim() == expected.size();
  int axis = 0;
  for (const int64_t length : expected) {
    if (!match) break;
    match = length < 0 || x.shape(axis) == length;
    ++axis;
  }
  if (match) return;
  std::string text = "[";
  for (const int64_t length : expected)
    text += (text.size() > 1 ? ", " : "") + (length < 0 ? "*" : std::to_string(length));
  throw std::invalid_argument(std::string(op) + ": " + std::string(name) + " has shape " +
                              shape_string(x) + ", expected " + text + "]");
}

void check_same_shape(std::string_view op, std::string_view name, const mx::array& x,
                      const mx::array& other) {
  if (x.shape() == other.shape()) return;
  throw std::invalid_argument(std::string(op) + ": " + std::string(name) + " has shape " +
                              shape_string(x) + ", expected " + shape_string(other));
}

void check_rank_at_least(std::string_view op, std::string_view name, const mx::array& x,
                         size_t rank) {
  if (x.ndim() >= rank) return;
  throw std::invalid_argument(std::string(op) + ": " + std::string(name) + " has " +
                              std::to_string(x.ndim()) + " axes, expected at least " +
                              std::to_string(rank));
}

void check_dtype(std::string_view op, std::string_view name, const mx::array& x,
                 mx::Dtype expected) {
  if (x.dtype() == expected) return;
  throw std::invalid_argument(std::string(op) + ": " + std::string(name) + " is " +
                              dtype_string(x.dtype()) + ", expected " + dtype_string(expected));
}

FloatType check_float(std::string_view op, std::string_view name, mx::Dtype dtype) {
  if (dtype == mx::float32) return FloatType::kF32;
  if (dtype == mx::float16) return FloatType::kF16;
  if (dtype == mx::bfloat16) return FloatType::kBf16;
  throw std::invalid_argument(std::string(op) + ": " + std::string(name) + " is " +
                              dtype_string(dtype) + ", expected float32, float16 or bfloat16");
}

std::string dtype_string(mx::Dtype dtype) {
  std::ostringstream text;
  text << dtype;
  return text.str();
}

}  // namespace quire::ops
