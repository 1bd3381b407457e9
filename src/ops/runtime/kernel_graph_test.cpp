#include "ops/runtime/kernel_graph.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

#include "ops/runtime/array_memory.h"
#include "ops/runtime/kernel_primitive.h"

namespace quire::ops {
namespace {

// y = x + add, for int32 arrays.
mx::array add(const Context& context, const mx::array& x, int32_t add) {
  auto run = [add](const auto& in, auto& out) {
    for (size_t i = 0; i < in[0].size(); ++i)
      out[0].template data<int32_t>()[i] = in[0].template data<int32_t>()[i] + add;
  };
  return launch_kernel(context, {.op = "add", .kernel = "test", .run = run}, x.shape(), x.dtype(),
                       {x});
}

// Writes x's sum to pool[at], in place; returns the new handle and {the old value}.
std::vector<mx::array> put_sum(const Context& context, const mx::array& pool, const mx::array& x,
                               int at) {
  auto run = [at](const auto& in, auto& out) {
    int32_t sum = 0;
    for (size_t i = 0; i < in[1].size(); ++i) sum += in[1].template data<int32_t>()[i];
    int32_t& place = out[0].template data<int32_t>()[at];
    out[1].template data<int32_t>()[0] = place;
    place = sum;
  };
  return launch_kernel(context, {.op = "put", .kernel = "test", .run = run, .alias = {0, -1}},
                       {pool.shape(), {1}}, {mx::int32, mx::int32}, {pool, x});
}

std::vector<int32_t> values(const mx::array& a) {
  return {a.data<int32_t>(), a.data<int32_t>() + a.size()};
}

class KernelGraphTest : public testing::Test {
 protected:
  Context context = make_context(2);
  mx::array x = mx::array({1, 2, 3, 4}, {4}, mx::int32);
};

TEST_F(KernelGraphTest, RunsKernelsOnceAndInOrder) {
  const mx::array a = add(context, x, 10);
  const mx::array b = add(context, mx::reshape(a, {2, 2}), 100);
  const mx::array c = add(context, a, 1000);  // a is read twice
  const auto graph = join_kernels(context, {b, c}, {});
  ASSERT_TRUE(graph);
  EXPECT_EQ(graph->outputs[0].shape(), (mx::Shape{2, 2}));
  mx::async_eval(graph->done);
  mx::eval(graph->outputs);
  EXPECT_EQ(values(graph->outputs[0]), (std::vector<int32_t>{111, 112, 113, 114}));
  EXPECT_EQ(values(graph->outputs[1]), (std::vector<int32_t>{1011, 1012, 1013, 1014}));
  EXPECT_EQ(context.kernels->count("add", "test"), 3);
}

TEST_F(KernelGraphTest, EffectsAreWrittenInPlace) {
  const mx::array pool = mx::zeros({3}, mx::int32);
  mx::eval(pool);
  const auto first = put_sum(context, pool, add(context, x, 0), 0);
  const auto second = put_sum(context, first[0], add(context, x, 1), 1);
  const auto third = put_sum(context, second[0], x, 0);  // over the first
  const auto graph = join_kernels(context, {third[1]}, {third[0]});
  ASSERT_TRUE(graph);
  mx::eval(graph->done);
  EXPECT_EQ(values(pool), (std::vector<int32_t>{10, 14, 0}));
  EXPECT_EQ(values(graph->outputs[0]), std::vector<int32_t>{10});
  EXPECT_EQ(context.kernels->count("put", "test"), 3);
}

TEST_F(KernelGraphTest, EffectsAloneRun) {
  const mx::array pool = mx::zeros({1}, mx::int32);
  mx::eval(pool);
  const auto put = put_sum(context, pool, x, 0);
  const auto graph = join_kernels(context, {}, {put[0]});
  ASSERT_TRUE(graph);
  EXPECT_TRUE(graph->outputs.empty());
  mx::eval(graph->done);
  EXPECT_EQ(values(pool), std::vector<int32_t>{10});
}

TEST_F(KernelGraphTest, OneStartsFromWhatAnotherHasNotFinished) {
  const auto first = join_kernels(context, {add(context, x, 1)}, {});
  mx::async_eval(first->done);
  const mx::array y = add(context, first->outputs[0], 1);
  const auto second = join_kernels(context, {y}, {}, first->done);
  ASSERT_TRUE(second);
  mx::eval(second->outputs[0]);
  EXPECT_EQ(values(second->outputs[0]), (std::vector<int32_t>{3, 4, 5, 6}));
}

TEST_F(KernelGraphTest, InnerMemoryIsGivenBack) {
  const mx::array big = mx::zeros({1 << 17}, mx::int32);
  mx::eval(big);
  mx::array y = big;
  for (int i = 0; i < 20; ++i) y = add(context, y, 1);
  auto graph = join_kernels(context, {y}, {});
  mx::eval(graph->done);
  EXPECT_EQ(graph->outputs[0].data<int32_t>()[17], 20);
  y = big;
  graph.reset();
  mx::synchronize();
  EXPECT_EQ(context.device->host_memory()->stats().used, 0u);
#if !defined(__SANITIZE_ADDRESS__)
  // Two inner arrays at a time, and the output, of half a MiB each.
  EXPECT_LE(context.device->host_memory()->stats().cached, size_t{2} << 20);
#endif
}

TEST_F(KernelGraphTest, AGraphOfOtherNodesIsLeftAlone) {
  const mx::array y = add(context, mx::astype(add(context, x, 1), mx::int32) * x, 1);
  EXPECT_FALSE(join_kernels(context, {y}, {}));
  EXPECT_FALSE(join_kernels(context, {add(context, mx::reshape(x + x, {2, 2}), 1)}, {}));
  mx::eval(y);
  EXPECT_EQ(values(y), (std::vector<int32_t>{3, 7, 13, 21}));
}

TEST_F(KernelGraphTest, AnArrayThatWentInIsNotRunAgain) {
  const mx::array a = add(context, x, 1);
  const mx::array b = add(context, a, 1);
  const auto graph = join_kernels(context, {b}, {});
  EXPECT_THROW(mx::eval(a), std::logic_error);
  EXPECT_FALSE(join_kernels(context, {b}, {}));
  mx::eval(graph->outputs);
  EXPECT_EQ(values(graph->outputs[0]), (std::vector<int32_t>{3, 4, 5, 6}));
}

TEST_F(KernelGraphTest, AFailingKernelIsAnError) {
  auto run = [](const auto&, auto&) { throw std::runtime_error("out of luck"); };
  const mx::array a =
      launch_kernel(context, {.op = "fail", .kernel = "test", .run = run}, {4}, mx::int32, {x});
  const auto graph = join_kernels(context, {add(context, add(context, a, 1), 1)}, {});
  EXPECT_THROW(mx::eval(graph->done), std::runtime_error);
}

}  // namespace
}  // namespace quire::ops
