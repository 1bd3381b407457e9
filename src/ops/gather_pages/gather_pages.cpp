#include "ops/gather_pages/gather_pages.h"

#include <array>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "ops/gather_pages/gather_pages_metal.h"
#include "ops/metal/launch_metal.h"

namespace quire::ops {
namespace {

std::vector<int64_t> slots_of(const BatchLayout& layout) {
  std::vector<int64_t> slots;
  for (int64_t s = 0; s < layout.num_sequences; ++s)
    for (int64_t t = 0; t < layout.seq_lens[s]; ++t) {
      const int64_t block = layout.block_table(s)[t / layout.block_size];
      slots.push_back(block == kNoBlock ? -1 : block * layout.block_size + t % layout.block_size);
    }
  return slots;
}

// Made once for a layout.
mx::array slots_on(MetalDevice& metal, const BatchLayoutPtr& layout) {
  static const char id = 0;
  const auto kept = metal.keep(
      layout, {static_cast<int64_t>(reinterpret_cast<intptr_t>(&id))},
      [&] { return std::make_shared<const mx::array>(metal.make_values(slots_of(*layout))); });
  return *static_cast<const mx::array*>(kept.get());
}

}  // namespace

mx::array gather_pages(const Context& context, const mx::array& pool,
                       const BatchLayoutPtr& layout) {
  if (!context.device->metal()) throw std::invalid_argument("gather_pages: it is Metal's");
  if (pool.ndim() < 2 || pool.shape(1) != layout->block_size)
    throw std::invalid_argument("gather_pages: the pool does not have the layout's blocks");
  const int64_t rows = std::reduce(layout->seq_lens.begin(), layout->seq_lens.end(), int64_t{0});
  mx::Shape shape(pool.shape().begin() + 1, pool.shape().end());
  shape.front() = static_cast<int>(rows);
  const int64_t slots = int64_t{pool.shape(0)} * pool.shape(1);
  const auto row_bytes = static_cast<int64_t>(pool.nbytes()) / std::max<int64_t>(1, slots);
  auto encode = [gather = gather_pages_metal(rows, row_bytes, kMetalAlignment)](
                    MetalEncoder& encoder, const auto& in, auto& out) {
    encoder.dispatch(gather.call, std::array{metal_numbers(kGatherPagesParams, gather.params),
                                             metal_read(kGatherPagesSlots, in[1]),
                                             metal_read_pool(kGatherPagesPool, in[0]),
                                             metal_write(kGatherPagesRows, out[0])});
  };
  return launch_metal(
      context, {.op = "gather_pages", .encode = encode, .alignment = kMetalAlignment},
      {std::move(shape)}, {pool.dtype()}, {pool, slots_on(*context.device->metal(), layout)})[0];
}

}  // namespace quire::ops
