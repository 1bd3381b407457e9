#pragma once
#include "base/deep_tests.h"
#include "engine_harness.h"

namespace quire::engine {

// Calls f(setup, number) with every combination of token budget, block size, prefix cache,
// preemption and lookahead, on one thread or on two, the rest as in `base`, whose max_model_len is
// given. The sum of the five says on how many threads, so any values of four of them meet both
// numbers; the deep ring runs all combinations of the six.
template <class F>
void for_each_schedule(const Arrangement& base, const F& f) {
  int64_t number = 0;
  for (const int64_t budget : {16, 64, 2048})
    for (const int64_t block_size : {8, 16, 160})
      for (const bool prefix_caching : {false, true})
        for (const bool preempt : {false, true})
          for (const bool lookahead : {false, true})
            for (const int threads : {1, 2}) {
              const int sum =
                  (budget == 64) + (block_size == 16) + prefix_caching + preempt + lookahead;
              if (threads != 1 + sum % 2 && !deep_tests()) continue;
              Arrangement setup = base;
              setup.max_num_batched_tokens = budget;
              setup.block_size = block_size;
              setup.prefix_caching = prefix_caching;
              setup.lookahead = lookahead;
              setup.threads = threads;
              // Room for the longest sequence and little more: most running sequences are preempted
              // once.
              if (preempt)
                setup.num_blocks = (base.max_model_len + block_size - 1) / block_size + 1;
              f(setup, ++number);
            }
}

}  // namespace quire::engine
