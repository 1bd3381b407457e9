#pragma once
#include "engine_harness.h"

namespace quire::engine {

// Calls f(setup, number) with every combination of token budget, block size, prefix cache,
// preemption, lookahead and threads, the rest as in `base`, whose max_model_len is given.
template <class F>
void for_each_schedule(const Arrangement& base, const F& f) {
  int64_t number = 0;
  for (const int64_t budget : {16, 64, 2048})
    for (const int64_t block_size : {8, 16, 160})
      for (const bool prefix_caching : {false, true})
        for (const bool preempt : {false, true})
          for (const bool lookahead : {false, true})
            for (const int threads : {1, 2}) {
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
