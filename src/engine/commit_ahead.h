#pragma once
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

#include "engine/kv_pool.h"

namespace quire::engine {

// Commits a pool's memory before steps write to it, on a thread of its own. Memory that a kernel
// touches first holds up every answer of the step: on a virtual machine for some hundred
// milliseconds. Without steps the thread works until `ahead` blocks beyond the used ones are there;
// beside steps it takes a tenth of a core, or all that it needs once the steps are close behind.
class CommitAhead {
 public:
  // The pool must outlive this object. Begins at once.
  CommitAhead(KvPool& pool, int64_t ahead);
  ~CommitAhead();  // waits for the huge page that is under way
  CommitAhead(const CommitAhead&) = delete;
  CommitAhead& operator=(const CommitAhead&) = delete;

  // The blocks below `used_blocks` were in use at some time; `busy`: steps are running.
  void update(int64_t used_blocks, bool busy);

 private:
  void run();
  void rest(std::unique_lock<std::mutex>& lock, std::chrono::nanoseconds worked);

  KvPool& pool_;  // of its members the thread uses what `commit_some` does, and nobody else does
  const int64_t ahead_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t used_blocks_ = 0;
  bool busy_ = false, stopping_ = false;
  std::thread thread_;
};

}  // namespace quire::engine
