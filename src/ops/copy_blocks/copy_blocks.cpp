#include "ops/copy_blocks/copy_blocks.h"

#include <cstring>
#include <stdexcept>
#include <string>
#include <unordered_set>

#include "ops/kernel_primitive.h"

namespace quire::ops {
namespace {

constexpr const char* kOp = "copy_blocks";

[[noreturn]] void refuse(const std::string& what) {
  throw std::invalid_argument(std::string(kOp) + ": " + what);
}

void check(const PagedKv& kv, const std::vector<BlockCopy>& copies) {
  check_paged_kv(kOp, kv, kv.k.shape(1));
  const int blocks = kv.k.shape(0);
  std::unordered_set<int32_t> written;
  for (const BlockCopy& copy : copies) {
    for (const int32_t block : {copy.from, copy.to})
      if (block < 0 || block >= blocks)
        refuse("there is no block " + std::to_string(block) + " among " + std::to_string(blocks));
    if (!written.insert(copy.to).second)
      refuse("block " + std::to_string(copy.to) + " is written twice");
  }
  for (const BlockCopy& copy : copies)
    if (written.contains(copy.from))
      refuse("block " + std::to_string(copy.from) + " is read and written");
}

}  // namespace

// The reference of a copy is the copy. The tests' oracle is a loop over a copy of the pool.
PagedKv copy_blocks(const Context& context, const PagedKv& kv, std::vector<BlockCopy> copies) {
  check(kv, copies);
  const std::vector<mx::array> pools = kv.arrays();
  auto run = [copies = std::move(copies), pool = context.pool](const auto&, auto& out) {
    const auto arrays = static_cast<int64_t>(out.size());
    pool->parallel_for(arrays * static_cast<int64_t>(copies.size()), [&](int64_t i) {
      auto& array = out[i % arrays];
      const BlockCopy& copy = copies[i / arrays];
      const auto bytes = static_cast<int64_t>(array.nbytes()) / array.shape(0);
      char* base = array.template data<char>();
      std::memcpy(base + copy.to * bytes, base + copy.from * bytes, static_cast<size_t>(bytes));
    });
  };
  std::vector<mx::Shape> shapes;
  std::vector<mx::Dtype> dtypes;
  std::vector<int> alias;
  for (const mx::array& array : pools) {
    alias.push_back(static_cast<int>(shapes.size()));
    shapes.push_back(array.shape());
    dtypes.push_back(array.dtype());
  }
  return PagedKv::from(launch_kernel(
      context, {.op = kOp, .kernel = "cpu", .run = run, .alias = alias}, shapes, dtypes, pools));
}

}  // namespace quire::ops
