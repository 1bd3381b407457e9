#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <vector>

#include "base/deep_tests.h"
#include "ops/layout/kv_cache.h"
#include "ops/paged_attention/paged_attention.h"
#include "ops/runtime/test_util.h"

// Sequences with random queries, keys and values at all their positions, and steps over them: some
// positions of some sequences, in paged memory of any layout. The same position gets the same data
// whatever step it is in, so that results can be compared.
namespace quire::ops::testing {

struct Heads {
  int heads = 4, kv_heads = 2, dim = 64, value_dim = 64;
};

// Query positions [first, first + count) of a sequence.
struct Segment {
  int sequence, first, count;
};

struct Paging {
  int block_size = 16;
  uint32_t order = 0;    // 0: ascending blocks; else the seed of a permutation of them
  int spare_blocks = 3;  // never written
  float unwritten = std::numeric_limits<float>::quiet_NaN();
  bool later_tokens = false;   // also write the tokens after each segment's last
  bool whole_context = false;  // and let them be keys: a segment is any part of its sequence
  int shift = 0;               // added to all positions: < 0 and some rows are before the first key

  bool writes_all() const { return later_tokens || whole_context; }
};

struct Step {
  mx::array q;
  PagedKv kv;
  BatchLayoutPtr layout;
};

// The code nearest to x, ties to even; independent of the kernels' arithmetic.
inline int8_t int8_code(float x) {
  return static_cast<int8_t>(std::clamp(std::nearbyint(x), -127.0f, 127.0f));
}
inline uint8_t fp8_code(float x) {
  static const std::vector<float> values = [] {
    std::vector<float> all;
    for (uint8_t code = 0; code < 0x7F; ++code) all.push_back(to_float(F8{code}));
    return all;
  }();
  const float size = std::min(std::abs(x), values.back());
  size_t at = std::upper_bound(values.begin(), values.end(), size) - values.begin() - 1;
  if (at + 1 < values.size()) {
    const float below = size - values[at], above = values[at + 1] - size;
    at += above < below || (above == below && at % 2 == 1);
  }
  return static_cast<uint8_t>(at | (std::signbit(x) ? 0x80 : 0));
}

// Codes and scale of one row, as kv_write documents them.
struct CodedRow {
  std::vector<uint8_t> codes;
  float scale;
};
inline CodedRow coded(const float* x, int n, KvStorage storage) {
  const float limit = storage == KvStorage::kInt8 ? 127.0f : 448.0f;
  float absmax = 0;
  bool finite = true;
  for (int i = 0; i < n; ++i) {
    absmax = std::max(absmax, std::abs(x[i]));
    finite = finite && std::isfinite(x[i]);
  }
  CodedRow row{std::vector<uint8_t>(n, 0), absmax / limit};
  if (!finite) row.scale = std::numeric_limits<float>::quiet_NaN();
  if (!finite || absmax == 0) return row;
  for (int i = 0; i < n; ++i) {
    const float scaled = x[i] * (limit / absmax);
    row.codes[i] =
        storage == KvStorage::kInt8 ? static_cast<uint8_t>(int8_code(scaled)) : fp8_code(scaled);
  }
  return row;
}

// The first `count` of a seed's normally distributed values, and maybe more. They are kept, because
// drawing them takes longer than what many tests do with them.
inline const float* normal_values(uint32_t seed, int64_t count) {
  struct Drawn {
    explicit Drawn(uint32_t of) : generator(of) {}
    std::mt19937 generator;
    std::normal_distribution<float> normal;
    std::vector<float> values;
  };
  static std::map<uint32_t, Drawn> all;
  Drawn& drawn = all.try_emplace(seed, seed).first->second;
  while (std::ssize(drawn.values) < count) drawn.values.push_back(drawn.normal(drawn.generator));
  return drawn.values.data();
}

// Whether a grid over instruction sets, dtypes and pools is to have every group of heads, those
// that fill tiles among them; else one group must do. With a sanitizer two of these grids would
// take more than 450 s each on two cores: there the best instruction set alone has all.
inline bool takes_all_groups(const std::string& isa, mx::Dtype dtype) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  if (isa != available_cpu_isas().front()) return false;
#endif
  const bool slow = isa == "portable" || on_emulator();
  return !slow && (dtype == mx::bfloat16 || deep_tests());
}

class Sequences {
 public:
  Sequences(Heads heads, mx::Dtype dtype, std::vector<int> lengths, uint32_t seed = 7,
            KvStorage storage = KvStorage::kAuto)
      : heads_(heads), dtype_(dtype), lengths_(std::move(lengths)), storage_(storage) {
    int64_t used = 0;
    const auto fill = [&](int64_t size) {
      const float* from = normal_values(seed, used + size) + used;
      used += size;
      return std::vector<float>(from, from + size);
    };
    for (const int length : lengths_) {
      q_.push_back(fill(int64_t{length} * heads.heads * heads.dim));
      k_.push_back(fill(int64_t{length} * heads.kv_heads * heads.dim));
      v_.push_back(fill(int64_t{length} * heads.kv_heads * heads.value_dim));
    }
  }

  const Heads& heads() const { return heads_; }
  mx::Dtype dtype() const { return dtype_; }
  std::vector<float>& queries(int sequence) { return q_[sequence]; }
  std::vector<float>& keys(int sequence) { return k_[sequence]; }
  std::vector<float>& values(int sequence) { return v_[sequence]; }

  // The whole of every sequence.
  std::vector<Segment> whole() const {
    std::vector<Segment> segments;
    for (int s = 0; s < static_cast<int>(lengths_.size()); ++s)
      segments.push_back({s, 0, lengths_[s]});
    return segments;
  }

  Step step(const std::vector<Segment>& segments, const Paging& paging = {}) const {
    auto layout = std::make_shared<BatchLayout>();
    layout->block_size = paging.block_size;
    layout->cu_seqlens = {0};
    layout->block_offsets = {0};
    int blocks = 0;
    for (const Segment& s : segments) {
      const int context = paging.whole_context ? lengths_[s.sequence] : s.first + s.count;
      for (int i = 0; i < s.count; ++i) layout->positions.push_back(s.first + i + paging.shift);
      layout->cu_seqlens.push_back(layout->cu_seqlens.back() + s.count);
      layout->seq_lens.push_back(context);
      blocks += ((paging.writes_all() ? lengths_[s.sequence] : context) + paging.block_size - 1) /
                paging.block_size;
      layout->block_offsets.push_back(blocks);
    }
    layout->num_sequences = static_cast<int64_t>(segments.size());
    layout->num_tokens = layout->cu_seqlens.back();
    layout->blocks.resize(blocks + paging.spare_blocks);
    std::iota(layout->blocks.begin(), layout->blocks.end(), 0);
    if (paging.order != 0)
      std::shuffle(layout->blocks.begin(), layout->blocks.end(), std::mt19937(paging.order));
    layout->blocks.resize(blocks);
    blocks += paging.spare_blocks;
    const auto k = pool(segments, *layout, paging, k_, heads_.dim, blocks);
    const auto v = pool(segments, *layout, paging, v_, heads_.value_dim, blocks);
    const mx::Shape shape = {blocks, paging.block_size, heads_.kv_heads, heads_.dim};
    if (storage_ == KvStorage::kAuto) {
      const mx::Shape value_shape = {shape[0], shape[1], shape[2], heads_.value_dim};
      return {queries(segments), {rounded(k, shape), rounded(v, value_shape)}, layout};
    }
    const auto [k_codes, k_scale] = codes(k, paging, heads_.dim);
    const auto [v_codes, v_scale] = codes(v, paging, heads_.value_dim);
    return {queries(segments), {k_codes, v_codes, k_scale, v_scale}, layout};
  }

 private:
  mx::array queries(const std::vector<Segment>& segments) const {
    const int64_t row = int64_t{heads_.heads} * heads_.dim;
    std::vector<float> values;
    for (const Segment& s : segments)
      values.insert(values.end(), q_[s.sequence].begin() + s.first * row,
                    q_[s.sequence].begin() + (s.first + s.count) * row);
    return rounded(values, {static_cast<int>(values.size() / row), heads_.heads, heads_.dim});
  }

  std::vector<float> pool(const std::vector<Segment>& segments, const BatchLayout& layout,
                          const Paging& paging, const std::vector<std::vector<float>>& data,
                          int dim, int blocks) const {
    const int64_t row = int64_t{heads_.kv_heads} * dim;
    std::vector<float> values(blocks * paging.block_size * row, paging.unwritten);
    for (size_t i = 0; i < segments.size(); ++i) {
      const Segment& s = segments[i];
      const int written = paging.writes_all() ? lengths_[s.sequence] : s.first + s.count;
      for (int64_t t = 0; t < written; ++t) {
        const int64_t block = layout.block_table(static_cast<int64_t>(i))[t / paging.block_size];
        const int64_t slot = block * paging.block_size + t % paging.block_size;
        std::copy_n(data[s.sequence].begin() + t * row, row, values.begin() + slot * row);
      }
    }
    return values;
  }

  // A pool's values as codes, and their scales. Slots that were not written have a scale of
  // paging.unwritten and the worst codes there are.
  std::pair<mx::array, mx::array> codes(const std::vector<float>& values, const Paging& paging,
                                        int dim) const {
    const auto own = to_floats(rounded(values, {static_cast<int>(values.size())}));
    const auto rows = static_cast<int>(own.size()) / dim;
    std::vector<uint8_t> all;
    std::vector<float> scales;
    for (int r = 0; r < rows; ++r) {
      const float* row = &own[int64_t{r} * dim];
      const bool written =
          std::memcmp(row, &paging.unwritten, sizeof(float)) != 0 && std::isfinite(row[0]);
      CodedRow coded_row = coded(row, dim, storage_);
      if (!written) {
        coded_row.scale = paging.unwritten;
        for (uint8_t& code : coded_row.codes) code = storage_ == KvStorage::kInt8 ? 0x80 : 0x7F;
      }
      all.insert(all.end(), coded_row.codes.begin(), coded_row.codes.end());
      scales.push_back(coded_row.scale);
    }
    const mx::Shape slots = {rows / heads_.kv_heads / paging.block_size, paging.block_size,
                             heads_.kv_heads};
    const mx::Shape shape = {slots[0], slots[1], slots[2], dim};
    mx::array result(all.begin(), shape, mx::uint8);
    if (storage_ == KvStorage::kInt8) result = mx::view(result, mx::int8);
    mx::array scale(scales.begin(), slots);
    mx::eval(result, scale);
    return {result, scale};
  }

  mx::array rounded(const std::vector<float>& values, mx::Shape shape) const {
    mx::array result = mx::astype(mx::array(values.data(), std::move(shape), mx::float32), dtype_);
    mx::eval(result);
    return result;
  }

  Heads heads_;
  mx::Dtype dtype_;
  std::vector<int> lengths_;
  KvStorage storage_;
  std::vector<std::vector<float>> q_, k_, v_;
};

// Rows [begin, end) of an attention output.
inline mx::array rows_of(const mx::array& out, int begin, int end) {
  return mx::slice(out, {begin, 0, 0}, {end, out.shape(1), out.shape(2)});
}

inline mx::array attend(const Context& context, const Step& step, const AttentionParams& params) {
  mx::array out = paged_attention(context, step.q, step.kv, step.layout, params);
  mx::eval(out);
  return out;
}

inline AttentionWithLse attend_with_lse(const Context& context, const Step& step,
                                        const AttentionParams& params) {
  const AttentionWithLse result =
      paged_attention_with_lse(context, step.q, step.kv, step.layout, params);
  mx::eval(result.out, result.lse);
  return result;
}

// Each (sequence, position) once: all at once, one sequence at a time, on one thread.
inline std::vector<mx::array> solo(const Sequences& sequences, const AttentionParams& params) {
  std::vector<mx::array> out;
  for (const Segment& s : sequences.whole())
    out.push_back(attend(make_context(1), sequences.step({s}), params));
  return out;
}

// Every row of the step has the bits that it has in the solo run.
inline void expect_solo_bits(const std::vector<mx::array>& solo,
                             const std::vector<Segment>& segments, const mx::array& out) {
  int row = 0;
  for (const Segment& s : segments) {
    EXPECT_TRUE(same_bits(rows_of(out, row, row + s.count),
                          rows_of(solo[s.sequence], s.first, s.first + s.count)))
        << "sequence " << s.sequence << " positions " << s.first << " + " << s.count;
    row += s.count;
  }
}

// A slope for each head, some of them 0 or negative.
inline mx::array slopes_of(int heads) {
  std::vector<float> slopes;
  for (int h = 0; h < heads; ++h) slopes.push_back(h % 5 == 3 ? -0.01f : 0.13f * (h % 5));
  return mx::array(slopes.begin(), {heads});
}

// On an NVIDIA GPU: tensor cores for bfloat16 alone, and those of every GPU for codes. Heads of
// more than 512 elements have none, and with less shared memory than Hopper's nor have smaller
// ones.
inline const char* cuda_attention(mx::Dtype dtype, KvStorage storage, int dim) {
  if (dtype != mx::bfloat16) return "cuda_plain";
  const char* kernels = std::getenv("QUIRE_CUDA_KERNELS");
  if (dim > 512 || (kernels && std::string_view(kernels) == "plain")) return "cuda_mma|cuda_plain";
  return storage == KvStorage::kAuto ? "cuda_mma|cuda_sm90|cuda_mma_sm90" : "cuda_mma";
}

// The kernel that serves queries and pools of this dtype under the instruction set in force. AMX
// has none for codes of keys longer than 512.
inline const char* attention_kernel(mx::Dtype dtype, KvStorage storage = KvStorage::kAuto,
                                    int dim = 0) {
  if (on_cuda()) return cuda_attention(dtype, storage, dim);
  if (on_metal()) return "metal";
  if (dtype != mx::bfloat16) return cpu_kernel_name();
  if (use_amx() && (storage != KvStorage::kInt8 || dim <= 512)) return "cpu_amx";
  if (use_avx512_vnni() && storage == KvStorage::kInt8) return "cpu_avx512_vnni";
  return use_avx512_bf16() && storage == KvStorage::kAuto ? "cpu_avx512_bf16" : cpu_kernel_name();
}

inline AttentionParams plain(const Heads& heads) {
  return {.scale = 1.0f / std::sqrt(static_cast<float>(heads.dim))};
}

// Prompts, later parts of prompts and decode rows, with contexts on both sides of a chunk's edge.
inline const std::vector<int> kMixedLengths = {300, 257, 513, 90, 256, 20, 700};
inline const std::vector<Segment> kMixed = {{0, 299, 1},   {1, 256, 1},  {5, 19, 1},
                                            {2, 100, 413}, {3, 0, 90},   {4, 0, 256},
                                            {6, 250, 37},  {6, 511, 20}, {2, 505, 8}};

}  // namespace quire::ops::testing
