// Kernels with one mistake each; emulator_test.cpp says which. `reverse` has none.
#include <metal_stdlib>
using namespace metal;

constant int fault [[function_constant(0)]];
constant int kNone = 0, kNoBarrier = 1, kUninitialised = 2, kLaneOff = 3, kSomeBarriers = 4,
             kReturnsEarly = 5, kTwoBarriers = 6, kBeyondGroup = 7, kBeyondBuffer = 8,
             kInactiveLane = 9, kRace = 10, kPartedLanes = 11, kMisaligned = 12,
             kUninitialisedOwn = 13, kOverflow = 14, kWrongFlags = 15;

// out[g * 64 + i] = in[g * 64 + 63 - i] + the sum of the simdgroup's reversed values
[[kernel]] void reverse(const device float* in [[buffer(0)]], device float* out [[buffer(1)]],
                        constant uint& count [[buffer(2)]],
                        uint group [[threadgroup_position_in_grid]],
                        uint i [[thread_index_in_threadgroup]],
                        uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float shared[64];
  if (fault == kReturnsEarly && i == 40) return;
  const uint at = group * 64 + i;
  if (fault != kUninitialised || i != 17) shared[i] = in[at];
  threadgroup float* next = shared + 1;
  if (fault == kBeyondGroup) next[i] = in[at];
  if (fault == kSomeBarriers) {
    if (i < 50) threadgroup_barrier(mem_flags::mem_threadgroup);
  } else if (fault == kTwoBarriers && i < 32) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
  } else if (fault == kWrongFlags) {
    threadgroup_barrier(mem_flags::mem_device);
  } else if (fault != kNoBarrier) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  float value;
  if (fault != kUninitialisedOwn || i != 5) value = shared[63 - i];
  float sum = 0;
  if (fault == kPartedLanes) {
    if (lane < 16)
      sum = simd_sum(value);
    else
      sum = simd_max(value);
  } else if (fault == kLaneOff) {
    sum = value;
    for (ushort step = 16; step > 0; step /= 2) sum += simd_shuffle(sum, ushort(lane + step));
  } else {
    sum = simd_sum(value);
  }
  if (fault == kInactiveLane) {
    if (lane == 3) return;
    sum += simd_shuffle_xor(value, ushort(1));
  }
  if (fault == kOverflow) sum += float(int(count) * 1000000000);
  if (fault == kMisaligned) sum += *(const device float*)((const device char*)in + 4 * at + 2);
  if (fault == kRace)
    out[group] = value;
  else
    out[fault == kBeyondBuffer ? at + count : at] = value + sum;
}

// The sum of a 64 x 64 product, in tiles of 8 x 8; dynamic threadgroup memory.
[[kernel]] void multiply(const device half* a [[buffer(0)]], const device half* b [[buffer(1)]],
                         device float* out [[buffer(2)]], threadgroup half* tile [[threadgroup(0)]],
                         uint2 group [[threadgroup_position_in_grid]],
                         ushort lane [[thread_index_in_simdgroup]]) {
  simdgroup_float8x8 sum = make_filled_simdgroup_matrix<float, 8>(0.0f);
  for (uint k = 0; k < 64; k += 8) {
    for (uint i = lane; i < 64; i += 32) tile[i] = b[(k + i / 8) * 64 + group.x * 8 + i % 8];
    simdgroup_barrier(mem_flags::mem_threadgroup);
    simdgroup_half8x8 left, right;
    simdgroup_load(left, a + group.y * 8 * 64 + k, 64);
    simdgroup_load(right, tile, 8);
    simdgroup_multiply_accumulate(sum, left, right, sum);
    simdgroup_barrier(mem_flags::mem_threadgroup);
  }
  simdgroup_store(sum, out + group.y * 8 * 64 + group.x * 8, 64);
}

// Vectors, packed ones, bfloat, and where threads are in a grid of three dimensions.
template <typename T>
[[kernel]] void vectors(const device packed_float3* in [[buffer(0)]], device T* out [[buffer(1)]],
                        uint3 place [[thread_position_in_grid]], uint3 size [[threads_per_grid]]) {
  const uint at = (place.z * size.y + place.y) * size.x + place.x;
  const float3 v = in[at];
  const float4 w = float4(v.zyx, 0.5f);
  const float2 sums = w.xy + w.zw;
  out[at] = T(sums.x * sums.y + float4(1.0f).w);
}
template [[host_name("vectors_half")]] [[kernel]] decltype(vectors<half>) vectors<half>;
template [[host_name("vectors_bfloat")]] [[kernel]] decltype(vectors<bfloat>) vectors<bfloat>;
