#include "ops/sample/sample_cuda.h"

#include "ops/cuda/launch.cuh"
#include "ops/sample/sample_adjust.cuh"
#include "ops/sample/sample_block.cuh"

namespace quire::ops {
namespace {

constexpr float kGreedyBelow = 1e-5f;
static_assert(int64_t{kMostTiles} * kWalkTile == kMaxSampleCudaVocab);

// Philox4x32-10 of (seed, position); philox.h.
__device__ double uniform_of(uint64_t seed, int64_t position) {
  const auto at = static_cast<uint64_t>(position);
  uint32_t c[4] = {static_cast<uint32_t>(at), static_cast<uint32_t>(at >> 32), 0, 0};
  uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * c[0], b = uint64_t{0xCD9E8D57u} * c[2];
    const uint32_t c1 = c[1], c3 = c[3];
    c[0] = static_cast<uint32_t>(b >> 32) ^ c1 ^ k0;
    c[1] = static_cast<uint32_t>(b);
    c[2] = static_cast<uint32_t>(a >> 32) ^ c3 ^ k1;
    c[3] = static_cast<uint32_t>(a);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  const uint64_t bits = static_cast<uint64_t>(c[1]) << 32 | c[0];
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

// The tokens that top_k and top_p leave.
__device__ RankCut cut_of(const SampleCudaRow& row, const LogitRow& logits, float scale,
                          SampleShared& s) {
  RankCut cut;
  const auto mass = [&](uint32_t key) { return logits.mass(value_of(key), scale); };
  if (row.top_k > 0 && row.top_k < logits.size)
    cut = logits.cut(s, static_cast<uint64_t>(row.top_k), cut,
                     [](uint32_t) -> uint64_t { return 1; });
  if (row.top_p >= 1.0f) return cut;
  const uint32_t lowest = max(cut.key, logits.lightest(scale));
  const uint64_t total = logits.sum(s, lowest, [&](uint32_t key, int64_t i) -> uint64_t {
    return cut.keeps(key, i) ? mass(key) : 0;
  });
  const double part = fmax(0.0, static_cast<double>(row.top_p)) * static_cast<double>(total);
  const uint64_t need = max(uint64_t{1}, static_cast<uint64_t>(ceil(part)));
  return logits.cut(s, min(need, total), cut, mass);
}

// By inverse CDF over the kept tokens in id order.
__device__ int32_t draw(const SampleCudaRow& row, const LogitRow& logits, SampleShared& s) {
  if (logits.is_empty()) return -1;
  if (!(row.temperature >= kGreedyBelow)) return logits.argmax;
  const float scale = 1.0f / fminf(row.temperature, 1e30f);
  const RankCut cut = cut_of(row, logits, scale, s);
  const double lowest =
      row.min_p > 0.0f ? fmin(0.0, log(static_cast<double>(row.min_p))) : -HUGE_VAL;
  const auto weigh = [&](uint32_t key, int64_t i) -> uint64_t {
    const float v = value_of(key);
    const bool kept =
        cut.keeps(key, i) && !(static_cast<double>((v - logits.max) * scale) < lowest);
    return kept ? logits.mass(v, scale) : 0;
  };
  const uint32_t lightest = max(cut.key, logits.lightest(scale));
  const uint64_t total = logits.sum(s, lightest, weigh);
  const double target = uniform_of(row.seed, row.position) * static_cast<double>(total);
  return logits.walk(s, lightest, min(static_cast<uint64_t>(target), total - 1), weigh);
}

// The `count` best tokens, sorted, with their logprobs.
__device__ void list_best(const LogitRow& logits, int count, double log_total, SampleShared& s,
                          int32_t* ids, float* logprobs) {
  const RankCut cut =
      logits.cut(s, static_cast<uint64_t>(count), {}, [](uint32_t) -> uint64_t { return 1; });
  if (threadIdx.x == 0) s.count = 0;
  __syncthreads();
  for (int64_t i = threadIdx.x; i < logits.size; i += kSampleThreads) {
    const uint32_t key = key_of(logits.at(i));
    if (key < kLowestFinite || !cut.keeps(key, i)) continue;
    const uint32_t at = atomicAdd(&s.count, 1u);
    s.keys[at] = key;
    s.ids[at] = static_cast<int32_t>(i);
  }
  __syncthreads();
  const auto found = static_cast<int>(s.count);
  for (int i = static_cast<int>(threadIdx.x); i < found; i += kSampleThreads) {
    int rank = 0;
    for (int j = 0; j < found; ++j)
      rank += s.keys[j] > s.keys[i] || (s.keys[j] == s.keys[i] && s.ids[j] < s.ids[i]) ? 1 : 0;
    ids[rank] = s.ids[i];
    logprobs[rank] = static_cast<float>(static_cast<double>(value_of(s.keys[i])) -
                                        static_cast<double>(logits.max) - log_total);
  }
  __syncthreads();
}

// log softmax of the raw logits.
__device__ void score(const SampleCudaParams& p, int64_t r, const SampleCudaRow& row, int32_t token,
                      const LogitRow& logits, SampleShared& s) {
  const uint64_t total = logits.sum(s, logits.lightest(1.0f), [&](uint32_t key, int64_t) {
    return logits.mass(value_of(key), 1.0f);
  });
  const double log_total =
      logits.is_empty() ? 0.0 : log(static_cast<double>(total)) - 40 * 0.69314718055994531;
  if (token >= 0) {
    const float x = logits.at(token);
    const uint64_t greater =
        logits.sum(s, max(kLowestFinite, key_of(x)),
                   [&](uint32_t key, int64_t) -> uint64_t { return value_of(key) > x ? 1 : 0; });
    if (threadIdx.x == 0) {
      p.ranks[r] = 1 + static_cast<int32_t>(greater);
      p.logprobs[r] = logits.is_empty()
                          ? x
                          : static_cast<float>(static_cast<double>(x) -
                                               static_cast<double>(logits.max) - log_total);
    }
  }
  if (row.num_top_logprobs == 0 || logits.is_empty()) return;
  list_best(logits, row.num_top_logprobs, log_total, s, p.top_ids + r * p.width,
            p.top_logprobs + r * p.width);
}

// A cluster of `blocks` blocks a row. They look for the best token together, if the row takes the
// logits as they are; the rest is the first one's.
// Not marked hot: 1,024 threads have 64 registers each, and doubles of seeds and logarithms spill
// some: once a row, in none of the loops over its logits.
__global__ void __launch_bounds__(kSampleThreads)
    sample_rows(const SampleCudaParams p, int blocks) {
  __shared__ SampleShared s;
  arrive_in_cluster();
  begin_dependent();
  const int64_t r = blockIdx.x / blocks;
  const bool is_first = blockIdx.x % blocks == 0;
  const SampleCudaRow row = p.row[r];
  const bool is_padding = row.forced_token >= 0 && row.num_top_logprobs < 0;
  LogitRow raw = {p.logits + r * p.vocab, p.vocab};
  wait_for_cluster();
  if (!is_padding && !changes_logits(row)) raw.scan_in_cluster(blocks, s);
  if (!is_first) return;
  for (int64_t i = threadIdx.x; i < p.width; i += kSampleThreads) {
    p.top_ids[r * p.width + i] = -1;
    p.top_logprobs[r * p.width + i] = 0;
  }
  if (threadIdx.x == 0) {
    p.logprobs[r] = 0;
    p.ranks[r] = 0;
    if (row.forced_token >= 0) p.tokens[r] = row.forced_token;
  }
  if (is_padding) return;
  __syncthreads();
  LogitRow adjusted = raw;
  if (changes_logits(row)) {
    adjusted.x = adjusted_logits(p, row, raw.x, p.scratch + r * p.vocab);
    adjusted.scan(s);
  }
  const int32_t token = row.forced_token >= 0 ? row.forced_token : draw(row, adjusted, s);
  if (threadIdx.x == 0) p.tokens[r] = token;
  if (row.num_top_logprobs < 0) return;
  if (adjusted.x != raw.x) raw.scan(s);
  score(p, r, row, token, raw, s);
}

// One block reads a row in some 30 us: as many as run at once share the rows that there are. The
// best token is the same however it is found.
int blocks_of_row(int64_t rows) {
  constexpr int64_t kBlocksAtOnce = 132;
  int blocks = is_hopper() ? kMostRowBlocks : 1;
  while (blocks > 1 && rows * blocks > kBlocksAtOnce) blocks /= 2;
  return blocks;
}

}  // namespace

void sample_cuda(CudaStream stream, const SampleCudaParams& p) {
  if (p.width > kMaxSampleCudaTop || p.vocab > kMaxSampleCudaVocab)
    throw_from_op("sample", "more logprobs or tokens than the kernel has room for");
  const int blocks = blocks_of_row(p.rows);
  launch_clusters("sample", stream, sample_rows, dim3(static_cast<unsigned>(p.rows * blocks)),
                  static_cast<unsigned>(blocks), kSampleThreads, 0, p, blocks);
}

}  // namespace quire::ops
