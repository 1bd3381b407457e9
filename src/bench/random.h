#pragma once
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

namespace quire::bench {

// Random numbers that are the same with every compiler and library (std's distributions are not):
// splitmix64 (Steele et al. 2014). Streams of one seed are independent.
class Random {
 public:
  Random(uint64_t seed, uint64_t stream) : state_(mix(seed ^ mix(stream))) {}

  uint64_t next() { return mix(state_ += 0x9E3779B97F4A7C15ull); }
  uint64_t below(uint64_t count) { return next() % count; }  // count is small: no bias that matters
  double uniform() { return (static_cast<double>(next() >> 11) + 0.5) * 0x1p-53; }  // in (0, 1)

  double normal() {
    return std::sqrt(-2 * std::log(uniform())) * std::cos(6.283185307179586 * uniform());
  }

  // Gamma of this shape and scale 1 (Marsaglia and Tsang 2000); shape 1 is the exponential.
  double gamma(double shape) {
    if (shape < 1) return gamma(shape + 1) * std::pow(uniform(), 1 / shape);
    const double d = shape - 1.0 / 3, c = 1 / std::sqrt(9 * d);
    for (;;) {
      const double x = normal(), v = std::pow(1 + c * x, 3);
      if (v > 0 && std::log(uniform()) < 0.5 * x * x + d - d * v + d * std::log(v)) return d * v;
    }
  }

  template <class T>
  void shuffle(std::vector<T>& values) {
    for (size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[below(i)]);
  }

 private:
  static uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    return x ^ (x >> 31);
  }

  uint64_t state_;
};

}  // namespace quire::bench
