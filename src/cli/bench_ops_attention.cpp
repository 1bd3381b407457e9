#include <algorithm>
#include <optional>

#include "cli/bench_ops.h"
#include "cli/bench_random.h"
#include "ops/paged_attention/paged_attention.h"

namespace quire::cli {
namespace {

constexpr int kKvHeads = 8, kDim = 128;
// 1 GiB of keys and values: short contexts take turns in it, so that they are read cold.
constexpr int64_t kPoolTokens = 8 * 32768;

struct AttentionCase {
  int heads, batch, count, context;  // `count` new tokens of each sequence, the last of `context`
  int block_size;
  bool random_order;
  ops::KvStorage storage = ops::KvStorage::kAuto;

  double token_bytes() const {
    return static_cast<double>(ops::paged_kv_token_bytes(kKvHeads, kDim, mx::bfloat16, storage));
  }
  std::string name() const {
    const bool prefill = count > 1;
    return std::string("attention/") + (prefill ? "prefill" : "decode") +
           "/H=" + std::to_string(heads) + "/" + std::to_string(kKvHeads) +
           (prefill ? "/T=" + std::to_string(count)
                    : "/B=" + std::to_string(batch) + "/context=" + std::to_string(context)) +
           "/block=" + std::to_string(block_size) + (random_order ? "/random" : "") +
           (storage == ops::KvStorage::kInt8  ? "/int8"
            : storage == ops::KvStorage::kFp8 ? "/fp8"
                                              : "");
  }
};

// Sequences of the case in one part of the pool.
ops::BatchLayoutPtr make_layout(const AttentionCase& c, const std::vector<int32_t>& blocks) {
  auto layout = std::make_shared<ops::BatchLayout>();
  layout->num_tokens = int64_t{c.batch} * c.count;
  layout->num_sequences = c.batch;
  layout->block_size = c.block_size;
  layout->cu_seqlens = {0};
  layout->block_offsets = {0};
  layout->blocks = blocks;
  const auto blocks_each = static_cast<int64_t>(blocks.size()) / c.batch;
  for (int s = 0; s < c.batch; ++s) {
    for (int i = 0; i < c.count; ++i) layout->positions.push_back(c.context - c.count + i);
    layout->cu_seqlens.push_back(layout->cu_seqlens.back() + c.count);
    layout->seq_lens.push_back(c.context);
    layout->block_offsets.push_back((s + 1) * blocks_each);
  }
  return layout;
}

// As many places in the pool as there are, at most 512, in turn.
std::vector<ops::BatchLayoutPtr> make_layouts(const AttentionCase& c) {
  const int64_t all = kPoolTokens / c.block_size;
  const int64_t each = int64_t{c.batch} * ((c.context + c.block_size - 1) / c.block_size);
  std::vector<int32_t> order(static_cast<size_t>(all));
  for (int64_t b = 0; b < all; ++b) order[b] = static_cast<int32_t>(b);
  BenchRandom random(2, 0);
  if (c.random_order) random.shuffle(order);
  std::vector<ops::BatchLayoutPtr> layouts;
  for (int64_t at = 0; at + each <= all && layouts.size() < 512; at += each)
    layouts.push_back(make_layout(c, {order.begin() + at, order.begin() + at + each}));
  return layouts;
}

class AttentionBench {
 public:
  explicit AttentionBench(OpBench& bench) : bench_(bench) {}

  void run(const AttentionCase& c) {
    const std::string name = c.name();
    if (!bench_.wants(name) || int64_t{c.batch} * c.context > kPoolTokens) return;
    const ops::PagedKv kv = pool_of(c);
    const mx::array q = random_bf16({c.batch * c.count, c.heads, kDim});
    const auto layouts = make_layouts(c);
    const double count = c.count, context = c.context;
    const double pairs = c.batch * (count * (context - count) + count * (count + 1) / 2);
    bench_.measure(
        name,
        {.bytes = c.batch * (context * c.token_bytes() + 4.0 * count * c.heads * kDim),
         .flops = pairs * c.heads * 4 * kDim},
        [&](int64_t run) -> std::vector<mx::array> {
          return {ops::paged_attention(bench_.context(), q, kv, layouts[run % layouts.size()],
                                       {.scale = 0.088f})};
        });
  }

 private:
  // One pool for all block sizes, made anew when the storage changes; of huge pages, as the
  // engine's. Random numbers, or codes but for FP8's NaN; small scales.
  ops::PagedKv pool_of(const AttentionCase& c) {
    if (!pool_ || storage_ != c.storage) {
      pool_.reset();
      pool_ = ops::make_paged_kv(kPoolTokens, 1, kKvHeads, kDim, mx::bfloat16, c.storage);
      storage_ = c.storage;
      mx::array random = random_bf16({1 << 16});
      mx::eval(random);
      const char* from = random.data<char>();
      const size_t period = random.nbytes();
      for (const mx::array& array : pool_->arrays()) {
        char* to = const_cast<char*>(array.data<char>());
        if (array.dtype() == mx::float32) {
          std::fill_n(reinterpret_cast<float*>(to), array.size(), 0.01f);
          continue;
        }
        const char mask = array.dtype() == mx::uint8 ? '\xBF' : '\xFF';
        for (size_t i = 0; i < array.nbytes(); ++i) to[i] = from[i % period] & mask;
      }
    }
    const int blocks = static_cast<int>(kPoolTokens / c.block_size);
    std::vector<mx::array> arrays;
    for (const mx::array& array : pool_->arrays()) {
      mx::Shape shape = array.shape();
      shape[0] = blocks;
      shape[1] = c.block_size;
      arrays.push_back(mx::reshape(array, shape));
    }
    mx::eval(arrays);
    return ops::PagedKv::from(arrays);
  }

  OpBench& bench_;
  std::optional<ops::PagedKv> pool_;
  ops::KvStorage storage_ = ops::KvStorage::kAuto;
};

}  // namespace

void bench_attention(OpBench& bench, bool full) {
  AttentionBench attention(bench);
  for (const int heads : {16, 32})
    for (const int block_size : {16, 32, 128})
      for (const bool random_order : {false, true})
        for (const int batch : {1, 8, 32})
          for (const int context : {512, 4096, 32768}) {
            // By default one thing at a time differs from 16 heads, blocks of 16, in order.
            const int others = (heads != 16) + (block_size != 16) + random_order;
            const bool usual = others == 0 || (others == 1 && batch == 8 && context == 4096);
            if (full || usual) attention.run({heads, batch, 1, context, block_size, random_order});
          }
  for (const int tokens : {512, 2048, 8192}) attention.run({16, 1, tokens, tokens, 16, false});
  if (full)
    for (const int tokens : {512, 2048, 8192}) attention.run({32, 1, tokens, tokens, 16, false});
  for (const ops::KvStorage storage : {ops::KvStorage::kInt8, ops::KvStorage::kFp8}) {
    for (const int batch : {1, 8})
      for (const int context : {512, 4096, 32768})
        attention.run({16, batch, 1, context, 16, false, storage});
    for (const int tokens : {2048, 8192})
      attention.run({16, 1, tokens, tokens, 16, false, storage});
  }
}

}  // namespace quire::cli
