#pragma once
#include <cstddef>
#include <functional>
#include <mutex>

#include "ops/cuda/cuda_stream.h"

struct CUevent_st;

namespace quire::ops {

// Copies host memory to a GPU through pinned memory, in two halves: one is filled while the other
// is on its way. Copies are on the stream, in its order; the source may be changed at once. Any
// thread.
class CudaStaging {
 public:
  // `wait`: lets the host wait for an event, and counts that.
  CudaStaging(CudaStream stream, std::function<void(CUevent_st*)> wait);
  ~CudaStaging();
  CudaStaging(const CudaStaging&) = delete;
  CudaStaging& operator=(const CudaStaging&) = delete;

  void upload(void* to, const void* from, size_t bytes);

 private:
  static constexpr size_t kHalf = size_t{8} << 20;

  std::byte* room(size_t bytes);

  std::mutex mutex_;
  CudaStream stream_;
  std::function<void(CUevent_st*)> wait_;
  std::byte* pinned_ = nullptr;
  CUevent_st* sent_[2] = {};  // when a half's copies have been made
  int half_ = 0;
  size_t filled_ = 0;  // bytes of the half
};

}  // namespace quire::ops
