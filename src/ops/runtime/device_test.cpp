// A device with memory of its own: plans are handed to it at once, with its arrays alone.
#include "ops/runtime/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/error.h"
#include "ops/cuda/has_cuda.h"
#include "ops/runtime/cuda_support.h"
#include "ops/runtime/kernel_graph.h"
#include "ops/runtime/kernel_primitive.h"
#include "ops/runtime/launched_step.h"
#include "ops/runtime/recorded_step.h"
#include "ops/runtime/test_device.h"

namespace quire::ops {
namespace {

using ::testing::HasSubstr;
using testing::TestDevice;
using ::testing::ThrowsMessage;

class DeviceTest : public ::testing::Test {
 protected:
  mx::array on_device(const std::vector<int32_t>& values) {
    return device->make_array(values.data(), {static_cast<int>(values.size())}, mx::int32);
  }
  // x + by.
  mx::array add(const mx::array& x, int by, const char* kernel = "test") {
    auto run = [by](const auto& in, auto& out) {
      for (size_t i = 0; i < in[0].size(); ++i)
        out[0].template data<int32_t>()[i] = in[0].template data<int32_t>()[i] + by;
    };
    return launch_kernel(context, {.op = "add", .kernel = kernel, .run = run}, x.shape(), x.dtype(),
                         {x});
  }
  // Writes x's first value to pool[at], in place.
  mx::array put(const mx::array& pool, const mx::array& x, int at) {
    auto run = [at](const auto& in, auto& out) {
      out[0].template data<int32_t>()[at] = in[1].template data<int32_t>()[0];
    };
    return launch_kernel(context, {.op = "put", .kernel = "test", .run = run, .alias = {0}},
                         pool.shape(), mx::int32, {pool, x});
  }
  static std::vector<int32_t> values(const mx::array& a) {
    return {a.data<int32_t>(), a.data<int32_t>() + a.size()};
  }

  std::shared_ptr<TestDevice> device = std::make_shared<TestDevice>();
  Context context = make_context(1, device);
};

TEST_F(DeviceTest, APlanIsHandedOverAtOnce) {
  const mx::array x = on_device({1, 2, 3, 4});
  const mx::array a = add(x, 10);
  const auto graph = join_kernels(context, {add(mx::reshape(a, {2, 2}), 100), add(a, 1000)}, {});
  ASSERT_TRUE(graph);
  EXPECT_TRUE(graph->outputs[0].is_available());
  EXPECT_EQ(graph->outputs[0].shape(), (mx::Shape{2, 2}));
  EXPECT_EQ(values(graph->outputs[0]), (std::vector<int32_t>{111, 112, 113, 114}));
  EXPECT_EQ(values(graph->outputs[1]), (std::vector<int32_t>{1011, 1012, 1013, 1014}));
  EXPECT_EQ(context.kernels->count("kernel_graph", "test"), 1);
  EXPECT_EQ(context.kernels->count("add", "test"), 3);
}

TEST_F(DeviceTest, StepsGoOnFromEachOtherAndWriteInPlace) {
  const mx::array pool = on_device({0, 0, 0});
  auto first = launch_step(context, {add(on_device({1}), 1)}, {put(pool, on_device({7}), 0)});
  ASSERT_TRUE(first);
  const mx::array next = add(first->outputs()[0], 1);  // before anybody waits
  auto second = launch_step(context, {next}, {put(pool, next, 1)}, &*first);
  ASSERT_TRUE(second);
  EXPECT_EQ(values(first->wait()[0]), std::vector<int32_t>{2});
  EXPECT_EQ(values(second->wait()[0]), std::vector<int32_t>{3});
  EXPECT_EQ(values(pool), (std::vector<int32_t>{7, 3, 0}));
}

TEST_F(DeviceTest, InnerMemoryIsGivenBack) {
  mx::array y = on_device({1, 2});
  for (int i = 0; i < 20; ++i) y = add(y, 1);
  auto graph = join_kernels(context, {y}, {});
  ASSERT_TRUE(graph);
  EXPECT_EQ(values(graph->outputs[0]), (std::vector<int32_t>{21, 22}));
  y = graph->outputs[0];
  graph.reset();
  EXPECT_EQ(device->used(), 1u);
}

TEST_F(DeviceTest, AForeignArrayIsAnErrorThatNamesTheOp) {
  const mx::array host = mx::array({1, 2}, {2}, mx::int32);
  EXPECT_THAT([&] { join_kernels(context, {add(host, 1)}, {}); },
              ThrowsMessage<std::runtime_error>(HasSubstr("add is given an array")));
}

TEST_F(DeviceTest, AForeignOpIsAnErrorThatNamesIt) {
  const mx::array x = on_device({1, 2});
  EXPECT_THAT([&] { join_kernels(context, {add(mx::negative(add(x, 1)), 1)}, {}); },
              ThrowsMessage<std::runtime_error>(HasSubstr("Negative is no kernel")));
}

TEST_F(DeviceTest, AKernelOfTheCpuIsRefused) {
  const mx::array x = on_device({1, 2});
  EXPECT_THAT([&] { add(x, 1, "cpu_avx2"); },
              ThrowsMessage<std::runtime_error>(HasSubstr("add: no kernel for test")));
}

StepValues values_of(const std::vector<int32_t>& positions) {
  auto layout = std::make_shared<BatchLayout>();
  layout->num_tokens = layout->num_sequences = static_cast<int64_t>(positions.size());
  layout->positions = positions;
  return {.layout = layout,
          .ids = std::make_shared<std::vector<int32_t>>(positions),
          .from = std::make_shared<std::vector<int32_t>>(positions)};
}

class RecordingTest : public DeviceTest {
 protected:
  RecordingTest() {
    device = std::make_shared<TestDevice>("test", /*records=*/true);
    context = make_context(1, device);
    previous = on_device({0, 0});
    pool = on_device({0, 0});
  }
  // x plus the positions of the step that runs.
  mx::array add_positions(const mx::array& x, const BatchLayoutPtr& layout) {
    auto run = [layout](const auto& in, auto& out) {
      for (size_t i = 0; i < in[0].size(); ++i)
        out[0].template data<int32_t>()[i] =
            in[0].template data<int32_t>()[i] + layout->positions[i];
    };
    return launch_kernel(context, {.op = "add_positions", .kernel = "test", .run = run}, x.shape(),
                         x.dtype(), {x});
  }
  // Of `recorded` positions: pool[0] = previous + positions + 1, which is the output.
  std::unique_ptr<RecordedStep> record(const StepValues& recorded) {
    const mx::array sum = add(add_positions(previous, recorded.layout), 1);
    return record_kernels(context, recorded, previous, {sum}, {put(pool, sum, 0)}, 1);
  }

  mx::array previous = mx::array(0), pool = mx::array(0);
};

TEST_F(RecordingTest, RunsNothingWhileItRecords) {
  const auto step = record(values_of({0, 0}));
  EXPECT_EQ(context.kernels->count("add", "test"), 0);
  EXPECT_EQ(context.kernels->count("replay", "test"), 0);
  EXPECT_EQ(values(pool), (std::vector<int32_t>{0, 0}));
}

TEST_F(RecordingTest, EachRunReadsItsOwnValues) {
  const auto step = record(values_of({0, 0}));
  auto first = step->launch(values_of({10, 20}), on_device({1, 2}));
  ASSERT_TRUE(first);
  EXPECT_EQ(values(first->wait()[0]), (std::vector<int32_t>{12, 23}));
  // The outputs of a step are what the next one reads, before anybody waits.
  auto second = step->launch(values_of({100, 200}), first->outputs()[0]);
  auto third = step->launch(values_of({1000, 2000}), second->outputs()[0]);
  EXPECT_EQ(values(second->wait()[0]), (std::vector<int32_t>{113, 224}));
  EXPECT_EQ(values(third->wait()[0]), (std::vector<int32_t>{1114, 2225}));
  EXPECT_EQ(values(pool)[0], 1114);
  EXPECT_EQ(context.kernels->count("replay", "test"), 3);
  EXPECT_EQ(context.kernels->count("add_positions", "test"), 3);
}

TEST_F(RecordingTest, WhatDoesNotFitIsNotRun) {
  const auto step = record(values_of({0, 0}));
  EXPECT_FALSE(step->launch(values_of({1, 2, 3}), std::nullopt));
  EXPECT_FALSE(step->launch(values_of({1, 2}), on_device({1, 2, 3})));
  EXPECT_EQ(context.kernels->count("replay", "test"), 0);
  EXPECT_EQ(values(pool)[0], 0);
}

TEST_F(RecordingTest, AForeignOpIsRefused) {
  const mx::array sum = mx::negative(add(previous, 1));
  EXPECT_THROW(record_kernels(context, values_of({0, 0}), previous, {sum}, {}, 1),
               std::runtime_error);
}

// As tests of ops do: the host's arrays are copied there and back.
TEST_F(DeviceTest, OpsAreEvaluatedOnArraysOfTheHost) {
  const mx::array x = mx::array({1, 2}, {2}, mx::int32);
  const mx::array pool = mx::zeros({3}, mx::int32);
  mx::eval(pool);
  const mx::array y = add(add(x, 1), 1);
  const mx::array written = put(pool, y, 2);
  mx::eval(y, written);
  EXPECT_EQ(values(y), (std::vector<int32_t>{3, 4}));
  EXPECT_EQ(values(pool), (std::vector<int32_t>{0, 0, 3}));
  EXPECT_EQ(device->used(), 0u);
  EXPECT_GT(device->taken(), 0);
}

// Whether or not there is a GPU.
TEST(CudaSupportTest, KernelsThatNobodyKnowsAreAnError) {
  if (!kHasCuda) GTEST_SKIP() << "built without CUDA";
  const char* before = std::getenv("QUIRE_CUDA_KERNELS");
  const std::string kept = before ? before : "";
  setenv("QUIRE_CUDA_KERNELS", "plane", 1);
  EXPECT_THAT([] { find_cuda_support(); },
              ThrowsMessage<LoadError>(HasSubstr("QUIRE_CUDA_KERNELS may be \"plain\"")));
  setenv("QUIRE_CUDA_KERNELS", kept.c_str(), 1);
  EXPECT_NO_THROW(find_cuda_support());
}

}  // namespace
}  // namespace quire::ops
