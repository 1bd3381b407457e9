#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <stdexcept>

#include "ops/linear/linear.h"
#include "ops/linear/linear_reference.h"
#include "ops/linear/pack/pack_slices.h"
#include "ops/linear/quantised_layout.h"
#include "ops/runtime/test_util.h"

namespace quire::ops {
namespace {

using namespace quire::ops::testing;

RowMatrix rows_at(const void* data, const mx::array& like) {
  return {.data = data, .n = like.shape(0), .k = like.shape(1), .dtype = like.dtype()};
}

TEST(PackMatrix, StacksConvertsAndReadsUnalignedRows) {
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const mx::Dtype from : float_dtypes()) {
      for (const mx::Dtype to : float_dtypes()) {
        SCOPED_TRACE(isa + " " + dtype_name(from) + " to " + dtype_name(to));
        const Context context = make_context(3);
        const mx::array a = random_array({21, 77}, from, 1), b = random_array({40, 77}, from, 2);
        const auto bytes = to_bytes(b);
        std::vector<uint8_t> shifted(bytes.size() + 1);  // at an odd address
        std::copy(bytes.begin(), bytes.end(), shifted.begin() + 1);
        const RowMatrix parts[] = {rows_at(a.data<void>(), a), rows_at(shifted.data() + 1, b)};
        const PackedMatrix packed = pack_matrix(context, parts, to);
        EXPECT_EQ(packed.n, 61);
        EXPECT_EQ(packed.k, 77);
        EXPECT_TRUE(same_bits(unpack_matrix(packed), mx::astype(mx::concatenate({a, b}, 0), to)));
      }
    }
  }
}

TEST(PackMatrix, InterleavesHalves) {
  const Context context = make_context(2);
  for (const int half : {1, 16, 21, 48}) {
    const mx::array gate = random_array({half, 40}, mx::bfloat16, 1);
    const mx::array up = random_array({half, 40}, mx::bfloat16, 2);
    const RowMatrix parts[] = {rows_at(gate.data<void>(), gate), rows_at(up.data<void>(), up)};
    const PackedMatrix packed = pack_matrix(context, parts, mx::bfloat16, /*interleave=*/true);
    EXPECT_EQ(packed.nbytes(), (half + 15u) / 16 * 2 * 64 * 16 * 2);
    EXPECT_TRUE(same_bits(unpack_matrix(packed), mx::concatenate({gate, up}, 0)));
    // Panel 1 begins with the first row of up.
    EXPECT_EQ(std::memcmp(packed.data.get() + 64 * 16 * 2, up.data<void>(), 4), 0);
  }
  const mx::array odd = random_array({3, 40}, mx::bfloat16, 1);
  const RowMatrix part = rows_at(odd.data<void>(), odd);
  EXPECT_THROW(pack_matrix(context, {&part, 1}, mx::bfloat16, true), std::invalid_argument);
}

TEST(PackMatrix, PaddingIsZeroAndMemoryAligned) {
  const Context context = make_context(2);
  const mx::array ones = mx::ones({17, 33}, mx::float32);
  mx::eval(ones);
  const RowMatrix part = rows_at(ones.data<void>(), ones);
  const PackedMatrix packed = pack_matrix(context, {&part, 1}, mx::float32);
  EXPECT_EQ(packed.nbytes(), 32u * 64 * 4);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(packed.data.get()) % 64, 0u);
  const auto* values = reinterpret_cast<const float*>(packed.data.get());
  float sum = 0;
  for (size_t i = 0; i < packed.nbytes() / 4; ++i) sum += values[i];
  EXPECT_EQ(sum, 17.0f * 33);
}

// Ties, overflow, denormals and NaN, against MLX's own conversion.
TEST(PackMatrix, RoundsToNearestEven) {
  const std::vector<float> values = {1.00390625f, 1.01171875f, 65519.0f, 65520.0f, 3.4e38f, 1e-40f,
                                     6e-8f,       2.9e-8f,     3.0e-8f,  -0.0f,    1e-5f,   -1e30f};
  const mx::array row(values.data(), {1, static_cast<int>(values.size())}, mx::float32);
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    const Context context = make_context(1);
    const RowMatrix part = rows_at(row.data<void>(), row);
    for (const mx::Dtype dtype : float_dtypes())
      EXPECT_TRUE(
          same_bits(unpack_matrix(pack_matrix(context, {&part, 1}, dtype)), mx::astype(row, dtype)))
          << isa << " " << dtype_name(dtype);
  }
}

TEST(PackMatrix, RefusesWhatDoesNotFit) {
  const Context context = make_context(1);
  const mx::array a = random_array({3, 4}, mx::float32, 1),
                  b = random_array({3, 5}, mx::float32, 1);
  const RowMatrix uneven[] = {rows_at(a.data<void>(), a), rows_at(b.data<void>(), b)};
  EXPECT_THROW(pack_matrix(context, uneven, mx::float32), std::invalid_argument);
  const RowMatrix integers = {.data = a.data<void>(), .n = 3, .k = 4, .dtype = mx::int32};
  EXPECT_THROW(pack_matrix(context, {&integers, 1}, mx::float32), std::invalid_argument);
  EXPECT_THROW(pack_matrix(context, {uneven, 1}, mx::int32), std::invalid_argument);
}

// Rows may come when they are needed and go when they have been read: only such rows are read, and
// in the end each row has come and gone once.
TEST(PackMatrix, OnlyRowsBetweenNeedsAndHasReadAreRead) {
  const std::vector<std::vector<int64_t>> stacks = {{200}, {33, 1, 90}, {70, 70}, {16, 54, 70}};
  for (const auto& rows : stacks) {
    for (const bool interleaved : {false, true}) {
      PackJob job = {.interleaved = interleaved};
      QuantisedLayout layout = {.k = 128, .bits = 8, .group_size = 32, .interleaved = interleaved};
      std::vector<int64_t> first;  // stack row of each part
      for (const int64_t count : rows) {
        job.parts.push_back({.rows = count, .row_bytes = int64_t{1} << 20});
        first.push_back(layout.n);
        layout.n += count;
      }
      ThreadPool pool(1);
      enum State { kAbsent, kPresent, kGone };
      std::vector<State> states(static_cast<size_t>(layout.n), kAbsent);
      int most = 0;  // rows that are present at once
      const auto move = [&](State from, State to) {
        return [&, from, to](size_t part, int64_t begin, int64_t count) {
          for (int64_t row = begin; row < begin + count; ++row) {
            EXPECT_EQ(states.at(static_cast<size_t>(first[part] + row)), from);
            states.at(static_cast<size_t>(first[part] + row)) = to;
          }
          most = std::max(most, static_cast<int>(std::ranges::count(states, kPresent)));
        };
      };
      const PackProgress progress = {.needs = move(kAbsent, kPresent),
                                     .has_read = move(kPresent, kGone)};
      pack_pairs(pool, job, progress, [&](int64_t begin, int64_t end, const SourceRows& there) {
        EXPECT_TRUE(end == begin + 2 || (end == begin + 1 && end == layout.panels()));
        for (int64_t r = begin * 16; r < end * 16; ++r) {
          const int64_t row = layout.source_row(r);
          if (row < 0) continue;
          EXPECT_EQ(states.at(static_cast<size_t>(row)), kPresent) << row;
          const SourceRows::Row found = there.find(row);
          EXPECT_EQ(first.at(found.part) + found.row, row);
        }
      });
      EXPECT_EQ(std::ranges::count(states, kGone), layout.n);
      EXPECT_LE(most, 32);  // 16 MiB of rows of 1 MiB, in whole pairs of panels
    }
  }
}

// Rows that are fetched are each fetched once, in pieces of whole pairs, and lie where fetching
// said.
TEST(PackMatrix, EachRowIsFetchedOnce) {
  const std::vector<std::vector<int64_t>> stacks = {
      {2000}, {33, 1, 990}, {700, 700}, {16, 540, 700}};
  constexpr int64_t kRow = 512;
  for (const auto& rows : stacks) {
    for (const bool interleaved : {false, true}) {
      for (const int threads : {1, 3}) {
        PackJob job = {.interleaved = interleaved};
        for (const int64_t count : rows) job.parts.push_back({.rows = count, .row_bytes = kRow});
        const QuantisedLayout layout = {
            .n = job.total_rows(), .k = 128, .interleaved = interleaved};
        ThreadPool pool(threads);
        std::mutex mutex;
        std::map<std::pair<size_t, int64_t>, int> fetched, packed;
        std::atomic<int> alive = 0, calls = 0;
        const auto fetch = [&](size_t part, int64_t begin, int64_t count) {
          ++calls;
          ++alive;
          const std::shared_ptr<int64_t[]> piece(new int64_t[static_cast<size_t>(count * kRow / 8)],
                                                 [&](const int64_t* p) {
                                                   --alive;
                                                   delete[] p;
                                                 });
          const std::lock_guard lock(mutex);
          for (int64_t i = 0; i < count; ++i) {
            piece[i * kRow / 8] = begin + i;
            ++fetched[{part, begin + i}];
          }
          return std::shared_ptr<const void>(piece, piece.get());
        };
        pack_pairs(pool, job, {.fetch = fetch},
                   [&](int64_t begin, int64_t end, const SourceRows& there) {
                     for (int64_t r = begin * 16; r < end * 16; ++r) {
                       const int64_t row = layout.source_row(r);
                       if (row < 0) continue;
                       const SourceRows::Row found = there.find(row);
                       int64_t said = 0;
                       std::memcpy(&said, found.data, sizeof(said));
                       const std::lock_guard lock(mutex);
                       EXPECT_EQ(said, found.row);
                       ++packed[{found.part, found.row}];
                     }
                   });
        EXPECT_EQ(std::ssize(fetched), layout.n);
        EXPECT_EQ(fetched, packed);
        EXPECT_TRUE(std::ranges::all_of(fetched, [](const auto& row) { return row.second == 1; }));
        EXPECT_EQ(alive, 0);
        EXPECT_GE(calls, 4);
      }
    }
  }
}

TEST(PackMatrix, ThrowsWhatFetchingThrows) {
  const PackJob job = {.parts = {{.rows = 4096, .row_bytes = 512}}};
  const auto fetch = [](size_t, int64_t begin, int64_t count) -> std::shared_ptr<const void> {
    if (begin + count > 2000) throw std::runtime_error("the file is cut");
    return std::make_shared<std::vector<std::byte>>();
  };
  ThreadPool pool(3);
  try {
    pack_pairs(pool, job, {.fetch = fetch}, [](int64_t, int64_t, const SourceRows&) {});
    ADD_FAILURE() << "nothing was thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "the file is cut");
  }
}

// A large matrix whose rows appear when they are needed and vanish when they have been read.
TEST(PackMatrix, RowsAreReadOnlyWhileTheyAreThere) {
  const Context context = make_context(2);
  const mx::array original = random_array({700, 16384}, mx::float32, 1);
  const auto source = to_bytes(original);  // 44 MB
  std::vector<uint8_t> bytes(source.size(), 0xff);
  const RowMatrix part = rows_at(bytes.data(), original);
  constexpr int64_t kRow = 16384 * 4;
  int reports = 0;
  const auto appear = [&](size_t, int64_t begin, int64_t count) {
    std::copy_n(source.begin() + begin * kRow, count * kRow, bytes.begin() + begin * kRow);
  };
  const auto vanish = [&](size_t, int64_t begin, int64_t count) {
    std::fill_n(bytes.begin() + begin * kRow, count * kRow, 0xff);
    ++reports;
  };
  const PackedMatrix packed =
      pack_matrix(context, {&part, 1}, mx::bfloat16, false, {.needs = appear, .has_read = vanish});
  EXPECT_GE(reports, 2);
  EXPECT_TRUE(same_bits(unpack_matrix(packed), mx::astype(original, mx::bfloat16)));
}

}  // namespace
}  // namespace quire::ops
