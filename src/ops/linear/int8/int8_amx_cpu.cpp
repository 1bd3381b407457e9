#if defined(__x86_64__)
#include "ops/linear/int8/int8_linear.h"
#include "ops/linear/int8/int8_rows_cpu.h"

#define HWY_COMPILE_ONLY_STATIC
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/linear/int8/int8_amx_cpu.cpp"
#include "ops/cpu/highway.h"
#include "ops/linear/affine/affine_source_amx-inl.h"
#include "ops/linear/dense/quantised_prefetcher-inl.h"
#include "ops/linear/linear_epilogue-inl.h"

namespace quire::ops {
namespace {
namespace hw = HWY_NAMESPACE;

constexpr int64_t kTileBytes = 1024;  // 16 outputs by 64

#define QUIRE_FENCE() asm volatile("" ::: "memory")

// Tiles 0-3 are sums [16 outputs][rows of x], 4-5 weights, 6-7 x.
void load_config(const Int8AmxLayout& layout) {
  TileConfig config;
  for (int i = 0; i < 8; ++i) config.row_bytes[i] = static_cast<uint16_t>(4 * layout.width());
  config.row_bytes[4] = config.row_bytes[5] = static_cast<uint16_t>(layout.step_bytes());
  config.rows[6] = config.rows[7] = static_cast<uint8_t>(layout.step_bytes() / 4);
  load_tile_config(config);
}

// A step of 4-bit weights as bytes. Groups of 32: one nibble of each 16-bit word, byte by byte with
// zeros between; else half H of the words, their two nibbles side by side.
template <int kGroups, int H>
HWY_INLINE void expand_step(const uint8_t* q, uint8_t* out) {
  const __m512i low_bytes = _mm512_set1_epi16(0x00FF), nibbles = _mm512_set1_epi8(0x0F);
#pragma GCC unroll 16
  for (int n = 0; n < 16; ++n) {
    const __m512i v = _mm512_loadu_si512(q + 64 * n);
    __m512i bytes;
    if constexpr (kGroups == 4) {
      bytes = _mm512_and_si512(_mm512_srli_epi16(v, 4 * H), _mm512_set1_epi16(0x000F));
    } else {
      const __m512i low = H ? _mm512_srli_epi16(v, 8) : v;
      const __m512i high = H ? _mm512_srli_epi16(v, 4) : _mm512_slli_epi16(v, 4);
      bytes = _mm512_and_si512(_mm512_ternarylogic_epi64(low_bytes, low, high, 0xCA), nibbles);
    }
    _mm512_store_si512(out + 64 * n, bytes);
  }
}

template <int kGroups>
HWY_INLINE void expand_step(const uint8_t* q, int64_t step, uint8_t* out) {
  switch (step) {
    case 0:
      return expand_step<kGroups, 0>(q, out);
    case 1:
      return expand_step<kGroups, 1>(q, out);
    case 2:
      return expand_step<kGroups, 2 % kGroups>(q, out);
    default:
      return expand_step<kGroups, 3 % kGroups>(q, out);
  }
}

// Where weights come from: in place, expanded on the way, expanded before.
enum class Weights { k8, k4, kExpanded };

// Two panels (or one) and what they are multiplied with. Block b of panel i has its scales at
// scales[i] + b * scale_stride and its values at q[i] + b * q_stride.
struct Job {
  const uint8_t* q[2];
  const uint8_t* scales[2];
  int64_t q_stride, scale_stride;
  int64_t groups;
  FloatType scale_type;
  const QuantisedLayout* layout;
  const uint8_t* x;   // [groups * steps][subs][..]
  const float* side;  // [groups][subs][scale, sum][16]
  int64_t x_step, x_row_bytes;
  float* acc;  // [2 panels][2 subs][16 outputs][16 rows]; a single row: [2][16 outputs]
};

// Each stage writes for the one after it: rings of groups.
constexpr int64_t kTurns = 8;
struct alignas(4096) Buffers {
  uint8_t ring[2][2][2][kTileBytes];  // [turn][panel][step of the group]
  int32_t sums[kTurns][2][2][256];    // [turn][panel][sub]
};

template <Weights kWeights, int kGroups, bool kZeros, int kSubs, int kPanels, bool kOne>
struct Core {
  static constexpr int kSteps = kGroups == 1 ? 2 : 1;
  // So many groups lie between a sum's store and its use: the store comes at the end of the tile
  // unit's latency, and a single row's sums are stored in 16 parts, which no load is forwarded
  // from.
  static constexpr int64_t kLag = kOne ? 5 : 2;
  static constexpr int64_t kQBlock = kWeights == Weights::k4 ? 1024 : 2048;
  const Job& job;
  Buffers& buffers;
  Prefetcher& prefetcher;

  const uint8_t* values(int panel, int64_t group) const {
    return job.q[panel] + group / kGroups * job.q_stride;
  }
  // The tile of a step of a group.
  HWY_INLINE const uint8_t* tile(int panel, int64_t group, int step) const {
    if constexpr (kWeights == Weights::k4) return buffers.ring[group & 1][panel][step];
    const uint8_t* at = values(panel, group);
    const int64_t g = group % kGroups;
    if constexpr (kGroups == 1) return at + step * kTileBytes;
    if constexpr (kGroups == 2 || kWeights == Weights::kExpanded) return at + g * kTileBytes;
    return at + g / 2 * kTileBytes + g % 2 * 32;
  }

  HWY_INLINE void expand(int64_t group) const {
    if constexpr (kWeights == Weights::k4) {
      for (int panel = 0; panel < kPanels; ++panel) {
        const uint8_t* q = values(panel, group);
        for (int step = 0; step < kSteps; ++step)
          expand_step<kGroups == 1 ? 2 : kGroups>(q, kSteps == 2 ? step : group % kGroups,
                                                  buffers.ring[group & 1][panel][step]);
      }
    }
  }

  // The next lines of the stream, as many as a group of one panel takes.
  HWY_INLINE void fetch(int panel, int64_t group) const {
    if constexpr (kWeights == Weights::kExpanded) return;
    constexpr int64_t kBytes = kQBlock / kGroups;
    if (panel == 0 && group % kGroups == 0) {
      prefetcher.seek(job.scales[0] + group / kGroups * job.scale_stride);
      prefetcher.next();  // for the scales
    }
    const int64_t done = (group % kGroups * kPanels + panel) * kBytes;
    for (int64_t i = done / 512; i < (done + kBytes) / 512; ++i) prefetcher.next();
  }

  // The sums of `group`, and, while the tile unit works on them, `before` is added: a piece of 16
  // vectors behind each product.
  HWY_INLINE void multiply(int64_t group, int64_t before) const {
    _tile_zero(0);
    if constexpr (kPanels == 2) _tile_zero(1);
    if constexpr (kSubs == 2) _tile_zero(2);
    if constexpr (kSubs == 2 && kPanels == 2) _tile_zero(3);
    const uint8_t* x = job.x + group * kSteps * kSubs * job.x_step;
    for (int step = 0; step < kSteps; ++step, x += kSubs * job.x_step) {
      const bool last = step == kSteps - 1;
      _tile_loadd(6, x, job.x_row_bytes);
      _tile_loadd(4, tile(0, group, step), 64);
      _tile_dpbusd(0, 4, 6);
      if (last) {
        fetch(0, group);
        add(0, 0, before);
      }
      if constexpr (kPanels == 2) {
        _tile_loadd(5, tile(1, group, step), 64);
        _tile_dpbusd(1, 5, 6);
        if (last) {
          fetch(1, group);
          add(1, 0, before);
        }
      }
      if constexpr (kSubs == 2) {
        _tile_loadd(7, x + job.x_step, job.x_row_bytes);
        _tile_dpbusd(2, 4, 7);
        if (last) add(0, 1, before);
        if constexpr (kPanels == 2) {
          _tile_dpbusd(3, 5, 7);
          if (last) add(1, 1, before);
        }
      }
    }
    auto& sums = buffers.sums[group % kTurns];
    constexpr int64_t kStride = kOne ? 4 : 64;
    _tile_stored(0, sums[0][0], kStride);
    if constexpr (kPanels == 2) _tile_stored(1, sums[1][0], kStride);
    if constexpr (kSubs == 2) _tile_stored(2, sums[0][1], kStride);
    if constexpr (kSubs == 2 && kPanels == 2) _tile_stored(3, sums[1][1], kStride);
  }

  // Scales and biases of a panel's 16 outputs in one group.
  HWY_INLINE void load_scales(int panel, int64_t group, __m512& scale, __m512& bias) const {
    const uint8_t* block = job.scales[panel] + group / kGroups * job.scale_stride;
    if constexpr (kZeros) {
      load_zero_points(*job.layout, block, group % kGroups, scale, bias);
    } else {
      split_scales(job.scale_type, block + group % kGroups * 64, scale, bias);
    }
  }

  // acc += the sums of one panel and one block of rows.
  HWY_INLINE void add(int panel, int sub, int64_t group) const {
    if (group < 0) return;
    const int32_t* sums = buffers.sums[group % kTurns][panel][sub];
    const float* side = job.side + (group * kSubs + sub) * 32;
    __m512 scale, bias;
    load_scales(panel, group, scale, bias);
    if constexpr (kOne) {
      float* acc = job.acc + panel * 16;
      const __m512 sum = _mm512_cvtepi32_ps(_mm512_loadu_si512(sums));
      __m512 v =
          _mm512_fmadd_ps(_mm512_mul_ps(sum, _mm512_set1_ps(side[0])), scale, _mm512_load_ps(acc));
      v = _mm512_fmadd_ps(_mm512_set1_ps(side[16]), bias, v);
      _mm512_store_ps(acc, v);
    } else {
      alignas(64) float scales[16], biases[16];
      _mm512_store_ps(scales, scale);
      _mm512_store_ps(biases, bias);
      float* acc = job.acc + (panel * 2 + sub) * 256;
      const __m512 x_scale = _mm512_load_ps(side), x_sum = _mm512_load_ps(side + 16);
#pragma GCC unroll 16
      for (int n = 0; n < 16; ++n) {
        const __m512 sum = _mm512_cvtepi32_ps(_mm512_load_si512(sums + 16 * n));
        __m512 v = _mm512_fmadd_ps(_mm512_mul_ps(sum, x_scale), _mm512_set1_ps(scales[n]),
                                   _mm512_load_ps(acc + 16 * n));
        v = _mm512_fmadd_ps(x_sum, _mm512_set1_ps(biases[n]), v);
        _mm512_store_ps(acc + 16 * n, v);
      }
    }
  }

  HWY_INLINE void add_all(int64_t group) const {
    for (int panel = 0; panel < kPanels; ++panel)
      for (int sub = 0; sub < kSubs; ++sub) add(panel, sub, group);
  }

  // Weights are expanded a group ahead of their product.
  void run() const {
    expand(0);
    QUIRE_FENCE();
    for (int64_t i = 0; i < job.groups; ++i) {
      if (i + 1 < job.groups) expand(i + 1);
      QUIRE_FENCE();
      multiply(i, i - kLag);
      QUIRE_FENCE();
    }
    for (int64_t i = job.groups - kLag; i < job.groups; ++i) add_all(i);
  }
};

template <Weights kWeights, int kGroups, bool kZeros>
void run_core(const Job& job, Buffers& buffers, int64_t rows, int64_t panels) {
  Prefetcher prefetcher;
  if (rows > 16) {
    panels == 2 ? Core<kWeights, kGroups, kZeros, 2, 2, false>{job, buffers, prefetcher}.run()
                : Core<kWeights, kGroups, kZeros, 2, 1, false>{job, buffers, prefetcher}.run();
  } else if (rows > 1) {
    panels == 2 ? Core<kWeights, kGroups, kZeros, 1, 2, false>{job, buffers, prefetcher}.run()
                : Core<kWeights, kGroups, kZeros, 1, 1, false>{job, buffers, prefetcher}.run();
  } else {
    panels == 2 ? Core<kWeights, kGroups, kZeros, 1, 2, true>{job, buffers, prefetcher}.run()
                : Core<kWeights, kGroups, kZeros, 1, 1, true>{job, buffers, prefetcher}.run();
  }
}

template <Weights kWeights, bool kZeros>
void run_core(const Job& job, Buffers& buffers, int64_t rows, int64_t panels) {
  switch (job.layout->groups()) {
    case 1:
      return run_core<kWeights, 1, kZeros>(job, buffers, rows, panels);
    case 2:
      return run_core<kWeights, 2, kZeros>(job, buffers, rows, panels);
    default:
      return run_core<kWeights, 4, kZeros>(job, buffers, rows, panels);
  }
}

template <Weights kWeights>
void run_core(const Job& job, Buffers& buffers, int64_t rows, int64_t panels) {
  job.layout->zeros == ZeroPoints::kNone ? run_core<kWeights, false>(job, buffers, rows, panels)
                                         : run_core<kWeights, true>(job, buffers, rows, panels);
}

// x of one step of 16 rows from their bytes [16][stride], in the order of the weights.
HWY_INLINE void pack_step(const QuantisedLayout& weights, const int8_t* rows, int64_t stride,
                          int64_t width, uint8_t* out) {
  alignas(64) static constexpr uint8_t kNibbles[64] = {
      0,  32, 1,  33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39, 8,  40, 9,  41, 10, 42,
      11, 43, 12, 44, 13, 45, 14, 46, 15, 47, 16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53,
      22, 54, 23, 55, 24, 56, 25, 57, 26, 58, 27, 59, 28, 60, 29, 61, 30, 62, 31, 63};
  const bool small = weights.group_size == 32;
  __m512i r[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) {
    const int8_t* row = rows + i * stride;
    if (small) {
      const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row));
      r[i] = weights.bits == 4 ? _mm512_cvtepu8_epi16(half) : _mm512_zextsi256_si512(half);
    } else {
      r[i] = _mm512_loadu_si512(row);
      if (weights.bits == 4) r[i] = _mm512_permutexvar_epi8(_mm512_load_si512(kNibbles), r[i]);
    }
  }
  transpose(r);
  const int count = small && weights.bits == 8 ? 8 : 16;
  const __mmask16 lanes = static_cast<__mmask16>((1u << width) - 1);
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i)
    if (i < count) _mm512_mask_storeu_epi32(out + i * 4 * width, lanes, r[i]);
}

}  // namespace

// 16 rows of int8, their scales and sums, and a row in x's dtype.
int64_t int8_amx_pack_scratch(const LinearParams& p) {
  const int64_t groups = p.k / p.group_size;
  return 16 * (p.k + 64) + 2 * groups * 4 + 64 + p.k * 4;
}

void int8_amx_pack(const Int8AmxRowBatch& batch, int64_t block, void* scratch) {
  const LinearParams& p = batch.params;
  const Int8AmxLayout& layout = batch.layout;
  const int64_t groups = layout.groups(), subs = layout.subs(), stride = p.k + 64;
  auto* bytes = static_cast<int8_t*>(scratch);
  auto* scale = reinterpret_cast<float*>(bytes + 16 * stride);
  float* sum = scale + groups;
  auto* row_buffer = reinterpret_cast<uint8_t*>(sum + groups);
  const int64_t first = block * 16, pair = block / subs, sub = block % subs;
  float* side = batch.side + (pair * groups * subs + sub) * 32;
  for (int64_t i = 0; i < 16; ++i) {
    const bool exists = first + i < p.rows;
    if (exists) {
      quantize_row_int8_cpu(p.type, linear_row(p, first + i, row_buffer), p.k, p.group_size,
                            {.q = bytes + i * stride, .scale = scale, .sum = sum});
    } else {
      for (int64_t k = 0; k < p.k; k += 32)
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(bytes + i * stride + k),
                            _mm256_setzero_si256());
    }
    for (int64_t g = 0; g < groups; ++g) {
      side[g * subs * 32 + i] = exists ? scale[g] : 0.0f;
      side[g * subs * 32 + 16 + i] = exists ? sum[g] : 0.0f;
    }
  }
  const int64_t step_k = p.group_size == 32 ? 32 : 64;
  uint8_t* x = batch.x + (pair * layout.steps() * subs + sub) * layout.x_step();
  for (int64_t step = 0; step < layout.steps(); ++step)
    pack_step(layout.weights, bytes + step * step_k, stride, layout.width(),
              x + step * subs * layout.x_step());
}

void int8_amx_multiply(const Int8AmxRowBatch& batch, const Int8AmxBlock& block) {
  const LinearParams& p = batch.params;
  const Int8AmxLayout& layout = batch.layout;
  const QuantisedLayout& weights = layout.weights;
  load_config(layout);
  Buffers buffers;
  alignas(64) float acc[4 * 256], done[32 * 32];
  const auto* first = static_cast<const uint8_t*>(p.w) + weights.offset(block.panel, 0);
  Job job = {.q = {},
             .scales = {first, first + weights.block_bytes()},
             .q_stride = weights.stride(block.panel),
             .scale_stride = weights.stride(block.panel),
             .groups = layout.groups(),
             .scale_type = weights.scale_type,
             .layout = &weights,
             .x = nullptr,
             .side = nullptr,
             .x_step = layout.x_step(),
             .x_row_bytes = 4 * layout.width(),
             .acc = acc};
  const int64_t expanded_bytes = layout.steps() * kTileBytes;
  for (int i = 0; i < 2; ++i)
    job.q[i] = block.expanded ? block.expanded + i * expanded_bytes
                              : job.scales[i] + weights.scale_bytes();
  if (block.expanded) job.q_stride = (weights.group_size == 32 ? 4 : 2) * kTileBytes;
  for (int64_t pair = block.pair_begin; pair < block.pair_end; ++pair) {
    job.x = batch.x + pair * layout.steps() * layout.subs() * layout.x_step();
    job.side = batch.side + pair * layout.groups() * layout.subs() * 32;
    for (int i = 0; i < 4 * 256; i += 16) _mm512_store_ps(acc + i, _mm512_setzero_ps());
    if (block.expanded) {
      run_core<Weights::kExpanded>(job, buffers, p.rows, block.panels);
    } else if (weights.bits == 4) {
      run_core<Weights::k4>(job, buffers, p.rows, block.panels);
    } else {
      run_core<Weights::k8>(job, buffers, p.rows, block.panels);
    }
    const int64_t row = pair * 32, rows = HWY_MIN(32, p.rows - row);
    const float* sums = acc;
    if (p.rows > 1) {
      sums = done;
      for (int64_t i = 0; i < block.panels; ++i)
        for (int64_t sub = 0; sub * 16 < rows; ++sub)
          transpose_sums(acc + (i * 2 + sub) * 256, HWY_MIN(16, rows - sub * 16), 32,
                         done + sub * 16 * 32 + i * 16);
    }
    hw::finish_outputs(p, sums, 32, row, rows, block.panel, block.panels);
  }
  _tile_release();
}

void int8_amx_expand(const QuantisedLayout& layout, const void* data, int64_t panel, uint8_t* out) {
  const auto* block = static_cast<const uint8_t*>(data) + layout.offset(panel, 0);
  const int64_t stride = layout.stride(panel);
  const int64_t steps = layout.k / (layout.group_size == 32 ? 32 : 64);
  const int64_t per_block = layout.group_size == 32 ? 4 : 2;
  for (int64_t i = 0; i < steps; ++i, out += kTileBytes) {
    const uint8_t* q = block + i / per_block * stride + layout.scale_bytes();
    per_block == 4 ? expand_step<4>(q, i % 4, out) : expand_step<2>(q, i % 2, out);
  }
}

}  // namespace quire::ops
#endif
