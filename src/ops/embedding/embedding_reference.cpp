#include "ops/embedding/embedding_reference.h"

#include <cstring>

#include "ops/linear/linear_reference.h"

namespace quire::ops {

mx::array embedding_reference(const mx::array& ids, const PackedMatrix& table) {
  return mx::take(unpack_matrix(table), ids, 0);
}

mx::array embedding_reference(const mx::array& ids, const RowMatrix& table, mx::Dtype dtype) {
  // A copy, because MLX needs aligned memory.
  mx::array rows = mx::zeros({static_cast<int>(table.n), static_cast<int>(table.k)}, table.dtype);
  mx::eval(rows);
  std::memcpy(rows.data<void>(), table.data, rows.nbytes());
  return mx::astype(mx::take(rows, ids, 0), dtype);
}

}  // namespace quire::ops
