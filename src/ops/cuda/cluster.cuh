#pragma once
#include <cstdint>

// Blocks that run at the same time and reach each other's shared memory (launch_clusters in
// launch.cuh). Only Hopper has them: in code for other devices a block is a cluster of its own.
// PTX ISA, sections barrier.cluster and mapa.
namespace quire::ops {

// Which of its cluster's blocks this is.
__device__ inline int rank_in_cluster() {
#if __CUDA_ARCH__ >= 900
  uint32_t rank;
  asm("mov.u32 %0, %cluster_ctarank;" : "=r"(rank));
  return static_cast<int>(rank);
#else
  return 0;
#endif
}

// A barrier in two halves, which says that all blocks of the cluster run and have what was
// published before it; it orders nothing else. All threads come to both.
__device__ inline void arrive_in_cluster() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#endif
}
__device__ inline void wait_for_cluster() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}
// A barrier of all threads of the cluster, behind which they see what was written before it.
__device__ inline void sync_cluster() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::
                   : "memory");
#endif
}

// Writes where block `rank` has what `mine` is in this block's shared memory.
__device__ inline void write_in_cluster(uint64_t* mine, int rank, uint64_t value) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "{ .reg .b32 there; mapa.shared::cluster.u32 there, %0, %1; "
      "st.shared::cluster.u64 [there], %2; }" ::"r"(
          static_cast<uint32_t>(__cvta_generic_to_shared(mine))),
      "r"(rank), "l"(value)
      : "memory");
#else
  *mine = value;
#endif
}

}  // namespace quire::ops
