#pragma once
#include <mlx/mlx.h>

#include <initializer_list>
#include <string>
#include <string_view>

#include "ops/cpu/half.h"

namespace quire::ops {

namespace mx = mlx::core;

// Throws std::invalid_argument "<op>: <name> has shape [..], expected [..]" unless the shape
// matches; -1 stands for any length.
void check_shape(std::string_view op, std::string_view name, const mx::array& x,
                 std::initializer_list<int64_t> expected);
// Throws unless x has `other`'s shape, or at least `rank` axes.
void check_same_shape(std::string_view op, std::string_view name, const mx::array& x,
                      const mx::array& other);
void check_rank_at_least(std::string_view op, std::string_view name, const mx::array& x,
                         size_t rank);
// Throws unless x has the dtype.
void check_dtype(std::string_view op, std::string_view name, const mx::array& x,
                 mx::Dtype expected);
// The kernels' name of such a dtype; throws std::invalid_argument for any other.
FloatType check_float(std::string_view op, std::string_view name, mx::Dtype dtype);
std::string dtype_string(mx::Dtype dtype);
std::string shape_string(const mx::array& x);

}  // namespace quire::ops
