#include "ops/layout/kv_cache.h"

#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

#include "ops/runtime/array_memory.h"
#include "ops/runtime/shape_check.h"

namespace quire::ops {
namespace {

// Of each token and head, with a scale for each row of codes.
struct Rows {
  mx::array rows;
  std::optional<mx::array> scales = std::nullopt;
};

Rows make_rows(const std::vector<int64_t>& lengths, mx::Dtype dtype, KvStorage storage,
               Device* device) {
  check_float("make_paged_kv", "dtype", dtype);
  mx::Shape shape;
  for (const int64_t length : lengths) {
    if (length < 1 || length > std::numeric_limits<mx::ShapeElem>::max())
      throw std::invalid_argument("make_paged_kv: cannot have an axis of length " +
                                  std::to_string(length));
    shape.push_back(static_cast<mx::ShapeElem>(length));
  }
  const auto make = [device](const mx::Shape& axes, mx::Dtype type) {
    return device ? device->make_pool(axes, type) : make_lazy_array(axes, type);
  };
  if (storage == KvStorage::kAuto) return {.rows = make(shape, dtype)};
  return {.rows = make(shape, storage == KvStorage::kInt8 ? mx::int8 : mx::uint8),
          .scales = make({shape[0], shape[1], shape[2]}, mx::float32)};
}

}  // namespace

std::vector<mx::array> PagedKv::arrays() const {
  std::vector<mx::array> all = {k};
  if (values_in_keys == 0) all.push_back(v);
  if (k_scale) all.push_back(*k_scale);
  if (v_scale && values_in_keys == 0) all.push_back(*v_scale);
  return all;
}

PagedKv::Outputs PagedKv::outputs() const {
  Outputs all;
  for (const mx::array& pool : arrays()) {
    all.alias.push_back(static_cast<int>(all.shapes.size()));
    all.shapes.push_back(pool.shape());
    all.dtypes.push_back(pool.dtype());
  }
  return all;
}

PagedKv PagedKv::from(const std::vector<mx::array>& arrays, size_t first) {
  PagedKv kv = {arrays[first], arrays[first + 1]};
  if (kv.k.dtype() != mx::int8 && kv.k.dtype() != mx::uint8) return kv;
  kv.k_scale = arrays[first + 2];
  kv.v_scale = arrays[first + 3];
  return kv;
}

PagedKv make_paged_kv(int64_t num_blocks, int64_t block_size, int64_t kv_heads, int64_t head_dim,
                      mx::Dtype dtype, KvStorage storage, int64_t value_dim, Device* device) {
  const auto make = [&](int64_t dim) {
    return make_rows({num_blocks, block_size, kv_heads, dim}, dtype, storage, device);
  };
  const Rows keys = make(head_dim), values = make(value_dim == 0 ? head_dim : value_dim);
  return {.k = keys.rows, .v = values.rows, .k_scale = keys.scales, .v_scale = values.scales};
}

PagedKv narrow_kv(const PagedKv& pool, int64_t kv_heads, int64_t head_dim) {
  const int64_t width = int64_t{pool.k.shape(2)} * pool.k.shape(3), narrow = kv_heads * head_dim;
  if (pool.values_in_keys > 0 || pool.v.shape() != pool.k.shape() || narrow < 1 ||
      width % narrow != 0)
    throw std::invalid_argument("narrow_kv: no " + std::to_string(kv_heads) + " heads of " +
                                std::to_string(head_dim) + " in a pool of other rows");
  const int64_t blocks = pool.k.shape(0) * (width / narrow);
  if (blocks > std::numeric_limits<mx::ShapeElem>::max())
    throw std::invalid_argument("narrow_kv: cannot have " + std::to_string(blocks) + " blocks");
  const mx::Shape shape = {static_cast<int>(blocks), pool.k.shape(1), static_cast<int>(kv_heads),
                           static_cast<int>(head_dim)};
  PagedKv view = {.k = mx::reshape(pool.k, shape), .v = mx::reshape(pool.v, shape)};
  mx::eval(view.k, view.v);
  if (!pool.k_scale) return view;
  const auto scales = [&] { return make_lazy_array({shape[0], shape[1], shape[2]}, mx::float32); };
  view.k_scale = scales();
  view.v_scale = scales();
  return view;
}

PagedKv latent_kv(mx::array rows, std::optional<mx::array> scale, int64_t value_dim) {
  return {.k = rows, .v = rows, .k_scale = scale, .v_scale = scale, .values_in_keys = value_dim};
}

PagedKv make_latent_kv(int64_t num_blocks, int64_t block_size, int64_t dim, int64_t value_dim,
                       mx::Dtype dtype, KvStorage storage, Device* device) {
  if (value_dim < 1 || value_dim > dim)
    throw std::invalid_argument("make_latent_kv: no " + std::to_string(value_dim) +
                                " elements of a row of " + std::to_string(dim));
  Rows keys = make_rows({num_blocks, block_size, 1, dim}, dtype, storage, device);
  return latent_kv(std::move(keys.rows), std::move(keys.scales), value_dim);
}

int64_t latent_kv_token_bytes(int64_t dim, mx::Dtype dtype, KvStorage storage) {
  if (storage != KvStorage::kAuto) return dim + static_cast<int64_t>(sizeof(float));
  return dim * static_cast<int64_t>(mx::size_of(dtype));
}

int64_t kv_scale_bytes(int64_t kv_heads, KvStorage storage) {
  return storage == KvStorage::kAuto ? 0 : 2 * kv_heads * static_cast<int64_t>(sizeof(float));
}

int64_t paged_kv_token_bytes(int64_t kv_heads, int64_t head_dim, mx::Dtype dtype,
                             KvStorage storage) {
  return 2 * kv_heads * latent_kv_token_bytes(head_dim, dtype, storage);
}

KvType check_paged_kv(std::string_view op, const PagedKv& kv, int64_t block_size) {
  const bool codes = kv.k.dtype() == mx::int8 || kv.k.dtype() == mx::uint8;
  const KvType type = codes ? (kv.k.dtype() == mx::int8 ? KvType::kInt8 : KvType::kFp8)
                            : kv_type_of(check_float(op, "kv.k", kv.k.dtype()));
  check_dtype(op, "kv.v", kv.v, kv.k.dtype());
  check_shape(op, "kv.k", kv.k, {-1, block_size, -1, -1});
  check_shape(op, "kv.v", kv.v, {kv.k.shape(0), block_size, kv.k.shape(2), -1});
  if (kv.values_in_keys < 0 || kv.values_in_keys > kv.k.shape(3))
    throw std::invalid_argument(std::string(op) + ": kv has values of " +
                                std::to_string(kv.values_in_keys) + " elements in keys of " +
                                std::to_string(kv.k.shape(3)));
  if (codes != kv.k_scale.has_value() || codes != kv.v_scale.has_value())
    throw std::invalid_argument(std::string(op) +
                                ": kv.k_scale and kv.v_scale belong to pools of codes");
  const std::pair<const char*, const std::optional<mx::array>&> scales[] = {
      {"kv.k_scale", kv.k_scale}, {"kv.v_scale", kv.v_scale}};
  for (const auto& [name, scale] : scales) {
    if (!scale) continue;
    check_dtype(op, name, *scale, mx::float32);
    check_shape(op, name, *scale, {kv.k.shape(0), block_size, kv.k.shape(2)});
  }
  return type;
}

KvType check_kv_with_values(std::string_view op, const PagedKv& kv, int64_t block_size) {
  if (kv.values_in_keys > 0)
    throw std::invalid_argument(std::string(op) + ": kv has values in keys, expected rows of them");
  return check_paged_kv(op, kv, block_size);
}

void check_slots(std::string_view op, const PagedKv& kv, const BatchLayout& layout) {
  const auto refuse = [&](const std::string& what) {
    throw std::invalid_argument(std::string(op) + ": layout has " + what);
  };
  if (static_cast<int64_t>(layout.slot_mapping.size()) != layout.num_tokens)
    refuse(std::to_string(layout.slot_mapping.size()) + " slots, expected " +
           std::to_string(layout.num_tokens));
  const int64_t slots = int64_t{kv.k.shape(0)} * kv.k.shape(1);
  for (const int64_t slot : layout.slot_mapping)
    if (slot >= slots)
      refuse("slot " + std::to_string(slot) + ", but the pool ends at " + std::to_string(slots));
}

}  // namespace quire::ops
