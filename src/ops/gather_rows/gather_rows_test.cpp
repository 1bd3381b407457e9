#include "ops/gather_rows/gather_rows.h"

#include "ops/runtime/test_util.h"

namespace quire::ops {
namespace {

using namespace quire::ops::testing;

BatchLayoutPtr layout_of(int64_t tokens, std::vector<int32_t> rows) {
  BatchLayout layout;
  layout.num_tokens = tokens;
  layout.rows = std::move(rows);
  return std::make_shared<const BatchLayout>(std::move(layout));
}

std::shared_ptr<const std::vector<int32_t>> shared(std::vector<int32_t> values) {
  return std::make_shared<const std::vector<int32_t>>(std::move(values));
}

TEST(GatherRows, CopiesTheRowsInOrder) {
  for (const mx::Dtype dtype : float_dtypes()) {
    for (const auto& rows : {std::vector<int32_t>{}, {0}, {3, 4, 40}, {40, 0, 0}}) {
      Context context = make_context(3);
      const mx::array x = random_array({41, 70000 / 41}, dtype, 1);
      const mx::array y = gather_rows(context, x, layout_of(41, rows));
      EXPECT_EQ(y.shape(0), static_cast<int>(rows.size()));
      context.use_reference = true;
      EXPECT_TRUE(same_bits(y, gather_rows(context, x, layout_of(41, rows))));
      EXPECT_EQ(context.kernels->count("gather_rows", context.device->name()), 1);
    }
  }
}

// Only all rows in their order need no kernel.
TEST(GatherRows, AllRowsAreTheArrayItself) {
  Context context = make_context(1);
  const mx::array x = random_array({3, 8}, mx::float32, 1);
  EXPECT_EQ(gather_rows(context, x, layout_of(3, {0, 1, 2})).id(), x.id());
  EXPECT_EQ(context.kernels->count("gather_rows", context.device->name()), 0);
  for (const auto& rows : {std::vector<int32_t>{0, 1}, {0, 2, 1}, {0, 0, 2}, {0, 1, 1}}) {
    const mx::array y = gather_rows(context, x, layout_of(3, rows));
    for (size_t i = 0; i < rows.size(); ++i)
      EXPECT_TRUE(same_bits(mx::slice(y, {static_cast<int>(i), 0}, {static_cast<int>(i) + 1, 8}),
                            mx::slice(x, {rows[i], 0}, {rows[i] + 1, 8})));
  }
  EXPECT_EQ(context.kernels->count("gather_rows", context.device->name()), 4);
}

// Rows of more than one task, and of more than one block on a GPU, whose pieces need not be whole.
TEST(TakeRows, CopiesThemInTheirOrder) {
  for (const mx::Dtype dtype : float_dtypes()) {
    for (const int width : {1, 9, 8192, 70001}) {
      for (const auto& rows : {std::vector<int32_t>{}, {0}, {4, 1}, {2, 2, 0, 4, 2}}) {
        Context context = make_context(3);
        const mx::array x = random_array({5, width}, dtype, 1);
        const mx::array y = take_rows(context, x, shared(rows));
        EXPECT_EQ(y.shape(), (mx::Shape{static_cast<int>(rows.size()), width}));
        context.use_reference = true;
        EXPECT_TRUE(same_bits(y, take_rows(context, x, shared(rows))));
        EXPECT_EQ(context.kernels->count("take_rows", context.device->name()), 1);
      }
    }
  }
}

// The places get the rows; what lies between them stays.
TEST(PutRows, WritesTheirPlacesAndNoOthers) {
  struct Case {
    std::vector<int32_t> rows, places;
  };
  for (const mx::Dtype dtype : float_dtypes()) {
    for (const int width : {1, 9, 8192, 70001}) {
      for (const Case& c : {Case{{}, {}}, {{2}, {0}}, {{0, 2, 1}, {6, 0, 3}}, {{1, 1}, {5, 2}}}) {
        Context context = make_context(3);
        const mx::array x = random_array({3, width}, dtype, 1);
        const mx::array before = random_array({7, width}, dtype, 2);
        Context reference = context;
        reference.use_reference = true;
        mx::array expected = put_rows(reference, x, shared(c.rows), before, shared(c.places));
        mx::eval(expected);  // `before` is written
        EXPECT_TRUE(
            same_bits(put_rows(context, x, shared(c.rows), before, shared(c.places)), expected));
        EXPECT_EQ(context.kernels->count("put_rows", context.device->name()), 1);
      }
    }
  }
}

TEST(SliceColumns, TakesThemFromEveryRow) {
  for (const mx::Dtype dtype : float_dtypes()) {
    for (const auto& [rows, begin, width] :
         {std::array{5, 0, 9}, {5, 3, 4}, {5, 8, 1}, {5, 4, 0}, {0, 2, 3}, {1, 2, 3}}) {
      Context context = make_context(3);
      const mx::array x = random_array({rows, 9}, dtype, 1);
      const mx::array y = slice_columns(context, x, begin, width);
      context.use_reference = true;
      EXPECT_TRUE(same_bits(y, slice_columns(context, x, begin, width)));
      EXPECT_EQ(context.kernels->count("slice_columns", context.device->name()), 1);
    }
  }
  const mx::array big = random_array({700, 900}, mx::float32, 1);  // several tasks
  Context context = make_context(3);
  const mx::array y = slice_columns(context, big, 100, 600);
  context.use_reference = true;
  EXPECT_TRUE(same_bits(y, slice_columns(context, big, 100, 600)));
}

TEST(ResolveTokens, TakesSampledTokensOrIds) {
  const mx::array previous = mx::array({100, 101, 102}, mx::int32);
  for (const bool reference : {false, true}) {
    Context context = make_context(1);
    context.use_reference = reference;
    const auto get = [&](std::vector<int32_t> ids, std::vector<int32_t> from, mx::array sampled) {
      return to_floats(resolve_tokens(context, shared(ids), shared(from), sampled));
    };
    EXPECT_EQ(get({7, -1, 9, -1}, {-1, 2, -1, 0}, previous), (std::vector<float>{7, 102, 9, 100}));
    EXPECT_EQ(get({7, 8}, {-1, -1}, mx::zeros({0}, mx::int32)), (std::vector<float>{7, 8}));
    EXPECT_EQ(get({}, {}, previous), std::vector<float>{});
    EXPECT_EQ(get({-1}, {0}, mx::array({-1}, mx::int32)), std::vector<float>{0});  // no token
    EXPECT_EQ(
        context.kernels->count("resolve_tokens", reference ? "reference" : context.device->name()),
        4);
  }
}

TEST(GatherRows, RefusesWhatDoesNotFit) {
  const Context context = make_context(1);
  const mx::array x = mx::zeros({4, 8}), tokens = mx::zeros({3}, mx::int32);
  EXPECT_THROW(gather_rows(context, x, layout_of(5, {0})), std::invalid_argument);
  EXPECT_THROW(take_rows(context, x, shared({4})), std::invalid_argument);
  EXPECT_THROW(take_rows(context, x, shared({-1})), std::invalid_argument);
  EXPECT_THROW(take_rows(context, mx::zeros({4}), shared({0})), std::invalid_argument);
  EXPECT_THROW(put_rows(context, x, shared({4}), x, shared({0})), std::invalid_argument);
  EXPECT_THROW(put_rows(context, x, shared({0}), x, shared({4})), std::invalid_argument);
  EXPECT_THROW(put_rows(context, x, shared({0, 1}), x, shared({0})), std::invalid_argument);
  EXPECT_THROW(put_rows(context, x, shared({0, 1}), x, shared({2, 2})), std::invalid_argument);
  EXPECT_THROW(put_rows(context, x, shared({0}), mx::zeros({4, 7}), shared({0})),
               std::invalid_argument);
  EXPECT_THROW(put_rows(context, x, shared({0}), mx::zeros({4, 8}, mx::float16), shared({0})),
               std::invalid_argument);
  EXPECT_THROW(slice_columns(context, x, 4, 5), std::invalid_argument);
  EXPECT_THROW(slice_columns(context, x, -1, 5), std::invalid_argument);
  EXPECT_THROW(slice_columns(context, mx::zeros({4}), 0, 1), std::invalid_argument);
  EXPECT_THROW(resolve_tokens(context, shared({1}), shared({1, 2}), tokens), std::invalid_argument);
  EXPECT_THROW(resolve_tokens(context, shared({1}), shared({3}), tokens), std::invalid_argument);
  EXPECT_THROW(resolve_tokens(context, shared({1}), shared({0}), mx::zeros({3})),
               std::invalid_argument);
}

}  // namespace
}  // namespace quire::ops
