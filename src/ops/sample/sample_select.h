#pragma once
#include <cstdint>
#include <limits>
#include <span>

namespace quire::ops {

// A token that may be sampled. Tokens rank by value (canonical), then by lower id.
struct Candidate {
  float value = -std::numeric_limits<float>::infinity();
  int32_t id = std::numeric_limits<int32_t>::max();
  double mass = 0;  // what counts towards a cut
};

// Whether a ranks before b.
inline bool ranks_before(const Candidate& a, const Candidate& b) {
  return a.value > b.value || (a.value == b.value && a.id < b.id);
}

// The last candidate of the shortest list of best ones whose masses sum to at least `mass` (one
// candidate at least; the last of all if the masses do not reach it). With masses of 1 it is the
// k-th best. `candidates` must be in id order, and loses it. Takes linear time, for any values:
// nothing but the neighbourhood of the answer is sorted.
Candidate cut_at_mass(std::span<Candidate> candidates, double mass);

}  // namespace quire::ops
