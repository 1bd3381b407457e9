#include "ops/embedding/embedding.h"

#include "ops/runtime/test_util.h"

namespace quire::ops {
namespace {

using namespace quire::ops::testing;

const std::vector<int32_t> kIds = {0, 36, 15, 16, 17, 0, 31, 32};

mx::array ids_array(size_t count) {
  return mx::array(kIds.data(), {static_cast<int>(count)}, mx::int32);
}

RowMatrix rows_at(const void* data, const mx::array& like) {
  return {.data = data, .n = like.shape(0), .k = like.shape(1), .dtype = like.dtype()};
}

TEST(Embedding, ReadsRowsOfAPackedTable) {
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const mx::Dtype dtype : float_dtypes()) {
      for (const int width : {1, 2, 31, 64, 1001}) {
        SCOPED_TRACE(isa + " " + dtype_name(dtype) + " width " + std::to_string(width));
        Context context = make_context(2);
        const mx::array rows = random_array({37, width}, dtype, 1);
        const RowMatrix source = rows_at(rows.data<void>(), rows);
        const PackedMatrix table = pack_matrix(context, {&source, 1}, dtype);
        for (const size_t count : {size_t{0}, size_t{1}, kIds.size()}) {
          const mx::array y = embedding(context, ids_array(count), table);
          EXPECT_TRUE(same_bits(y, mx::take(rows, ids_array(count), 0)));
        }
        EXPECT_TRUE(kernel_ran(context, "embedding", 3));
        if (on_cuda()) continue;  // the reference reads the CPU's layout
        context.use_reference = true;
        EXPECT_TRUE(
            same_bits(embedding(context, ids_array(8), table), mx::take(rows, ids_array(8), 0)));
      }
    }
  }
}

TEST(Embedding, ConvertsRowsOfAStoredTable) {
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const mx::Dtype from : float_dtypes()) {
      for (const mx::Dtype to : float_dtypes()) {
        SCOPED_TRACE(isa + " " + dtype_name(from) + " to " + dtype_name(to));
        Context context = make_context(2);
        const mx::array rows = random_array({37, 333}, from, 1);
        const auto bytes = to_bytes(rows);
        // At an odd address; only the graph keeps it alive.
        auto file = std::make_shared<std::vector<uint8_t>>(bytes.size() + 1);
        std::copy(bytes.begin(), bytes.end(), file->begin() + 1);
        const RowMatrix table = rows_at(file->data() + 1, rows);
        const mx::array expected = mx::astype(mx::take(rows, ids_array(8), 0), to);
        context.use_reference = true;
        EXPECT_TRUE(same_bits(embedding(context, ids_array(8), table, to, file), expected));
        context.use_reference = false;
        const mx::array y = embedding(context, ids_array(8), table, to, std::move(file));
        EXPECT_TRUE(same_bits(y, expected));
        EXPECT_TRUE(kernel_ran(context, "embedding", 1));
      }
    }
  }
}

TEST(Embedding, RefusesWhatDoesNotFit) {
  const Context context = make_context(1);
  const mx::array rows = random_array({4, 8}, mx::float32, 1);
  const RowMatrix table = rows_at(rows.data<void>(), rows);
  const PackedMatrix packed = pack_matrix(context, {&table, 1}, mx::float32);
  EXPECT_THROW(embedding(context, mx::zeros({2}), packed), std::invalid_argument);
  EXPECT_THROW(embedding(context, mx::zeros({2, 1}, mx::int32), packed), std::invalid_argument);
  EXPECT_THROW(embedding(context, mx::zeros({2}, mx::int32), table, mx::int32, nullptr),
               std::invalid_argument);
}

}  // namespace
}  // namespace quire::ops
