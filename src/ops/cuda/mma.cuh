#pragma once
#include "ops/cuda/floats.cuh"

// Tensor cores by mma.sync, and the loads that feed them.
namespace quire::ops {

// c += a b, of a 16 x 16 tile of rows, a 16 x 8 one of columns.
__device__ inline void mma(float (&c)[4], const uint4& a, uint32_t b0, uint32_t b1, DeviceBf16) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}
__device__ inline void mma(float (&c)[4], const uint4& a, uint32_t b0, uint32_t b1, DeviceF16) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}

__device__ inline uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// Four 8 x 8 matrices of 16-bit elements; lane i gives the address of row i % 8 of matrix i / 8.
__device__ inline uint4 load_matrices(const void* p) {
  uint4 v;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(shared_address(p)));
  return v;
}
__device__ inline uint4 load_matrices_transposed(const void* p) {
  uint4 v;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(shared_address(p)));
  return v;
}

// Prefetches the cache line of `p` into the L2 cache.
__device__ inline void prefetch_l2(const void* p) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
}

// 16 bytes of weights, which are read once.
__device__ inline uint4 load_once(const uint4* p) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p));
  return v;
}

// The same if `wanted`, else zeros.
__device__ inline uint4 load_once_if(bool wanted, const uint4* p) {
  uint4 v;
  asm volatile(
      "{ .reg .pred wanted; setp.ne.b32 wanted, %5, 0; mov.b32 %0, 0; mov.b32 %1, 0; mov.b32 %2, "
      "0; "
      "mov.b32 %3, 0; @wanted ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4]; }"
      : "=&r"(v.x), "=&r"(v.y), "=&r"(v.z), "=&r"(v.w)
      : "l"(p), "r"(static_cast<int>(wanted)));
  return v;
}

__device__ inline uint2 load_once_if(bool wanted, const uint2* p) {
  uint2 v;
  asm volatile(
      "{ .reg .pred wanted; setp.ne.b32 wanted, %3, 0; mov.b32 %0, 0; mov.b32 %1, 0; "
      "@wanted ld.global.nc.L1::no_allocate.v2.u32 {%0,%1}, [%2]; }"
      : "=&r"(v.x), "=&r"(v.y)
      : "l"(p), "r"(static_cast<int>(wanted)));
  return v;
}
__device__ inline uint32_t load_once_if(bool wanted, const uint32_t* p) {
  uint32_t v;
  asm volatile(
      "{ .reg .pred wanted; setp.ne.b32 wanted, %2, 0; mov.b32 %0, 0; "
      "@wanted ld.global.nc.L1::no_allocate.u32 %0, [%1]; }"
      : "=&r"(v)
      : "l"(p), "r"(static_cast<int>(wanted)));
  return v;
}

// 16 bytes from global to shared memory, of which `bytes` are read and the rest zeros.
__device__ inline void copy_async(void* to, const void* from, int bytes = 16) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
               "r"(bytes)
               : "memory");
}
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most kLeft groups are under way.
template <int kLeft>
__device__ inline void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}

// Two floats as one register of 16-bit floats, the first one low.
__device__ inline uint32_t pack2(float a, float b, DeviceBf16) {
  const __nv_bfloat162 v = __floats2bfloat162_rn(a, b);
  return *reinterpret_cast<const uint32_t*>(&v);
}
__device__ inline uint32_t pack2(float a, float b, DeviceF16) {
  const __half2 v = __floats2half2_rn(a, b);
  return *reinterpret_cast<const uint32_t*>(&v);
}

}  // namespace quire::ops
