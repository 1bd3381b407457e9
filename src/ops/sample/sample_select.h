#pragma once
#include <cstring>
#include <span>

#include "ops/half.h"

namespace quire::ops {

// The order of tokens as one integer: greater logit first, then lower id. Values are canonical (no
// NaN, no -0), so float order is the order of the sign-adjusted bits.
inline uint64_t order_key(float value, int32_t id) {
  const uint32_t bits = float_to_bits(value);
  const uint32_t ordered = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return static_cast<uint64_t>(ordered) << 32 | ~static_cast<uint32_t>(id);
}
inline int32_t id_of_key(uint64_t key) { return static_cast<int32_t>(~static_cast<uint32_t>(key)); }

struct Candidate {
  uint64_t key = 0;
  double mass = 0;
};

// Moves the k best candidates to the front (all of them if there are fewer), in no particular
// order, and returns that part.
std::span<Candidate> take_best(std::span<Candidate> candidates, int64_t k);

// The key of the last candidate of the shortest list of best ones that holds `mass`; of the best
// one at least. Permutes the candidates. Takes linear time: it halves the range that holds the
// answer and never sorts the rest.
uint64_t cut_at_mass(std::span<Candidate> candidates, double mass);

}  // namespace quire::ops
