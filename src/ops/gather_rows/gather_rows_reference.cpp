#include "ops/gather_rows/gather_rows_reference.h"

namespace quire::ops {

namespace mx = mlx::core;

namespace {

mx::array to_array(const std::vector<int32_t>& values) {
  return mx::array(values.data(), {static_cast<int>(values.size())}, mx::int32);
}

}  // namespace

mx::array gather_rows_reference(const mx::array& x, const BatchLayout& layout) {
  return mx::take(x, to_array(layout.rows), 0);
}

mx::array take_rows_reference(const mx::array& x, const std::vector<int32_t>& rows) {
  return mx::take(x, to_array(rows), 0);
}

mx::array put_rows_reference(const mx::array& x, const std::vector<int32_t>& rows,
                             const mx::array& to, const std::vector<int32_t>& places) {
  mx::array result = to;
  for (size_t i = 0; i < rows.size(); ++i) {
    const mx::array row = mx::slice(x, {rows[i], 0}, {rows[i] + 1, x.shape(1)});
    const mx::Shape begin = {places[i], 0}, end = {places[i] + 1, x.shape(1)};
    result = mx::slice_update(result, row, begin, end);
  }
  return result;
}

mx::array slice_columns_reference(const mx::array& x, int64_t begin, int64_t width) {
  const int first = static_cast<int>(begin), last = static_cast<int>(begin + width);
  return mx::contiguous(mx::slice(x, {0, first}, {x.shape(0), last}));
}

mx::array resolve_tokens_reference(const std::vector<int32_t>& ids,
                                   const std::vector<int32_t>& from, const mx::array& previous) {
  const mx::array host = to_array(ids), rows = to_array(from);
  if (previous.size() == 0 || ids.empty()) return host;
  const mx::array zero = mx::array(0, mx::int32);
  const mx::array sampled = mx::maximum(mx::take(previous, mx::maximum(rows, zero), 0), zero);
  return mx::where(rows >= zero, sampled, host);
}

}  // namespace quire::ops
