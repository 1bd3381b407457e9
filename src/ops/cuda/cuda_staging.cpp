#include "ops/cuda/cuda_staging.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "ops/cuda/cuda_error.h"

namespace quire::ops {

CudaStaging::CudaStaging(CudaStream stream, std::function<void(CUevent_st*)> wait)
    : stream_(stream), wait_(std::move(wait)) {
  void* memory = nullptr;
  check_cuda(cudaMallocHost(&memory, 2 * kHalf), "pinned memory");
  pinned_ = static_cast<std::byte*>(memory);
  for (auto& event : sent_) {
    check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "an event");
    check_cuda(cudaEventRecord(event, stream_), "recording an event");
  }
}

CudaStaging::~CudaStaging() {
  for (auto* event : sent_) cudaEventDestroy(event);
  cudaFreeHost(pinned_);
}

std::byte* CudaStaging::room(size_t bytes) {
  if (filled_ + bytes > kHalf) {
    check_cuda(cudaEventRecord(sent_[half_], stream_), "recording an event");
    half_ = 1 - half_;
    if (cudaEventQuery(sent_[half_]) != cudaSuccess) wait_(sent_[half_]);
    filled_ = 0;
  }
  std::byte* result = pinned_ + static_cast<size_t>(half_) * kHalf + filled_;
  filled_ += (bytes + 255) / 256 * 256;
  return result;
}

void CudaStaging::upload(void* to, const void* from, size_t bytes) {
  constexpr size_t kPiece = kHalf / 2;
  const std::lock_guard lock(mutex_);
  for (size_t done = 0; done < bytes;) {
    const size_t piece = std::min(kPiece, bytes - done);
    std::byte* pinned = room(piece);
    std::memcpy(pinned, static_cast<const std::byte*>(from) + done, piece);
    check_cuda(cudaMemcpyAsync(static_cast<std::byte*>(to) + done, pinned, piece,
                               cudaMemcpyHostToDevice, stream_),
               "a copy to the device");
    done += piece;
  }
}

}  // namespace quire::ops
