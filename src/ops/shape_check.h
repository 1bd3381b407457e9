#pragma once
#include <mlx/mlx.h>

#include <initializer_list>
#include <string>
#include <string_view>

namespace quire::ops {

namespace mx = mlx::core;

// Throws std::invalid_argument "<op>: <name> has shape [..], expected [..]" unless the shape
// matches; -1 stands for any length.
void check_shape(std::string_view op, std::string_view name, const mx::array& x,
                 std::initializer_list<int64_t> expected);
// Throws unless x has the dtype.
void check_dtype(std::string_view op, std::string_view name, const mx::array& x,
                 mx::Dtype expected);
// True for float32, float16 and bfloat16.
bool is_float(mx::Dtype dtype);
std::string shape_string(const mx::array& x);

}  // namespace quire::ops
