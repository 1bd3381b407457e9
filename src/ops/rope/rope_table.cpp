#include <algorithm>
#include <cmath>
#include <numbers>
#include <stdexcept>
#include <string>

#include "ops/rope/rope.h"

// After transformers' modeling_rope_utils.py, tensor by tensor: what is a float32 tensor there is a
// float here, Python's numbers are doubles that become float where they meet a tensor. At position
// 2^15 one unit in the last place of a frequency moves an angle by 2e-3, so the order of operations
// counts.
namespace quire::ops {
namespace {

[[noreturn]] void refuse(const std::string& what) {
  throw std::invalid_argument("rope_frequencies: " + what);
}

void check(const RopeParams& p) {
  using Scaling = RopeParams::Scaling;
  if (p.rotary_dim < 2 || p.rotary_dim % 2 != 0)
    refuse("rotary_dim is " + std::to_string(p.rotary_dim) + ", expected a positive even number");
  if (p.turning_pairs > p.rotary_dim / 2)
    refuse("turning_pairs is " + std::to_string(p.turning_pairs) + ", but there are " +
           std::to_string(p.rotary_dim / 2) + " pairs");
  if (!(p.theta > 0)) refuse("theta must be positive");
  if (p.scaling != Scaling::kDefault && !(p.factor > 0)) refuse("factor must be positive");
  const bool pretrained = p.scaling == Scaling::kLlama3 || p.scaling == Scaling::kYarn ||
                          p.scaling == Scaling::kLongrope;
  if (pretrained && !(p.original_max_position_embeddings > 1))
    refuse("original_max_position_embeddings must be given");
  if (p.scaling == Scaling::kLongrope &&
      static_cast<int64_t>(p.extension_factors.size()) != p.rotary_dim / 2)
    refuse("extension_factors has " + std::to_string(p.extension_factors.size()) +
           " numbers, expected " + std::to_string(p.rotary_dim / 2));
}

// theta^(2i / rotary_dim), rounded from double. Torch's scalar float32 power gives the same; its
// vectorised one is off by one unit in the last place for about one frequency in a hundred.
float power(const RopeParams& p, int64_t i) {
  const float exponent = static_cast<float>(2 * i) / static_cast<float>(p.rotary_dim);
  return static_cast<float>(
      std::pow(static_cast<double>(static_cast<float>(p.theta)), static_cast<double>(exponent)));
}

// Llama 3.1: wavelengths beyond the pretraining context are stretched by the factor, short ones are
// kept, those between are blended.
float llama3(const RopeParams& p, float inv_freq) {
  const double context = p.original_max_position_embeddings;
  const float factor = static_cast<float>(p.factor);
  const float low = static_cast<float>(context / p.low_freq_factor);
  const float high = static_cast<float>(context / p.high_freq_factor);
  // Torch divides a number by a tensor as number * (1 / tensor).
  const float wavelength = 1.0f / inv_freq * static_cast<float>(2 * std::numbers::pi);
  if (wavelength < high) return inv_freq;
  // Between equal bounds there is nothing to blend.
  if (wavelength > low || p.low_freq_factor == p.high_freq_factor) return inv_freq / factor;
  const float smooth =
      (1.0f / wavelength * static_cast<float>(context) - static_cast<float>(p.low_freq_factor)) /
      static_cast<float>(p.high_freq_factor - p.low_freq_factor);
  return (1.0f - smooth) * inv_freq / factor + smooth * inv_freq;
}

// YaRN (Peng et al. 2023, arXiv:2309.00071): dimensions that turn more than beta_fast times within
// the pretraining context are kept, those below beta_slow are interpolated, a ramp between.
struct YarnRamp {
  explicit YarnRamp(const RopeParams& p) {
    low = std::max(edge(p, p.beta_fast, /*up=*/false), 0.0);
    high = std::min(edge(p, p.beta_slow, /*up=*/true), static_cast<double>(p.rotary_dim - 1));
    if (low == high) high += 0.001;
  }
  static double edge(const RopeParams& p, double turns, bool up) {
    const double dim =
        static_cast<double>(p.rotary_dim) *
        std::log(p.original_max_position_embeddings / (turns * 2 * std::numbers::pi)) /
        (2 * std::log(p.theta));
    if (!p.truncate) return dim;
    return up ? std::ceil(dim) : std::floor(dim);
  }
  float at(int64_t i) const {
    const float x =
        (static_cast<float>(i) - static_cast<float>(low)) / static_cast<float>(high - low);
    return std::min(std::max(x, 0.0f), 1.0f);
  }
  double low, high;
};

float yarn(const RopeParams& p, const YarnRamp& ramp, int64_t i) {
  const float frequency = power(p, i);
  const float kept = 1.0f / frequency;
  const float interpolated = 1.0f / (static_cast<float>(p.factor) * frequency);
  const float keep = 1.0f - ramp.at(i);
  return interpolated * (1.0f - keep) + kept * keep;
}

double yarn_mscale(double factor, double mscale) {
  return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

float attention_factor(const RopeParams& p) {
  using Scaling = RopeParams::Scaling;
  if (p.scaling != Scaling::kYarn && p.scaling != Scaling::kLongrope) return 1.0f;
  if (p.attention_factor != 0) return static_cast<float>(p.attention_factor);
  if (p.scaling == Scaling::kLongrope) {
    if (p.factor <= 1) return 1.0f;
    return static_cast<float>(
        std::sqrt(1 + std::log(p.factor) / std::log(p.original_max_position_embeddings)));
  }
  if (p.mscale == 0 || p.mscale_all_dim == 0) return static_cast<float>(yarn_mscale(p.factor, 1.0));
  return static_cast<float>(yarn_mscale(p.factor, p.mscale) /
                            yarn_mscale(p.factor, p.mscale_all_dim));
}

float frequency(const RopeParams& p, int64_t i) {
  using Scaling = RopeParams::Scaling;
  switch (p.scaling) {
    case Scaling::kDefault:
      return 1.0f / power(p, i);
    case Scaling::kLinear:
      return 1.0f / power(p, i) / static_cast<float>(p.factor);
    case Scaling::kLlama3:
      return llama3(p, 1.0f / power(p, i));
    case Scaling::kYarn:
      return yarn(p, YarnRamp(p), i);
    case Scaling::kLongrope:
      return 1.0f / (static_cast<float>(p.extension_factors[i]) * power(p, i));
  }
  refuse("unknown scaling");
}

}  // namespace

RopeFrequencies rope_frequencies(const RopeParams& params) {
  check(params);
  RopeFrequencies result;
  result.attention_factor = attention_factor(params);
  const int64_t pairs = params.rotary_dim / 2;
  const int64_t turning = params.turning_pairs < 0 ? pairs : params.turning_pairs;
  for (int64_t i = 0; i < pairs; ++i)
    result.inv_freq.push_back(i < turning ? frequency(params, i) : 0.0f);
  return result;
}

// Without a value, so that no page is there before a row is.
RopeTable::RopeTable(int64_t dim, int64_t positions, MakeRow make_row)
    : rotary_dim(dim),
      max_positions(positions),
      make_row_(std::move(make_row)),
      rows_(new float[static_cast<size_t>(positions * dim)]) {}

const float* RopeTable::rows_until(int64_t end) const {
  // Some at a time, so that decoding comes here once in a while only: 64 rows take 0.1 ms.
  constexpr int64_t kRowsAtOnce = 64;
  if (computed_.load(std::memory_order_acquire) >= end) return rows_.get();
  const std::lock_guard lock(mutex_);
  const int64_t begin = computed_.load(std::memory_order_relaxed);
  const int64_t next = (end + kRowsAtOnce - 1) / kRowsAtOnce * kRowsAtOnce;
  const int64_t stop = std::max(begin, std::min(next, max_positions));
  for (int64_t position = begin; position < stop; ++position)
    make_row_(position, rows_.get() + position * rotary_dim);
  computed_.store(stop, std::memory_order_release);
  return rows_.get();
}

std::shared_ptr<const RopeTable> make_rope_table(const RopeParams& params, int64_t max_positions) {
  if (max_positions < 1)
    throw std::invalid_argument("make_rope_table: max_positions must be positive");
  const auto make_row = [frequencies = rope_frequencies(params)](int64_t position, float* cos) {
    const size_t half = frequencies.inv_freq.size();
    for (size_t i = 0; i < half; ++i) {
      const double angle = static_cast<float>(position) * frequencies.inv_freq[i];
      cos[i] = static_cast<float>(std::cos(angle)) * frequencies.attention_factor;
      cos[half + i] = static_cast<float>(std::sin(angle)) * frequencies.attention_factor;
    }
  };
  return std::make_shared<const RopeTable>(params.rotary_dim, max_positions, make_row);
}

std::shared_ptr<const RopeTable> make_still_rope_table(int64_t head_dim, int64_t max_positions) {
  if (max_positions < 1 || head_dim < 2)
    throw std::invalid_argument("make_still_rope_table: no positions, or no pair to leave alone");
  // 64 is what the fastest kernels take; fewer dimensions are fewer to multiply by 1.
  const int64_t rotary_dim = std::min<int64_t>(64, head_dim / 2 * 2);
  const auto make_row = [rotary_dim](int64_t, float* row) {
    std::fill_n(row, rotary_dim / 2, 1.0f);
    std::fill_n(row + rotary_dim / 2, rotary_dim / 2, 0.0f);
  };
  return std::make_shared<const RopeTable>(rotary_dim, max_positions, make_row);
}

}  // namespace quire::ops
