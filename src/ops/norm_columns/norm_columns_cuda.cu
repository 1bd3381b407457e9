#include "ops/norm_columns/norm_columns_cuda.h"

#include <algorithm>
#include <vector>

#include "ops/cuda/launch.cuh"
#include "ops/cuda/reduce.cuh"

namespace quire::ops {
namespace {

// Parts of one launch; without a weight, columns that are copied.
constexpr int kMostParts = 8;
struct Parts {
  NormColumnsParams::Part of[kMostParts];
};

// A block for each group of a row: part i has `count` of them, side by side.
template <class T>
__global__ void __launch_bounds__(kNormLanes)
    hot_norm_groups(const NormColumnsParams p, const Parts parts, bool wide) {
  begin_dependent();
  int64_t group = blockIdx.y;
  int i = 0;
  while (group >= parts.of[i].count) group -= parts.of[i++].count;
  const NormColumnsParams::Part part = parts.of[i];
  const int64_t width = part.width, first = blockIdx.x * p.row + part.first + group * width;
  const T* x = static_cast<const T*>(p.x) + first;
  T* y = static_cast<T*>(p.y) + first;
  const bool has_norm = part.weight != nullptr;
  float scale = 1;
  if (has_norm)
    scale = block_inverse_rms(width, p.eps,
                              [&](int64_t at, float(&v)[8]) { load_some8(x, at, width, wide, v); });
  for (int64_t at = threadIdx.x * 8; at < width; at += kNormLanes * 8) {
    float v[8], weight[8] = {};
    load_some8(x, at, width, wide, v);
    if (has_norm) {
      load_some8(part.weight, at, width, wide, weight);
#pragma unroll
      for (int j = 0; j < 8; ++j) v[j] = v[j] * scale * weight[j];
    }
    store_some8(y, at, width, wide, v);
  }
}

// All columns of a row: those to norm, and what lies before, between and behind them.
std::vector<NormColumnsParams::Part> whole_row(const NormColumnsParams& p) {
  std::vector<NormColumnsParams::Part> parts;
  int64_t at = 0;
  const auto copy_to = [&](int64_t end) {
    if (end > at) parts.push_back({.first = at, .width = end - at, .count = 1});
  };
  for (int64_t i = 0; i < p.num_parts; ++i) {
    const NormColumnsParams::Part& part = p.parts[i];
    copy_to(part.first);
    if (part.width > 0) parts.push_back(part);
    at = part.first + part.count * part.width;
  }
  copy_to(p.row);
  return parts;
}

}  // namespace

void norm_columns_cuda(CudaStream stream, const NormColumnsParams& params, int64_t rows) {
  const std::vector<NormColumnsParams::Part> all = whole_row(params);
  NormColumnsParams p = params;
  p.parts = nullptr;
  bool wide = is_wide(p.x, p.row) && is_wide(p.y, p.row);
  for (const NormColumnsParams::Part& part : all)
    wide &= part.first % 8 == 0 && is_wide(part.weight, part.width);
  for (size_t begin = 0; begin < all.size(); begin += kMostParts) {
    Parts parts = {};
    int64_t groups = 0;
    for (size_t i = begin; i < std::min(all.size(), begin + kMostParts); ++i) {
      parts.of[i - begin] = all[i];
      groups += all[i].count;
    }
    with_float_type(p.type, [&](auto t) {
      launch("norm_columns", stream, hot_norm_groups<decltype(t)>,
             dim3(static_cast<unsigned>(rows), static_cast<unsigned>(groups)), kNormLanes, 0, p,
             parts, wide);
    });
  }
}

}  // namespace quire::ops
