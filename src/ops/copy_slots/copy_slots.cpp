#include "ops/copy_slots/copy_slots.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>
#include <string>

#include "ops/copy_slots/copy_slots_cuda.h"
#include "ops/copy_slots/copy_slots_metal.h"
#include "ops/cpu/parallel_blocks.h"
#include "ops/cuda/cuda_device.h"
#include "ops/metal/launch_metal.h"
#include "ops/runtime/kernel_primitive.h"
#include "ops/runtime/shape_check.h"

namespace quire::ops {
namespace {

// Bytes that one thread copies at a time.
constexpr int64_t kPiece = 64 << 10;

void check(const RecurrentState& state, const std::vector<SlotCopy>& copies) {
  check_shape("copy_slots", "recurrent", state.recurrent, {-1, -1, -1, -1});
  check_shape("copy_slots", "conv", state.conv, {state.recurrent.shape(0), -1, -1});
  const int slots = state.recurrent.shape(0);
  const auto refuse = [](const std::string& what, int32_t slot) {
    throw std::invalid_argument("copy_slots: slot " + std::to_string(slot) + " " + what);
  };
  std::vector<int32_t> read, written;
  for (const SlotCopy& copy : copies) {
    for (const int32_t slot : {copy.from, copy.to})
      if (slot < 0 || slot >= slots) refuse("is not in a pool of " + std::to_string(slots), slot);
    read.push_back(copy.from);
    written.push_back(copy.to);
  }
  std::sort(read.begin(), read.end());
  std::sort(written.begin(), written.end());
  if (const auto twice = std::adjacent_find(written.begin(), written.end()); twice != written.end())
    refuse("is written twice", *twice);
  for (const int32_t slot : written)
    if (std::binary_search(read.begin(), read.end(), slot)) refuse("is read and written", slot);
}

// Bytes are bytes: the same copy whatever the dtype and the instruction set.
void copy_bytes(ThreadPool& pool, const std::vector<SlotCopy>& copies, KernelArray& array) {
  const auto slot_bytes = static_cast<int64_t>(array.nbytes()) / array.shape(0);
  const int64_t pieces = (slot_bytes + kPiece - 1) / kPiece;
  char* data = array.data<char>();
  parallel_blocks(
      pool, static_cast<int64_t>(copies.size()) * pieces, 1, [&](int64_t task, int64_t) {
        const SlotCopy& copy = copies[task / pieces];
        const int64_t at = task % pieces * kPiece;
        std::memcpy(data + copy.to * slot_bytes + at, data + copy.from * slot_bytes + at,
                    std::min(kPiece, slot_bytes - at));
      });
}

template <class Arrays>
void copy_on_cuda(CudaDevice& cuda, const std::vector<SlotCopy>& copies, Arrays& arrays) {
  static_assert(sizeof(SlotCopy) == 2 * sizeof(int32_t));  // from, to
  const CudaValues pairs(cuda, copies);
  const auto slot_bytes = [&](int i) {
    return static_cast<int64_t>(arrays[i].nbytes()) / arrays[i].shape(0);
  };
  copy_slots_cuda(cuda.stream(), {.count = static_cast<int64_t>(copies.size()),
                                  .pairs = pairs.as<const int32_t>(),
                                  .recurrent = arrays[0].template data<void>(),
                                  .conv = arrays[1].template data<void>(),
                                  .recurrent_bytes = slot_bytes(0),
                                  .conv_bytes = slot_bytes(1)});
}

RecurrentState copy_on_metal(const Context& context, const RecurrentState& state,
                             const SlotCopies& copies) {
  auto encode = [count = static_cast<int64_t>(copies->size())](MetalEncoder& encoder,
                                                               const auto& in, auto& out) {
    for (mx::array& pool : out) {
      const CopySlotsMetal copy = copy_slots_metal(
          count, static_cast<int64_t>(pool.nbytes()) / pool.shape(0), kMetalAlignment);
      encoder.dispatch(copy.call, std::array{metal_numbers(kCopySlotsParams, copy.params),
                                             metal_read(kCopySlotsPairs, in[2]),
                                             metal_write(kCopySlotsPool, pool)});
    }
  };
  const auto out = launch_metal(
      context,
      {.op = "copy_slots", .encode = encode, .alias = {0, 1}, .alignment = kMetalAlignment},
      {state.recurrent.shape(), state.conv.shape()}, {state.recurrent.dtype(), state.conv.dtype()},
      {state.recurrent, state.conv, context.device->metal()->make_values(*copies)});
  return {.recurrent = out[0], .conv = out[1]};
}

}  // namespace

// The reference of a copy is the copy; the tests' oracle is a loop over a copy of the pool.
RecurrentState copy_slots(const Context& context, const RecurrentState& state,
                          const SlotCopies& copies) {
  check(state, *copies);
  if (context.device->metal()) return copy_on_metal(context, state, copies);
  auto kernel = [copies, pool = context.pool, cuda = context.device->cuda()](const auto&,
                                                                             auto& out) {
    if constexpr (kHasCuda)
      if (cuda) return copy_on_cuda(*cuda, *copies, out);
    copy_bytes(*pool, *copies, out[0]);
    copy_bytes(*pool, *copies, out[1]);
  };
  const auto slot_bytes = static_cast<double>(state.recurrent.nbytes() + state.conv.nbytes()) /
                          state.recurrent.shape(0);
  auto outputs =
      launch_kernel(context,
                    {.op = "copy_slots",
                     .kernel = context.device->name(),
                     .run = kernel,
                     .alias = {0, 1},
                     .cost = {.bytes = 2 * slot_bytes * static_cast<double>(copies->size())}},
                    {state.recurrent.shape(), state.conv.shape()},
                    {state.recurrent.dtype(), state.conv.dtype()}, {state.recurrent, state.conv});
  return {.recurrent = outputs[0], .conv = outputs[1]};
}

}  // namespace quire::ops
