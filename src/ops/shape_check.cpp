#include "ops/shape_check.h"

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

void check_dtype(std::string_view op, std::string_view name, const mx::array& x,
                 mx::Dtype expected) {
  if (x.dtype() == expected) return;
  throw std::invalid_argument(std::string(op) + ": " + std::string(name) +
                              " has another dtype than expected");
}

bool is_float(mx::Dtype dtype) {
  return dtype == mx::float32 || dtype == mx::float16 || dtype == mx::bfloat16;
}

}  // namespace quire::ops
