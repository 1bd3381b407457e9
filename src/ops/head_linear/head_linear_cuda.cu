#include "ops/head_linear/head_linear_cuda.h"

#include <algorithm>

#include "ops/cuda/copy.cuh"
#include "ops/cuda/launch.cuh"

// The rows of each head are gathered behind each other, multiplied as those of an expert are, and
// put in their places.
namespace quire::ops {
namespace {

constexpr int kThreads = 64;
// What gathered rows and their products may take.
constexpr int64_t kMostScratch = int64_t{64} << 20;

// Some tokens of a call, sorted by head: row h * tokens + t.
struct HeadRows {
  int64_t heads, first, tokens;  // first: token of the call
  int64_t k, n, passed;          // in bytes, of a row and head
  char *x, *y;                   // scratch: [heads][tokens][k], [heads][tokens][n]
  LinearCudaTile* tiles;
  int32_t* num_tiles;
};

constexpr int64_t tiles_of(int64_t tokens) {
  return (tokens + kLinearCudaTile - 1) / kLinearCudaTile;
}

int64_t element_bytes(const HeadLinearCudaParams& p) { return float_type_bytes(p.layout.type); }

// Tokens that are done at a time.
int64_t tokens_at_once(const HeadLinearCudaParams& p) {
  const int64_t token_bytes = p.heads * (p.layout.k + p.layout.n) * element_bytes(p);
  const int64_t most = std::max(kLinearCudaTile, kMostScratch / token_bytes);
  return std::min(p.tokens, most / kLinearCudaTile * kLinearCudaTile);
}

// The pieces of the scratch; returns its bytes.
size_t place_scratch(const HeadLinearCudaParams& p, int64_t tokens, HeadRows& rows) {
  const auto aligned = [](int64_t bytes) { return (bytes + 127) / 128 * 128; };
  const int64_t pairs = p.heads * tokens, size = element_bytes(p);
  const int64_t tile_bytes =
      p.heads * tiles_of(tokens) * static_cast<int64_t>(sizeof(LinearCudaTile));
  char* at = static_cast<char*>(p.scratch);
  const auto take = [&](int64_t bytes) {
    char* piece = at;
    at += aligned(bytes);
    return piece;
  };
  rows.x = take(pairs * p.layout.k * size);
  rows.y = take(pairs * p.layout.n * size);
  rows.tiles = reinterpret_cast<LinearCudaTile*>(take(tile_bytes));
  rows.num_tiles = reinterpret_cast<int32_t*>(take(4));
  return static_cast<size_t>(at - static_cast<char*>(p.scratch));
}

// A block for each token and head: what passes goes to its place, the rest to its head's rows.
__global__ void __launch_bounds__(kThreads) hot_gather(const HeadRows r, const char* x, char* y) {
  begin_dependent();
  const int64_t t = blockIdx.x, h = blockIdx.y, at = (r.first + t) * r.heads + h;
  const char* from = x + at * (r.passed + r.k);
  block_copy(from, y + at * (r.n + r.passed) + r.n, r.passed);
  block_copy(from + r.passed, r.x + (h * r.tokens + t) * r.k, r.k);
  if (threadIdx.x != 0) return;
  if (t % kLinearCudaTile == 0)
    r.tiles[h * tiles_of(r.tokens) + t / kLinearCudaTile] = {
        static_cast<int32_t>(h), static_cast<int32_t>(h * r.tokens + t),
        static_cast<int32_t>(min(kLinearCudaTile, r.tokens - t))};
  if (t == 0 && h == 0) *r.num_tiles = static_cast<int32_t>(r.heads * tiles_of(r.tokens));
}

__global__ void __launch_bounds__(kThreads) hot_scatter(const HeadRows r, char* y) {
  begin_dependent();
  const int64_t t = blockIdx.x, h = blockIdx.y, at = (r.first + t) * r.heads + h;
  block_copy(r.y + (h * r.tokens + t) * r.n, y + at * (r.n + r.passed), r.n);
}

}  // namespace

size_t head_linear_cuda_scratch_bytes(const HeadLinearCudaParams& p) {
  HeadRows rows = {};
  return p.tokens == 0 ? 0 : place_scratch(p, tokens_at_once(p), rows);
}

const char* head_linear_cuda(CudaStream stream, const HeadLinearCudaParams& p) {
  const char* name = nullptr;
  const int64_t step = p.tokens == 0 ? 1 : tokens_at_once(p), size = element_bytes(p);
  for (int64_t first = 0; first < p.tokens; first += step) {
    HeadRows rows = {.heads = p.heads,
                     .first = first,
                     .tokens = std::min(step, p.tokens - first),
                     .k = p.layout.k * size,
                     .n = p.layout.n * size,
                     .passed = p.passed * size};
    place_scratch(p, rows.tokens, rows);
    const dim3 grid(static_cast<unsigned>(rows.tokens), static_cast<unsigned>(p.heads));
    launch("head_linear", stream, hot_gather, grid, kThreads, 0, rows,
           static_cast<const char*>(p.x), static_cast<char*>(p.y));
    LinearCudaParams linear = {.layout = p.layout,
                               .out_type = p.layout.type,
                               .rows = p.heads * rows.tokens,
                               .x = rows.x,
                               .y = rows.y};
    linear.tiles = rows.tiles;
    linear.num_tiles = rows.num_tiles;
    linear.max_tiles = p.heads * tiles_of(rows.tokens);
    linear.expert_weights = p.weights;
    name = joined_name(name, linear_cuda(stream, linear));
    launch("head_linear", stream, hot_scatter, grid, kThreads, 0, rows, static_cast<char*>(p.y));
  }
  return name;
}

}  // namespace quire::ops
