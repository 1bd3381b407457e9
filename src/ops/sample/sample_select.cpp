#include "ops/sample/sample_select.h"

#include <algorithm>

namespace quire::ops {
namespace {

// Below this many, sorting is as fast as halving.
constexpr int64_t kSortBelow = 48;

bool before(const Candidate& a, const Candidate& b) { return a.key > b.key; }

}  // namespace

std::span<Candidate> take_best(std::span<Candidate> candidates, int64_t k) {
  if (k >= static_cast<int64_t>(candidates.size())) return candidates;
  std::nth_element(candidates.begin(), candidates.begin() + k, candidates.end(), before);
  return candidates.first(k);
}

uint64_t cut_at_mass(std::span<Candidate> candidates, double mass) {
  // The answer lies in `rest`; what ranks before it holds `above`.
  std::span<Candidate> rest = candidates;
  double above = 0;
  while (static_cast<int64_t>(rest.size()) > kSortBelow) {
    const size_t half = rest.size() / 2;
    std::nth_element(rest.begin(), rest.begin() + half, rest.end(), before);
    double sum = above;
    for (const Candidate& c : rest.first(half)) sum += c.mass;
    if (sum >= mass) {
      rest = rest.first(half);
    } else {
      rest = rest.subspan(half);
      above = sum;
    }
  }
  std::sort(rest.begin(), rest.end(), before);
  for (const Candidate& c : rest) {
    above += c.mass;
    if (above >= mass) return c.key;
  }
  return rest.back().key;  // rounding: the whole mass is asked for
}

}  // namespace quire::ops
