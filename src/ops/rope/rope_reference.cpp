#include "ops/rope/rope_reference.h"

#include "ops/rope/rope_checks.h"

namespace quire::ops {

mx::array rope_reference(const mx::array& x, const BatchLayout& layout, const RopeTable& table) {
  const int tokens = x.shape(0), heads = x.shape(1), dim = x.shape(2);
  const int rotary = static_cast<int>(table.rotary_dim), half = rotary / 2;
  const float* all_rows = rows_of_positions("rope", layout, table);
  std::vector<float> rows(static_cast<size_t>(tokens) * rotary);
  for (int t = 0; t < tokens; ++t) {
    const float* row = all_rows + int64_t{layout.positions[t]} * rotary;
    std::copy(row, row + rotary, rows.begin() + int64_t{t} * rotary);
  }
  const mx::array cos_sin(rows.begin(), {tokens, 1, rotary}, mx::float32);
  const auto columns = [&](const mx::array& a, int begin, int end) {
    return mx::slice(a, {0, 0, begin}, {a.shape(0), a.shape(1), end});
  };
  const mx::array cos = columns(cos_sin, 0, half), sin = columns(cos_sin, half, rotary);
  const mx::array wide = mx::astype(x, mx::float32);
  const mx::array a = columns(wide, 0, half), b = columns(wide, half, rotary);
  std::vector<mx::array> parts = {a * cos - b * sin, b * cos + a * sin};
  if (rotary < dim) parts.push_back(columns(wide, rotary, dim));
  return mx::astype(mx::reshape(mx::concatenate(parts, -1), {tokens, heads, dim}), x.dtype());
}

}  // namespace quire::ops
