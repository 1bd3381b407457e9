#include <algorithm>
#include <cstdio>
#include <optional>
#include <utility>

#include "bench/ops/cases.h"
#include "bench/random.h"
#include "ops/paged_attention/paged_attention.h"

namespace quire::bench {
namespace {

// Keys and values of a pool: short contexts take turns in it, so that they are read cold.
constexpr int64_t kPoolBytes = int64_t{1} << 30;

// kSwapped: ascending, but every two neighbours in each other's place, so that the sequence is no
// run and yet in the same pages.
enum class BlockOrder { kAscending, kRandom, kSwapped };

struct Heads {
  int query, kv, dim;
  int values_in_keys = 0;  // as ops::PagedKv has it: latent attention

  int value_dim() const { return values_in_keys > 0 ? values_in_keys : dim; }
};

struct AttentionCase {
  Heads heads;
  int batch, count, context;  // `count` new tokens of each sequence, the last of `context`
  int block_size;
  BlockOrder order = BlockOrder::kAscending;
  ops::KvStorage storage = ops::KvStorage::kAuto;
  std::string prefix = {};  // of the name; by default that of its kind

  double token_bytes() const {
    return static_cast<double>(
        heads.values_in_keys > 0
            ? ops::latent_kv_token_bytes(heads.dim, mx::bfloat16, storage)
            : ops::paged_kv_token_bytes(heads.kv, heads.dim, mx::bfloat16, storage));
  }
  int64_t pool_tokens() const {
    return static_cast<int64_t>(static_cast<double>(kPoolBytes) / token_bytes()) / 1024 * 1024;
  }
  std::string name() const {
    const bool prefill = count > 1, chunk = prefill && count < context;
    const std::string kind = chunk     ? "paged_attention/chunk"
                             : prefill ? "paged_attention/prefill"
                                       : "paged_attention/decode";
    return (prefix.empty() ? kind : prefix) + "/H=" + std::to_string(heads.query) + "/" +
           std::to_string(heads.kv) + (heads.dim == 128 ? "" : "/D=" + std::to_string(heads.dim)) +
           (heads.values_in_keys == 0 ? "" : "/latent=" + std::to_string(heads.values_in_keys)) +
           (prefill ? "/T=" + std::to_string(count) : "/B=" + std::to_string(batch)) +
           (prefill && !chunk ? "" : "/context=" + std::to_string(context)) +
           "/block=" + std::to_string(block_size) +
           (prefix.empty() && order == BlockOrder::kRandom ? "/random" : "") +
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
  const int64_t all = c.pool_tokens() / c.block_size;
  const int64_t each = int64_t{c.batch} * ((c.context + c.block_size - 1) / c.block_size);
  std::vector<int32_t> order(static_cast<size_t>(all));
  for (int64_t b = 0; b < all; ++b) order[b] = static_cast<int32_t>(b);
  if (c.order == BlockOrder::kRandom) Random(2, 0).shuffle(order);
  if (c.order == BlockOrder::kSwapped)
    for (int64_t b = 0; b + 1 < all; b += 2) std::swap(order[b], order[b + 1]);
  std::vector<ops::BatchLayoutPtr> layouts;
  for (int64_t at = 0; at + each <= all && layouts.size() < 512; at += each)
    layouts.push_back(make_layout(c, {order.begin() + at, order.begin() + at + each}));
  return layouts;
}

ops::PagedKv make_pool(const AttentionCase& c) {
  if (c.heads.values_in_keys > 0)
    return ops::make_latent_kv(c.pool_tokens(), 1, c.heads.dim, c.heads.values_in_keys,
                               mx::bfloat16, c.storage);
  return ops::make_paged_kv(c.pool_tokens(), 1, c.heads.kv, c.heads.dim, mx::bfloat16, c.storage);
}

class AttentionBench {
 public:
  explicit AttentionBench(OpBench& bench) : bench_(bench) {}

  void run(const AttentionCase& c) {
    const std::string name = c.name();
    if (!bench_.wants(name)) return;
    if (int64_t{c.batch} * c.context > c.pool_tokens()) {
      std::printf("%-44s left out: more than 1 GiB of keys and values\n", name.c_str());
      return;
    }
    const ops::PagedKv kv = pool_of(c);
    const mx::array q = random_bf16({c.batch * c.count, c.heads.query, c.heads.dim});
    const auto layouts = make_layouts(c);
    const double count = c.count, context = c.context;
    const double widths = double(c.heads.query) * (c.heads.dim + c.heads.value_dim());
    const double pairs = c.batch * (count * (context - count) + count * (count + 1) / 2);
    bench_.measure(name,
                   {.bytes = c.batch * (context * c.token_bytes() + 2.0 * count * widths),
                    .flops = pairs * 2 * widths},
                   [&](int64_t run) {
                     return ops::paged_attention(bench_.context(), q, kv,
                                                 layouts[run % layouts.size()], {.scale = 0.088f});
                   });
  }

 private:
  // One pool for all block sizes, made anew when heads or storage change; of huge pages, as the
  // engine's. Random numbers, or codes but for FP8's NaN; small scales.
  ops::PagedKv pool_of(const AttentionCase& c) {
    if (!pool_ || storage_ != c.storage || pool_->k.shape(2) != c.heads.kv ||
        pool_->k.shape(3) != c.heads.dim || pool_->values_in_keys != c.heads.values_in_keys) {
      pool_.reset();
      pool_ = make_pool(c);
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
    const int blocks = static_cast<int>(c.pool_tokens() / c.block_size);
    std::vector<mx::array> arrays;
    for (const mx::array& array : pool_->arrays()) {
      mx::Shape shape = array.shape();
      shape[0] = blocks;
      shape[1] = c.block_size;
      arrays.push_back(mx::reshape(array, shape));
    }
    mx::eval(arrays);
    if (c.heads.values_in_keys == 0) return ops::PagedKv::from(arrays);
    return ops::latent_kv(arrays[0], arrays.size() > 1 ? std::optional(arrays[1]) : std::nullopt,
                          c.heads.values_in_keys);
  }

  OpBench& bench_;
  std::optional<ops::PagedKv> pool_;
  ops::KvStorage storage_ = ops::KvStorage::kAuto;
};

constexpr Heads kUsual{16, 8, 128}, kGroupsOf4{32, 8, 128}, kWide{8, 2, 256};

// By default one thing at a time differs from 16 heads, blocks of 16, in order, and batch and
// context from 8 and 4,096 only there.
void bench_decode(AttentionBench& attention, bool full) {
  for (const Heads& heads : {kUsual, kGroupsOf4, kWide})
    for (const int block_size : {16, 32, 128})
      for (const BlockOrder order : {BlockOrder::kAscending, BlockOrder::kRandom})
        for (const int batch : {1, 8, 16, 32})
          for (const int context : {128, 256, 512, 4096, 32768}) {
            const int others = (heads.query != kUsual.query) + (block_size != 16) +
                               (order != BlockOrder::kAscending);
            const bool usual = others == 0 || (others == 1 && batch == 8 && context == 4096);
            if (full || usual) attention.run({heads, batch, 1, context, block_size, order});
          }
}

// What it brings that blocks which follow one another are read as one: with blocks of 16 and more
// the tiles of keys lie within blocks in any case.
void bench_contiguous_view(AttentionBench& attention) {
  for (const int block_size : {1, 8, 16})
    for (const bool on : {true, false})
      attention.run({kUsual, 8, 1, 4096, block_size,
                     on ? BlockOrder::kAscending : BlockOrder::kSwapped, ops::KvStorage::kAuto,
                     std::string("paged_attention/contiguous_view=") + (on ? "on" : "off")});
}

// Parts of a long prompt, as they are fed beside chats.
void bench_chunks(AttentionBench& attention) {
  for (const int context : {2048, 8192, 16384})
    for (const int tokens : {7, 13, 24, 64, 256, 512})
      attention.run({kUsual, 1, tokens, context, 16});
}

// Latent rows: the heads of DeepSeek-V2-Lite, GLM-4.7-Flash and DeepSeek-V3; and beside prompts of
// GLM's the heads that its rows expand to.
void bench_latent(AttentionBench& attention, bool full) {
  constexpr Heads kLite{16, 1, 576, 512}, kFlash{20, 1, 576, 512}, kLarge{128, 1, 576, 512};
  for (const Heads& heads : {kLite, kFlash, kLarge})
    for (const int batch : {1, 8, 32})
      for (const int context : {512, 4096, 32768})
        if (full || heads.query == kFlash.query || (batch == 8 && context == 4096))
          attention.run({heads, batch, 1, context, 16});
  for (const ops::KvStorage storage : {ops::KvStorage::kInt8, ops::KvStorage::kFp8})
    for (const int batch : {1, 8})
      attention.run({kFlash, batch, 1, 4096, 16, BlockOrder::kAscending, storage});
  for (const int tokens : {512, 2048})
    for (const Heads& heads : {kFlash, Heads{20, 20, 256}})
      attention.run({heads, 1, tokens, tokens, 16});
}

}  // namespace

void bench_paged_attention(OpBench& bench) {
  const bool full = bench.full();
  AttentionBench attention(bench);
  const auto prefill = [&](const Heads& heads, int tokens, ops::KvStorage storage) {
    attention.run({heads, 1, tokens, tokens, 16, BlockOrder::kAscending, storage});
  };
  bench_decode(attention, full);
  bench_contiguous_view(attention);
  bench_chunks(attention);
  bench_latent(attention, full);
  for (const Heads& heads : {kUsual, kGroupsOf4, kWide})
    for (const int tokens : {512, 2048, 8192})
      if (full || heads.query == kUsual.query) prefill(heads, tokens, ops::KvStorage::kAuto);
  for (const ops::KvStorage storage : {ops::KvStorage::kInt8, ops::KvStorage::kFp8}) {
    for (const int batch : {1, 8})
      for (const int context : {512, 4096, 32768})
        attention.run({kUsual, batch, 1, context, 16, BlockOrder::kAscending, storage});
    for (const int tokens : {2048, 8192}) prefill(kUsual, tokens, storage);
  }
}

}  // namespace quire::bench
