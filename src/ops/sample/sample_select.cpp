#include "ops/sample/sample_select.h"

#include <algorithm>
#include <array>

namespace quire::ops {
namespace {

constexpr size_t kSortBelow = 48;  // as many are sorted sooner than they are binned
constexpr int kBins = 1024;

// Equal steps of value from the greatest (bin 0) to the least. Doubles: the range of two floats can
// be infinite as a float.
struct Bins {
  double top, scale;

  Bins(float greatest, float least)
      : top(greatest), scale(kBins / (static_cast<double>(greatest) - least)) {}
  int of(float value) const { return std::min(kBins - 1, static_cast<int>((top - value) * scale)); }
};

// Keeps of `rest` (id order) the bin in which the sum, begun at `above`, reaches `mass`, and adds
// to `above` what ranks before it.
std::span<Candidate> narrow(std::span<Candidate> rest, const Bins& bins, double mass,
                            double& above) {
  std::array<double, kBins> sums{};
  for (const Candidate& c : rest) sums[bins.of(c.value)] += c.mass;
  int last = kBins - 1;
  while (sums[last] == 0 && last > 0) --last;
  int bin = 0;
  for (; bin < last && above + sums[bin] < mass; ++bin) above += sums[bin];
  size_t kept = 0;
  for (const Candidate& c : rest)
    if (bins.of(c.value) == bin) rest[kept++] = c;
  return rest.first(kept);
}

}  // namespace

Candidate cut_at_mass(std::span<Candidate> candidates, double mass) {
  std::span<Candidate> rest = candidates;
  double above = 0;
  while (rest.size() > kSortBelow) {
    const auto [least, greatest] = std::minmax_element(
        rest.begin(), rest.end(),
        [](const Candidate& a, const Candidate& b) { return a.value < b.value; });
    if (least->value == greatest->value) break;  // ties: id order is rank order
    rest = narrow(rest, Bins(greatest->value, least->value), mass, above);
  }
  if (rest.size() <= kSortBelow) std::sort(rest.begin(), rest.end(), ranks_before);
  for (const Candidate& c : rest) {
    above += c.mass;
    if (above >= mass) return c;
  }
  return rest.back();
}

}  // namespace quire::ops
