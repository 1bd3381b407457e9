#include "ops/kv_write/kv_write.h"

#include <unistd.h>

#include <fstream>
#include <functional>

#include "ops/runtime/test_util.h"

namespace quire::ops {
namespace {

using namespace quire::ops::testing;

BatchLayoutPtr layout_of(std::vector<int64_t> slots, int64_t block_size) {
  auto layout = std::make_shared<BatchLayout>();
  layout->num_tokens = static_cast<int64_t>(slots.size());
  layout->block_size = block_size;
  layout->slot_mapping = std::move(slots);
  return layout;
}

// The pool is not initialised; tests start from a known one.
PagedKv filled_pool(int blocks, int block_size, int heads, int dim, int value_dim,
                    mx::Dtype dtype) {
  return {random_array({blocks, block_size, heads, dim}, dtype, 1),
          random_array({blocks, block_size, heads, value_dim}, dtype, 2)};
}

// The bytes that a pool must have after the write: the old ones, but for the rows of its slots.
std::vector<uint8_t> written(const mx::array& pool, const mx::array& rows,
                             const std::vector<int64_t>& slots) {
  std::vector<uint8_t> expected = to_bytes(pool);
  const std::vector<uint8_t> source = to_bytes(rows);
  const size_t row = source.size() / slots.size();
  for (size_t t = 0; t < slots.size(); ++t)
    if (slots[t] >= 0) std::memcpy(&expected[slots[t] * row], &source[t * row], row);
  return expected;
}

TEST(KvWrite, WritesTheRowsOfItsSlotsAndNothingElse) {
  for (const mx::Dtype dtype : float_dtypes()) {
    for (const auto& slots : {std::vector<int64_t>{3, 20, 7, 40, 1}, std::vector<int64_t>{5, -1, 9},
                              std::vector<int64_t>{-1}, std::vector<int64_t>{47}}) {
      const PagedKv pool = filled_pool(6, 8, 2, 24, 16, dtype);
      const int tokens = static_cast<int>(slots.size());
      const mx::array k = random_array({tokens, 2, 24}, dtype, 3);
      const mx::array v = random_array({tokens, 2, 16}, dtype, 4);
      const auto expected_k = written(pool.k, k, slots), expected_v = written(pool.v, v, slots);
      const Context context = make_context(2);
      const PagedKv after = kv_write(context, k, v, pool, layout_of(slots, 8));
      EXPECT_TRUE(to_bytes(after.k) == expected_k) << dtype_name(dtype);
      EXPECT_TRUE(to_bytes(after.v) == expected_v) << dtype_name(dtype);
      EXPECT_EQ(context.kernels->count("kv_write", context.device->name()), 1);
    }
  }
}

TEST(KvWrite, ManyTokensOnManyThreads) {
  std::vector<int64_t> slots(1000);
  for (int t = 0; t < 1000; ++t) slots[t] = (t * 377 + 5) % 1024;  // distinct: 377 is odd
  const PagedKv pool = filled_pool(128, 8, 4, 32, 32, mx::bfloat16);
  const mx::array k = random_array({1000, 4, 32}, mx::bfloat16, 3);
  const mx::array v = random_array({1000, 4, 32}, mx::bfloat16, 4);
  const auto expected_k = written(pool.k, k, slots), expected_v = written(pool.v, v, slots);
  const PagedKv after = kv_write(make_context(3), k, v, pool, layout_of(slots, 8));
  EXPECT_TRUE(to_bytes(after.k) == expected_k);
  EXPECT_TRUE(to_bytes(after.v) == expected_v);
}

TEST(KvWrite, AStepWithoutTokensIsFine) {
  const PagedKv pool = filled_pool(2, 4, 1, 8, 8, mx::float32);
  const auto before = to_bytes(pool.k);
  const PagedKv after =
      kv_write(make_context(2), mx::zeros({0, 1, 8}), mx::zeros({0, 1, 8}), pool, layout_of({}, 4));
  EXPECT_TRUE(to_bytes(after.k) == before);
}

// Sanitizers keep shadows of memory resident, and memory that was freed. clang, which builds the
// emulator of Metal, has another name for them than g++.
#ifndef __has_feature
#define __has_feature(name) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || \
    __has_feature(address_sanitizer)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

size_t resident_bytes() {
  size_t pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

// What a model's step does: write, then read through the new handles.
struct StepResult {
  PagedKv kv;
  mx::array read;
};
using WriteFunction = std::function<PagedKv(const PagedKv&, int step)>;

StepResult step_of(const WriteFunction& write, const PagedKv& kv, int step) {
  const PagedKv after = write(kv, step);
  const mx::array read = mx::sum(mx::slice(after.k, {0, 0, 0, 0}, {4, 16, 2, 64})) +
                         mx::sum(mx::slice(after.v, {0, 0, 0, 0}, {4, 16, 2, 64}));
  mx::async_eval({read, after.k, after.v});
  return {after, read};
}

// Runs `steps`, each launched before the one before it has been read; says whether the pool stayed
// where it was and how much memory MLX held beyond it at the worst moment.
struct Overlap {
  bool same_address = true;
  size_t extra_bytes = 0;
};
Overlap run_overlapped(const WriteFunction& write, PagedKv kv, int steps) {
  mx::eval(kv.k, kv.v);
  const void* k = kv.k.data<char>();
  const void* v = kv.v.data<char>();
  mx::reset_peak_memory();
  const size_t before = mx::get_active_memory();
  StepResult current = step_of(write, kv, 0);
  kv = current.kv;
  Overlap result;
  for (int i = 1; i < steps; ++i) {
    StepResult next = step_of(write, kv, i);
    current.read.item<float>();
    kv = next.kv;
    current = std::move(next);
  }
  mx::eval(kv.k, kv.v, current.read);
  result.same_address = kv.k.data<char>() == k && kv.v.data<char>() == v;
  result.extra_bytes = mx::get_peak_memory() - before;
  return result;
}

constexpr int kPoolBlocks = 1024;  // 1024 x 16 x 2 x 64 float32: 8 MB for keys, 8 for values

TEST(KvWrite, ThePoolStaysInPlaceOverOverlappedSteps) {
  const Context context = make_context(2);
  const mx::array row = random_array({1, 2, 64}, mx::float32, 5);
  const WriteFunction in_place = [&](const PagedKv& kv, int step) {
    return kv_write(context, row, row, kv, layout_of({step}, 16));
  };
  PagedKv pool = filled_pool(kPoolBlocks, 16, 2, 64, 64, mx::float32);
  run_overlapped(in_place, pool, 10);  // warms up allocators
  const size_t before = resident_bytes();
  const Overlap overlap = run_overlapped(in_place, pool, 100);
  EXPECT_TRUE(overlap.same_address);
  EXPECT_LT(overlap.extra_bytes, size_t{1} << 20);
  EXPECT_TRUE(kSanitized || resident_bytes() < before + (size_t{4} << 20));
  EXPECT_EQ(context.kernels->count("kv_write", context.device->name()), 110);
  // All of them were written.
  const auto slot = [&](int i) {
    return mx::reshape(mx::slice(mx::reshape(pool.k, {-1, 2, 64}), {i, 0, 0}, {i + 1, 2, 64}),
                       {1, 2, 64});
  };
  for (const int i : {0, 50, 99}) EXPECT_TRUE(same_bits(slot(i), row)) << i;
}

// That the test above can fail: MLX's functional update copies the pool when steps overlap.
TEST(KvWrite, AFunctionalUpdateWouldHaveBeenCaught) {
  const mx::array row = random_array({1, 1, 2, 64}, mx::float32, 5);
  const WriteFunction functional = [&](const PagedKv& kv, int step) {
    const mx::Shape start = {step / 16, step % 16, 0, 0},
                    stop = {step / 16 + 1, step % 16 + 1, 2, 64};
    return PagedKv{mx::slice_update(kv.k, row, start, stop),
                   mx::slice_update(kv.v, row, start, stop)};
  };
  const Overlap overlap =
      run_overlapped(functional, filled_pool(kPoolBlocks, 16, 2, 64, 64, mx::float32), 10);
  EXPECT_FALSE(overlap.same_address && overlap.extra_bytes < size_t{1} << 20);
}

// A pool of more elements than 32 bits count, of which only the touched pages cost memory.
TEST(KvWrite, PoolsMayHaveMoreThan32BitsOfElementsAndAreCommittedLazily) {
  const int blocks = 66000, block_size = 16, heads = 16, dim = 128;
  const size_t before = resident_bytes();
  const PagedKv pool = make_paged_kv(blocks, block_size, heads, dim, mx::bfloat16);
  ASSERT_EQ(pool.k.shape(), (mx::Shape{blocks, block_size, heads, dim}));
  ASSERT_GT(pool.k.size(), size_t{1} << 31);
  const int64_t last = int64_t{blocks} * block_size - 1;
  const mx::array k = random_array({1, heads, dim}, mx::bfloat16, 6);
  const mx::array v = random_array({1, heads, dim}, mx::bfloat16, 7);
  const PagedKv after = kv_write(make_context(1), k, v, pool, layout_of({last}, block_size));
  mx::eval(after.k, after.v);
  const size_t row = k.nbytes();
  EXPECT_EQ(std::memcmp(after.k.data<char>() + last * row, k.data<char>(), row), 0);
  EXPECT_EQ(std::memcmp(after.v.data<char>() + last * row, v.data<char>(), row), 0);
  EXPECT_TRUE(kSanitized || resident_bytes() < before + (size_t{16} << 20));
}

// ---- quantised pools ----

constexpr KvStorage kStorages[] = {KvStorage::kInt8, KvStorage::kFp8};

PagedKv coded_pool(int blocks, int block_size, int heads, int dim, int value_dim,
                   KvStorage storage) {
  PagedKv kv = make_paged_kv(blocks, block_size, heads, dim, mx::bfloat16, storage, value_dim);
  for (const mx::array& array : kv.arrays())
    std::memset(const_cast<char*>(array.data<char>()), 0x55, array.nbytes());
  return kv;
}

// The scale and the codes of one row by their definition; FP8 codes by search.
uint8_t code_of(float x, KvStorage storage) {
  if (storage == KvStorage::kInt8) return static_cast<uint8_t>(static_cast<int>(std::nearbyint(x)));
  uint8_t best = 0;
  for (uint8_t code = 0; code < 0x7F; ++code) {
    const float distance = std::abs(std::abs(x) - to_float(F8{code}));
    const float least = std::abs(std::abs(x) - to_float(F8{best}));
    if (distance < least || (distance == least && code % 2 == 0)) best = code;
  }
  return static_cast<uint8_t>(best | (std::signbit(x) ? 0x80 : 0));
}

void expect_coded(const mx::array& codes, const mx::array& scales, const mx::array& rows,
                  const std::vector<int64_t>& slots, KvStorage storage) {
  const auto x = to_floats(rows), scale = to_floats(scales);
  const auto bytes = to_bytes(codes);
  const int heads = rows.shape(1), dim = rows.shape(2);
  const float limit = storage == KvStorage::kInt8 ? 127.0f : 448.0f;
  std::vector<bool> written(scale.size());
  for (size_t t = 0; t < slots.size(); ++t) {
    for (int h = 0; h < heads && slots[t] >= 0; ++h) {
      const float* row = &x[(t * heads + h) * dim];
      const int64_t at = slots[t] * heads + h;
      written[at] = true;
      float absmax = 0;
      bool finite = true;
      for (int d = 0; d < dim; ++d) {
        absmax = std::max(absmax, std::abs(row[d]));
        finite = finite && std::isfinite(row[d]);
      }
      if (finite) {
        ASSERT_EQ(scale[at], absmax / limit);
      } else {
        ASSERT_TRUE(std::isnan(scale[at]));
      }
      for (int d = 0; d < dim; ++d)
        ASSERT_EQ(bytes[at * dim + d],
                  finite && absmax > 0 ? code_of(row[d] * (limit / absmax), storage) : 0)
            << row[d] << " of " << absmax;
    }
  }
  for (size_t i = 0; i < written.size() * dim; ++i) {
    ASSERT_TRUE(written[i / dim] || bytes[i] == 0x55) << i;
  }
}

TEST(KvWrite, QuantisesEachRowByItsLargestElement) {
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const KvStorage storage : kStorages) {
      for (const mx::Dtype dtype : float_dtypes()) {
        const std::vector<int64_t> slots = {3, 20, -1, 40, 1, 47};
        const PagedKv pool = coded_pool(6, 8, 2, 24, 72, storage);
        mx::array k = random_array({6, 2, 24}, dtype, 3), v = random_array({6, 2, 72}, dtype, 4);
        // Rows of zeros, of tiny elements beside a large one, and with an infinity.
        auto values = to_floats(v);
        std::fill_n(values.begin(), 72, 0.0f);
        for (int d = 0; d < 72; ++d)
          values[72 + d] = d == 7 ? -3.0f : 0.001f * static_cast<float>(d);
        values[5 * 144 + 3] = std::numeric_limits<float>::infinity();
        values[5 * 144 + 75] = NAN;
        v = mx::astype(mx::array(values.begin(), v.shape()), dtype);
        const Context context = make_context(2);
        const PagedKv after = kv_write(context, k, v, pool, layout_of(slots, 8));
        expect_coded(after.k, *after.k_scale, k, slots, storage);
        expect_coded(after.v, *after.v_scale, v, slots, storage);
        EXPECT_EQ(context.kernels->count("kv_write", context.device->kernel_name()), 1);
        EXPECT_EQ(after.k.data<char>(), pool.k.data<char>());
        EXPECT_EQ(after.v_scale->data<float>(), pool.v_scale->data<float>());
      }
    }
  }
}

TEST(KvWrite, CodesStandForWhatTheReferenceSays) {
  for (int code = 0; code < 256; ++code) {
    const int exponent = code >> 3 & 15, mantissa = code & 7;
    float expected = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                   : std::ldexp(8.0f + mantissa, exponent - 10);
    if ((code & 0x7F) == 0x7F) expected = NAN;
    const float value = to_float(F8{static_cast<uint8_t>(code)});
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(value));
    } else {
      EXPECT_EQ(value, (code & 0x80) != 0 ? -expected : expected) << code;
    }
  }
}

TEST(KvWrite, RefusesSlotsBeyondThePool) {
  const PagedKv pool = filled_pool(6, 8, 2, 24, 16, mx::float32);
  const mx::array k = mx::zeros({2, 2, 24}), v = mx::zeros({2, 2, 16});
  for (const int64_t slot : {int64_t{48}, int64_t{1} << 40, std::numeric_limits<int64_t>::max()}) {
    EXPECT_THROW(kv_write(make_context(1), k, v, pool, layout_of({0, slot}, 8)),
                 std::invalid_argument);
  }
  auto layout = std::make_shared<BatchLayout>(*layout_of({0}, 8));
  layout->num_tokens = 2;
  EXPECT_THROW(kv_write(make_context(1), k, v, pool, layout), std::invalid_argument);
}

// Rows of values would be written over the keys.
TEST(KvWrite, RefusesAPoolOfLatentRows) {
  const mx::array k = mx::zeros({2, 1, 24});
  for (const auto storage : {KvStorage::kAuto, KvStorage::kInt8})
    EXPECT_THROW(kv_write(make_context(1), k, k, make_latent_kv(6, 8, 24, 16, mx::float32, storage),
                          layout_of({0, 1}, 8)),
                 std::invalid_argument);
}

TEST(KvCache, RefusesWhatCannotBe) {
  EXPECT_THROW(make_paged_kv(0, 16, 2, 64, mx::float32), std::invalid_argument);
  EXPECT_THROW(make_paged_kv(int64_t{1} << 31, 16, 2, 64, mx::float32), std::invalid_argument);
  EXPECT_THROW(make_paged_kv(4, 16, 2, 64, mx::int32), std::invalid_argument);
  const int64_t huge = (int64_t{1} << 31) - 1;
  EXPECT_THROW(make_paged_kv(huge, huge, huge, huge, mx::float32), std::invalid_argument);
}

void expect_refused(const std::string& what, const mx::array& k, const mx::array& v,
                    const PagedKv& kv, const BatchLayoutPtr& layout) {
  try {
    kv_write(make_context(1), k, v, kv, layout);
    ADD_FAILURE() << "accepted: " << what;
  } catch (const std::invalid_argument& error) {
    EXPECT_NE(std::string(error.what()).find("kv_write: " + what), std::string::npos)
        << error.what();
  }
}

TEST(KvWrite, NamesTheArgumentThatDoesNotFit) {
  const PagedKv pool = filled_pool(4, 8, 2, 16, 24, mx::float32);
  const mx::array k = mx::zeros({2, 2, 16}), v = mx::zeros({2, 2, 24});
  const auto layout = layout_of({0, 1}, 8);
  expect_refused("k has shape", mx::zeros({3, 2, 16}), v, pool, layout);
  expect_refused("v has shape", k, mx::zeros({2, 2, 16}), pool, layout);
  expect_refused("k is", mx::zeros({2, 2, 16}, mx::float16), v, pool, layout);
  expect_refused("v is", k, mx::zeros({2, 2, 24}, mx::bfloat16), pool, layout);
  expect_refused("kv.k has shape", k, v, pool, layout_of({0, 1}, 16));
  expect_refused("kv.v has shape", k, v, {pool.k, mx::zeros({4, 8, 3, 24})}, layout);
  expect_refused("kv.v is", k, v, {pool.k, mx::astype(pool.v, mx::float16)}, layout);
  PagedKv codes = coded_pool(4, 8, 2, 16, 24, KvStorage::kInt8);
  expect_refused("kv.v is", k, v, {codes.k, pool.v}, layout);
  expect_refused("kv.k_scale", k, v, {codes.k, codes.v}, layout);
  codes.v_scale = mx::zeros({4, 8, 3});
  expect_refused("kv.v_scale has shape", k, v, codes, layout);
}

}  // namespace
}  // namespace quire::ops
