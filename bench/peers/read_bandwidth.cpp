// Prints how fast this machine reads memory, in GB/s: read_bandwidth THREADS. The best of five
// passes over 1 GiB.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

namespace {

constexpr size_t kWords = size_t{1} << 27;  // 1 GiB: far beyond any cache
constexpr size_t kAhead = 128;              // 1 KiB: where prefetching paid most on Xeons

// Sums words [begin, end); eight sums, so that the loop waits for memory alone.
uint64_t sum(const uint64_t* words, size_t begin, size_t end) {
  uint64_t sums[8] = {};
  for (size_t i = begin; i + 8 <= end; i += 8) {
    __builtin_prefetch(words + i + kAhead);
    for (size_t j = 0; j < 8; ++j) sums[j] += words[i + j];
  }
  return sums[0] + sums[1] + sums[2] + sums[3] + sums[4] + sums[5] + sums[6] + sums[7];
}

}  // namespace

int main(int argc, char** argv) {
  const size_t threads = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 1;
  if (threads == 0 || threads > 1024) return 2;
  const std::vector<uint64_t> words(kWords, 1);
  double best = 0;
  for (int pass = 0; pass < 5; ++pass) {
    std::vector<uint64_t> sums(threads);
    const auto start = std::chrono::steady_clock::now();
    std::vector<std::thread> pool;
    for (size_t t = 0; t < threads; ++t)
      pool.emplace_back([&, t] {
        sums[t] = sum(words.data(), kWords / threads * t, kWords / threads * (t + 1));
      });
    for (auto& thread : pool) thread.join();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    for (const uint64_t s : sums)
      if (s == 0) return 1;
    best = std::max(best, kWords * 8e-9 / seconds.count());
  }
  std::printf("%.1f\n", best);
}
