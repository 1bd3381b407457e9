#pragma once
// Included by *_amx_cpu.cpp only; everything is in an anonymous namespace, because these files are
// built for one instruction set.
#include <immintrin.h>

#include <cstdint>

namespace quire::ops {
namespace {

// Fetches weights into L2. The hardware's prefetcher runs at most 20 lines ahead in a page and
// stops at its end, which leaves a core's memory queue (48 lines) half empty, and once empty it
// stays so for a memory latency. So weights are asked for a region of eight pages ahead, a line of
// each page in turn: eight streams fill the queue whatever the arithmetic does meanwhile.
//
// A block of b bytes wants one seek() and b / 512 next().
class Prefetcher {
 public:
  // What corresponds to the block that is being read.
  HWY_INLINE void seek(const uint8_t* block) {
    const uintptr_t at = reinterpret_cast<uintptr_t>(block), in_region = at % kRegion;
    at_ = at - in_region + kRegion + (in_region / kPages / 64 * 64);
  }
  // The next line of each page.
  HWY_INLINE void next() {
    for (uintptr_t page = 0; page < kPages; ++page)
      _mm_prefetch(reinterpret_cast<const char*>(at_ + page * kPage), _MM_HINT_T1);
    at_ += 64;
    if (at_ % kPage == 0) at_ += kRegion - kPage;
  }

 private:
  static constexpr uintptr_t kPage = 4096, kPages = 8, kRegion = kPages * kPage;
  uintptr_t at_ = 0;
};

}  // namespace
}  // namespace quire::ops
