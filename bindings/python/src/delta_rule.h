#pragma once
#include <cstdint>
#include <span>

#include "base/parallel.h"
#include "ints.h"
#include "ops/gated_delta_rule/gated_delta_rule_cpu.h"

namespace quire_kernels {

// Sequences of tokens that each advance one slot of a pool of states.
struct DeltaSequences {
  Ints cu_seqlens;                 // [S + 1] first token of each
  Ints slots;                      // [S], each once
  std::span<const uint8_t> fresh;  // [S] 1: the slot's old contents do not count
};

// Throws std::invalid_argument if the sequences do not fit `tokens` rows and a pool of `num_slots`.
void check_sequences(const DeltaSequences& sequences, int64_t tokens, int64_t num_slots);

// Advances all of them on the pool's threads.
void run_delta_rule(quire::ThreadPool& pool, const quire::ops::GatedDeltaRuleParams& params,
                    const DeltaSequences& sequences);

}  // namespace quire_kernels
