#include "ops/latent_kv_write/latent_kv_write.h"

#include "ops/kv_write/kv_write.h"
#include "ops/layout/kv_test_util.h"
#include "ops/rms_norm/rms_norm.h"
#include "ops/runtime/test_util.h"

namespace quire::ops {
namespace {

using namespace quire::ops::testing;

constexpr int kBlockSize = 8, kMaxPositions = 500;

BatchLayoutPtr layout_of(int tokens) { return scattered_layout(tokens, kBlockSize, kMaxPositions); }

std::shared_ptr<const RopeTable> table_of(int rotary) {
  return make_rope_table({.rotary_dim = rotary}, kMaxPositions);
}

PagedKv pool(int latent, int rotary, mx::Dtype dtype, KvStorage storage) {
  return filled(make_latent_kv(64, kBlockSize, latent + rotary, latent, dtype, storage));
}

// The separate ops on the same input; only the keys of the pools that they write are looked at.
PagedKv separate(const Context& context, const mx::array& x, const mx::array& weight, int latent,
                 const BatchLayoutPtr& layout, int rotary, mx::Dtype dtype, KvStorage storage) {
  const int tokens = x.shape(0);
  const mx::array c = mx::contiguous(mx::slice(x, {0, 0}, {tokens, latent}));
  const mx::array r = mx::contiguous(mx::slice(x, {0, latent}, {tokens, latent + rotary}));
  mx::eval(c, r);
  const mx::array normed = rms_norm(context, c, weight, 1e-6f);
  const mx::array turned =
      rope(context, mx::reshape(r, {tokens, 1, rotary}), layout, table_of(rotary));
  mx::eval(normed, turned);
  mx::array row = mx::contiguous(mx::reshape(
      mx::concatenate({normed, mx::reshape(turned, {tokens, rotary})}, 1), {tokens, 1, -1}));
  mx::eval(row);
  const PagedKv kv = filled(make_paged_kv(64, kBlockSize, 1, latent + rotary, dtype, storage));
  return kv_write(context, row, row, kv, layout);
}

TEST(LatentKvWrite, EqualsTheSeparateOps) {
  for (const auto& isa : isas_to_test()) {
    SCOPED_TRACE(isa);
    const ForcedIsa forced(isa);
    for (const mx::Dtype dtype : float_dtypes())
      for (const auto storage : {KvStorage::kAuto, KvStorage::kInt8, KvStorage::kFp8})
        for (const auto& [latent, rotary] : {std::pair{512, 64}, {24, 10}})
          for (const int tokens : {1, 40}) {
            const Context context = make_context(2);
            const auto layout = layout_of(tokens);
            const mx::array x = random_array({tokens, latent + rotary}, dtype, 5, 3.0f);
            const mx::array weight = random_array({latent}, mx::float32, 3);
            const PagedKv got = latent_kv_write(context, x, weight, 1e-6f, layout, table_of(rotary),
                                                pool(latent, rotary, dtype, storage));
            const PagedKv expected =
                separate(context, x, weight, latent, layout, rotary, dtype, storage);
            mx::eval(got.k, expected.k);
            EXPECT_TRUE(same_bits(got.k, expected.k));
            if (got.k_scale) {
              EXPECT_TRUE(same_bits(*got.k_scale, *expected.k_scale));
            }
            EXPECT_EQ(got.values_in_keys, latent);
            EXPECT_TRUE(kernel_ran(context, "latent_kv_write", 1));
          }
  }
}

TEST(LatentKvWrite, FurtherColumnsDoNotCount) {
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const mx::Dtype dtype : float_dtypes())
      for (const auto storage : {KvStorage::kAuto, KvStorage::kFp8}) {
        Context context = make_context(2);
        const auto layout = layout_of(40);
        const mx::array x = random_array({40, 40}, dtype, 5, 3.0f);
        const mx::array more = random_array({40, 21}, dtype, 6, 3.0f);
        const mx::array wide = mx::contiguous(mx::concatenate({x, more}, 1));
        mx::eval(wide);
        const mx::array weight = random_array({32}, mx::float32, 3);
        const auto written = [&](const mx::array& in) {
          return latent_kv_write(context, in, weight, 1e-6f, layout, table_of(8),
                                 pool(32, 8, dtype, storage));
        };
        const PagedKv expected = written(x);
        EXPECT_TRUE(same_bits(written(wide).k, expected.k)) << isa << " " << dtype_name(dtype);
        context.use_reference = true;
        EXPECT_TRUE(same_bits(written(wide).k, written(x).k));
      }
  }
}

TEST(LatentKvWrite, AgreesWithItsReference) {
  Context context = make_context(1);
  const auto layout = layout_of(40);
  const mx::array x = random_array({40, 34}, mx::float32, 5, 3.0f);
  const mx::array weight = random_array({24}, mx::float32, 3);
  for (const auto storage : {KvStorage::kAuto, KvStorage::kInt8}) {
    const auto write = [&] {
      return latent_kv_write(context, x, weight, 1e-6f, layout, table_of(10),
                             pool(24, 10, mx::float32, storage));
    };
    context.use_reference = false;
    const PagedKv kernel = write();
    context.use_reference = true;
    const PagedKv reference = write();
    EXPECT_EQ(reference.values_in_keys, 24);
    if (storage == KvStorage::kAuto) {
      EXPECT_TRUE(near(kernel.k, reference.k, {.abs = 1e-5f, .rel = 1e-5f}));
    } else {
      EXPECT_TRUE(near(*kernel.k_scale, *reference.k_scale, {.rel = 1e-5f}));
    }
  }
  EXPECT_EQ(context.kernels->count("latent_kv_write", "reference"), 2);
}

TEST(LatentKvWrite, NamesWhatDoesNotFit) {
  const Context context = make_context(1);
  const auto layout = layout_of(4);
  const mx::array x = random_array({4, 40}, mx::float32, 5),
                  weight = random_array({32}, mx::float32, 3);
  const PagedKv kv = pool(32, 8, mx::float32, KvStorage::kAuto);
  const auto write = [&](const mx::array& in, const mx::array& w, int rotary, const PagedKv& to) {
    return latent_kv_write(context, in, w, 1e-6f, layout, table_of(rotary), to);
  };
  EXPECT_THROW(write(x, weight, 16, kv), std::invalid_argument);
  EXPECT_THROW(write(random_array({4, 39}, mx::float32, 5), weight, 8, kv), std::invalid_argument);
  EXPECT_THROW(write(mx::astype(x, mx::bfloat16), weight, 8, kv), std::invalid_argument);
  EXPECT_THROW(write(x, random_array({40}, mx::float32, 3), 8, kv), std::invalid_argument);
  EXPECT_THROW(write(x, weight, 8, make_paged_kv(64, kBlockSize, 1, 40, mx::float32)),
               std::invalid_argument);
}

}  // namespace
}  // namespace quire::ops
