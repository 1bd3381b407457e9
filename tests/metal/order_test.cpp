// The stand-in for MLX's encoder finds memory that command buffers use in no order, by way of the
// encoder that Macs use.
#include <gmock/gmock.h>
#include <mlx/backend/metal/device.h>
#include <mlx/mlx.h>

#include <functional>
#include <string>
#include <vector>

#include "emulator.h"
#include "ops/metal/apple_encoder.h"

namespace quire::emulator::testing {
namespace {

namespace mx = mlx::core;

using ops::metal_read;
using ops::metal_read_pool;
using ops::metal_write;
using ops::MetalArgument;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Nodes of a graph, each in a command buffer of its own; nothing of them runs.
class Graph {
 public:
  void node(const std::string& kernel, std::vector<MetalArgument> arguments,
            std::vector<ops::MetalConstant> constants = {}) {
    std::vector<mx::array> arrays;
    for (const MetalArgument& argument : arguments) arrays.push_back(*argument.array);
    commands_.begin_node(arrays, {});
    ops::AppleEncoder encoder(device_, commands_, "copy_slots");
    encoder.dispatch({.kernel = kernel, .constants = std::move(constants)}, arguments);
    commands_.end_encoding();
  }
  // The same, with an array that is called scratch of the node.
  void node_with_temporary(const std::string& kernel, const MetalArgument& argument) {
    commands_.begin_node({*argument.array}, {});
    ops::AppleEncoder encoder(device_, commands_, "copy_slots");
    encoder.dispatch({.kernel = kernel}, {&argument, 1});
    commands_.add_temporary(*argument.array);
    commands_.end_encoding();
  }

 private:
  mx::metal::Device device_;
  mx::metal::CommandEncoder commands_;
};

std::string fault_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Fault& fault) {
    return fault.what();
  }
  return "none";
}

mx::array memory() { return mx::array(mx::allocator::malloc(64), {16}, mx::float32); }

// Another handle of the same memory, as the writing nodes return.
mx::array handle_of(const mx::array& pool) {
  mx::array handle = memory();
  handle.copy_shared_buffer(pool);
  return handle;
}

// A step writes a pool in place and reads it, as does the next.
TEST(MetalOrder, OfAPoolIsThatOfTheSteps) {
  Graph graph;
  mx::array pool = memory();
  for (int step = 0; step < 3; ++step) {
    const mx::array written = handle_of(pool), a = memory(), b = memory();
    graph.node("write", {metal_write(0, written)});
    graph.node("attend", {metal_read_pool(0, written), metal_write(1, a)});
    graph.node("attend_too", {metal_read_pool(0, written), metal_read(1, a), metal_write(2, b)});
    pool = written;
  }
}

// MLX orders by what was written alone: the seeded mistake is that a pool is read like any array.
TEST(MetalOrder, IsMissingWhereAPoolIsReadLikeAnArray) {
  Graph graph;
  const mx::array pool = memory(), out = memory();
  const mx::array first = handle_of(pool), second = handle_of(first);
  graph.node("write", {metal_write(0, first)});
  graph.node("attend", {metal_read(0, first), metal_write(1, out)});
  EXPECT_THAT(fault_of([&] { graph.node("write_again", {metal_write(0, second)}); }),
              AllOf(HasSubstr("write_again writes memory that attend reads"),
                    HasSubstr("may run at the same time")));
}

// A node between them that depends on both is an order, too.
TEST(MetalOrder, GoesByWayOfOthers) {
  Graph graph;
  const mx::array pool = memory(), out = memory();
  const mx::array second = handle_of(pool);
  graph.node("attend", {metal_read(0, pool), metal_write(1, out)});
  graph.node("write", {metal_read(1, out), metal_write(0, second)});
}

// MLX forgets who wrote a temporary.
TEST(MetalOrder, IsMissingWhereAGraphsArrayIsATemporary) {
  Graph graph;
  const mx::array a = memory(), out = memory();
  graph.node_with_temporary("make", metal_write(0, a));
  EXPECT_THAT(fault_of([&] { graph.node("use", {metal_read(0, a), metal_write(1, out)}); }),
              HasSubstr("use reads memory that make writes"));
}

// What is allocated where freed memory was has nothing to do with it.
TEST(MetalOrder, IsOfArraysNotOfAddresses) {
  Graph graph;
  alignas(16) static float floats[16];
  const auto at_one_place = [] {
    return mx::array(mx::allocator::Data(mx::allocator::Buffer(floats), [](auto) {}), {16},
                     mx::float32);
  };
  const mx::array out = memory();
  {
    const mx::array first = at_one_place();
    graph.node("attend", {metal_read(0, first), metal_write(1, out)});
  }
  const mx::array second = at_one_place();
  graph.node("write", {metal_write(0, second)});
}

// MLX keeps a node's arrays until the GPU is done, and no others.
TEST(MetalOrder, ArraysOfOtherNodesAreNotBound) {
  mx::metal::Device device;
  mx::metal::CommandEncoder commands;
  const mx::array input = memory(), captured = memory();
  commands.begin_node({input}, {});
  ops::AppleEncoder encoder(device, commands, "copy_slots");
  const MetalArgument good = metal_read(0, input), bad = metal_read(1, captured);
  encoder.dispatch({.kernel = "k"}, {&good, 1});
  EXPECT_THAT(fault_of([&] { encoder.dispatch({.kernel = "k"}, {&bad, 1}); }),
              HasSubstr("k: buffer 1 is of an array that may go before the GPU is done"));
}

TEST(MetalOrder, PipelinesAreToldApartByAllConstants) {
  Graph graph;
  const mx::array out = memory();
  using ops::metal_constant;
  graph.node("k", {metal_write(0, out)}, {metal_constant(1, 1), metal_constant(2, true)});
  graph.node("k", {metal_write(0, out)}, {metal_constant(1, 1), metal_constant(2, false)});
  graph.node("k", {metal_write(0, out)}, {metal_constant(1, 1), metal_constant(3, true)});
  mx::metal::Device device;
  MTL::Library* library = device.get_library("l", [] { return std::string("text"); });
  const int32_t one = 1, two = 2;
  device.get_kernel("k", library, "key", {{&one, MTL::DataTypeInt, 1}});
  device.get_kernel("k", library, "key", {{&one, MTL::DataTypeInt, 1}});
  EXPECT_THAT(
      fault_of([&] { device.get_kernel("k", library, "key", {{&two, MTL::DataTypeInt, 1}}); }),
      HasSubstr("two pipelines of k have the key key"));
}

}  // namespace
}  // namespace quire::emulator::testing
