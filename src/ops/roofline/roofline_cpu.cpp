#include "ops/roofline/roofline_cpu.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/roofline/roofline_cpu.cpp"
#include "ops/cpu/highway.h"

HWY_BEFORE_NAMESPACE();
namespace quire::ops::HWY_NAMESPACE {

// Sums `vectors` x 4 vectors a round from each of kStreams places, `prefetch` bytes ahead of them.
template <int kStreams>
uint32_t ReadStreams(const std::byte* data, int64_t bytes, int64_t prefetch) {
  const UintTag du;
  constexpr int64_t kVectors = 4;
  constexpr int64_t kStep = kVectors * kLanes * static_cast<int64_t>(sizeof(uint32_t));
  const int64_t stream_bytes = bytes / kStreams;
  hn::Vec<UintTag> sums[kVectors];
  for (auto& sum : sums) sum = hn::Zero(du);
  for (int64_t i = 0; i < stream_bytes; i += kStep) {
#pragma GCC unroll 4
    for (int stream = 0; stream < kStreams; ++stream) {
      const std::byte* at = data + stream * stream_bytes + i;
      if (prefetch > 0)
        for (int64_t line = 0; line < kStep; line += 64) __builtin_prefetch(at + prefetch + line);
      const auto* words = reinterpret_cast<const uint32_t*>(at);
      for (int64_t v = 0; v < kVectors; ++v)
        sums[v] = hn::Add(sums[v], hn::LoadU(du, words + v * kLanes));
    }
  }
  const auto sum = hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3]));
  return hn::GetLane(hn::SumOfLanes(du, sum));
}

uint32_t ReadAll(const std::byte* data, int64_t bytes, int64_t prefetch, int streams) {
  return streams == 1 ? ReadStreams<1>(data, bytes, prefetch)
                      : ReadStreams<4>(data, bytes, prefetch);
}

// 12 chains hide a latency of 4 to 6 cycles at two per cycle, and fit 16 registers.
double MultiplyAdd(int64_t rounds, float* sink) {
  constexpr int kChains = 12;
  FloatVec chains[kChains];
  for (auto& chain : chains) chain = hn::Set(kFloats, *sink);
  const FloatVec a = hn::Set(kFloats, *sink * 0.5f), b = hn::Set(kFloats, *sink * 0.25f);
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) chains[c] = hn::MulAdd(chains[c], a, b);
  }
  for (int c = 1; c < kChains; ++c) chains[0] = hn::Add(chains[0], chains[c]);
  *sink = hn::GetLane(chains[0]);
  return 2.0 * kChains * kLanes * rounds;
}

}  // namespace quire::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quire::ops {
HWY_EXPORT(ReadAll);
HWY_EXPORT(MultiplyAdd);
uint32_t read_all_cpu(const std::byte* data, int64_t bytes, int64_t prefetch, int streams) {
  return HWY_DYNAMIC_DISPATCH(ReadAll)(data, bytes, prefetch, streams);
}
double multiply_add_cpu(int64_t rounds, float* sink) {
  return HWY_DYNAMIC_DISPATCH(MultiplyAdd)(rounds, sink);
}
}  // namespace quire::ops
#endif
