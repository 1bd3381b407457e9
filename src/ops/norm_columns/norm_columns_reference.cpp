#include "ops/norm_columns/norm_columns_reference.h"

#include "ops/rms_norm/rms_norm_reference.h"

namespace quire::ops {

mx::array norm_columns_reference(const mx::array& x, const std::vector<ColumnNorm>& norms,
                                 float eps) {
  std::vector<mx::array> parts;
  int at = 0;
  const auto columns = [&](int begin, int end) {
    return mx::slice(x, {0, begin}, {x.shape(0), end});
  };
  for (const ColumnNorm& norm : norms) {
    const int first = static_cast<int>(norm.first), width = norm.weight.shape(0);
    parts.push_back(columns(at, first));
    for (at = first; at < first + static_cast<int>(norm.count) * width; at += width)
      parts.push_back(rms_norm_reference(columns(at, at + width), norm.weight, eps));
  }
  parts.push_back(columns(at, x.shape(1)));
  return mx::concatenate(parts, 1);
}

}  // namespace quire::ops
