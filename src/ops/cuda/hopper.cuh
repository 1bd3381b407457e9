#pragma once
#include <cuda.h>

#include "ops/cuda/cluster.cuh"
#include "ops/cuda/mma.cuh"

// What only Hopper (sm_90a) has: products of a warpgroup (128 threads) that read shared memory by
// themselves, copies of whole tiles, and barriers in shared memory that count
// both threads and bytes. PTX ISA, sections wgmma, cp.async.bulk.tensor and mbarrier.
namespace quire::ops {

// A barrier in shared memory. Its phases have parities 0, 1, 0, ...
struct Barrier {
  uint64_t state;

  __device__ uint32_t address() const { return shared_address(&state); }
  // For so many arrivals a phase; one thread, before publish_barriers().
  __device__ void init(int arrivals) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(address()), "r"(arrivals) : "memory");
  }
  __device__ void arrive() {
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(address()) : "memory");
  }
  // Arrives; the phase ends when so many bytes have come, too.
  __device__ void expect_bytes(int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(address()), "r"(bytes)
                 : "memory");
  }
  // wait(), for what other blocks of the cluster have sent.
  __device__ void wait_for_cluster_data(uint32_t phase) const {
    asm volatile(
        "{ .reg .pred done; again: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, "
        "[%0], %1; @!done bra again; }" ::"r"(address()),
        "r"(phase & 1)
        : "memory");
  }
  // Until phase `phase` (0, 1, ...), or the one after it, has ended.
  __device__ void wait(uint32_t phase) const {
    asm volatile(
        "{ .reg .pred done; again: mbarrier.try_wait.parity.shared.b64 done, [%0], %1; "
        "@!done bra again; }" ::"r"(address()),
        "r"(phase & 1)
        : "memory");
  }
};

// Makes initialised barriers known to the units that copy.
__device__ inline void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
// Makes what this thread wrote to shared memory known to warpgroup products.
__device__ inline void publish_to_tensor_cores() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// One thread asks for a tile of a matrix in global memory, of which (column, row) is the first
// element; `barrier` counts its bytes.
__device__ inline void copy_tile(void* to, const CUtensorMap& matrix, int column, int row,
                                 const Barrier& barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], "
      "[%1, {%2, %3}], [%4];" ::"r"(shared_address(to)),
      "l"(reinterpret_cast<uint64_t>(&matrix)), "r"(column), "r"(row), "r"(barrier.address())
      : "memory");
}

// What `address` of this block's shared memory is in that of block `rank`. Two floats for there,
// whose bytes `barrier`, there too, counts.
__device__ inline uint32_t address_in_cluster(uint32_t address, int rank) {
  uint32_t there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  return there;
}
__device__ inline void send_in_cluster(uint32_t address, float a, float b, uint32_t barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::
          "r"(address),
      "f"(a), "f"(b), "r"(barrier)
      : "memory");
}

// Until `threads` threads, a multiple of 32, have come to this barrier, 1 to 15 (0 is that of
// __syncthreads). All of them by this one instruction: it is an aligned barrier.
template <int kIndex>
__device__ inline void sync_threads(int threads) {
  asm volatile("bar.sync %0, %1;" ::"n"(kIndex), "r"(threads) : "memory");
}

// The operand B of a product: rows of 64 16-bit elements (128 bytes) in shared memory, each row's
// eight pieces of 16 bytes in the order piece ^ row % 8; `rows` at a multiple of 1 KiB. 16 columns
// further is + 2.
__device__ inline uint64_t swizzled_matrix(const void* rows) {
  constexpr uint64_t kEightRows = 1024 >> 4, kSwizzle128 = 1;
  return (shared_address(rows) & 0x3FFFF) >> 4 | uint64_t{1} << 16 | kEightRows << 32 |
         kSwizzle128 << 62;
}

// The same with columns for rows: rows of 64 elements, each 64 columns of B's 128 or fewer in
// `kPitch` bytes from the last; 16 rows further is + 128.
template <int kPitch>
__device__ inline uint64_t swizzled_columns(const void* rows) {
  constexpr uint64_t kEightRows = 1024 >> 4, kNextColumns = kPitch >> 4, kSwizzle128 = 1;
  return (shared_address(rows) & 0x3FFFF) >> 4 | kNextColumns << 16 | kEightRows << 32 |
         kSwizzle128 << 62;
}

// A warpgroup's registers a thread, multiples of 8: fewer than it was launched with, or more, once
// others have given theirs. All of its threads.
template <int kCount>
__device__ inline void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
}
template <int kCount>
__device__ inline void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
}

// Sums are in registers here: code neither reads nor writes them across this.
template <int kCount>
__device__ inline void fence_sums(float (&c)[kCount]) {
#pragma unroll
  for (float& sum : c) asm volatile("" : "+f"(sum)::"memory");
}
// Before products that add to `c`: what was written to it and to other registers counts.
template <int kCount>
__device__ inline void begin_group_products(float (&c)[kCount]) {
  fence_sums(c);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ inline void commit_group_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Waits until at most kLeft committed groups are under way; with 0 the sums can be read.
template <int kLeft, int kCount>
__device__ inline void wait_group_products(float (&c)[kCount]) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
  if constexpr (kLeft == 0) fence_sums(c);
}

#define QUIRE_SUMS4(c, i) "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3])
#define QUIRE_SUMS16(c, i) \
  QUIRE_SUMS4(c, i), QUIRE_SUMS4(c, i + 4), QUIRE_SUMS4(c, i + 8), QUIRE_SUMS4(c, i + 12)
#define QUIRE_SUMS32(c, i) QUIRE_SUMS16(c, i), QUIRE_SUMS16(c, i + 16)
#define QUIRE_SUMS64(c, i) QUIRE_SUMS32(c, i), QUIRE_SUMS32(c, i + 32)
#define QUIRE_NAMES4 "%0,%1,%2,%3"
#define QUIRE_NAMES16 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define QUIRE_NAMES32 \
  QUIRE_NAMES16 ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define QUIRE_NAMES64                                                                     \
  QUIRE_NAMES32                                                                           \
  ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52," \
  "%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
// c = a x^T, or c += where `add`, of 64 rows of `a` (16 a warp, as mma() has them) and as many
// tokens as `c` has floats times two. c is laid out as mma()'s, tile after tile of 8 tokens.
// group_product_columns: c += a x, `x` being swizzled_columns.
#define QUIRE_GROUP_PRODUCT(name, columns, T, type, count, tokens, names, inputs, adds, ...)    \
  __device__ inline void name(float(&c)[count], const uint4& a, uint64_t x, bool add, T) {      \
    asm volatile("{ .reg .pred adds; setp.ne.b32 adds, " adds                                   \
                 ", 0; wgmma.mma_async.sync.aligned.m64n" tokens "k16.f32." type "." type       \
                 " {" names "}, " inputs ", adds, 1, 1, " columns "; }"                         \
                 : __VA_ARGS__                                                                  \
                 : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "l"(x), "r"(static_cast<int>(add))); \
  }
#define QUIRE_GROUP_PRODUCTS(name, columns, T, type)                                              \
  QUIRE_GROUP_PRODUCT(name, columns, T, type, 4, "8", QUIRE_NAMES4, "{%4,%5,%6,%7}, %8", "%9",    \
                      QUIRE_SUMS4(c, 0))                                                          \
  QUIRE_GROUP_PRODUCT(name, columns, T, type, 16, "32", QUIRE_NAMES16, "{%16,%17,%18,%19}, %20",  \
                      "%21", QUIRE_SUMS16(c, 0))                                                  \
  QUIRE_GROUP_PRODUCT(name, columns, T, type, 32, "64", QUIRE_NAMES32, "{%32,%33,%34,%35}, %36",  \
                      "%37", QUIRE_SUMS32(c, 0))                                                  \
  QUIRE_GROUP_PRODUCT(name, columns, T, type, 64, "128", QUIRE_NAMES64, "{%64,%65,%66,%67}, %68", \
                      "%69", QUIRE_SUMS64(c, 0))
QUIRE_GROUP_PRODUCTS(group_product, "0", DeviceBf16, "bf16")
QUIRE_GROUP_PRODUCTS(group_product, "0", DeviceF16, "f16")
QUIRE_GROUP_PRODUCTS(group_product_columns, "1", DeviceBf16, "bf16")
#undef QUIRE_GROUP_PRODUCTS
#undef QUIRE_GROUP_PRODUCT
#undef QUIRE_NAMES64
#undef QUIRE_NAMES32
#undef QUIRE_NAMES16
#undef QUIRE_NAMES4
#undef QUIRE_SUMS64
#undef QUIRE_SUMS32
#undef QUIRE_SUMS16
#undef QUIRE_SUMS4

}  // namespace quire::ops
