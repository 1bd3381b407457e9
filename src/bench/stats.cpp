#include "bench/stats.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace quire::bench {

double mean(std::span<const double> values) {
  if (values.empty()) return 0;
  double sum = 0;
  for (const double v : values) sum += v;
  return sum / static_cast<double>(values.size());
}

double standard_deviation(std::span<const double> values) {
  if (values.empty()) return 0;
  const double middle = mean(values);
  double sum = 0;
  for (const double v : values) sum += (v - middle) * (v - middle);
  return std::sqrt(sum / static_cast<double>(values.size()));
}

double percentile(std::vector<double> values, double percent) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double at = std::clamp(percent, 0.0, 100.0) / 100 * static_cast<double>(values.size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (values[above] - values[below]) * (at - static_cast<double>(below));
}

std::optional<double> decode_rate(std::span<const std::vector<double>> times) {
  double begin = 0, end = std::numeric_limits<double>::infinity(), rate = 0;
  for (const std::vector<double>& stream : times) {
    if (stream.empty()) return std::nullopt;
    begin = std::max(begin, stream.front());
    end = std::min(end, stream.back());
  }
  for (const std::vector<double>& stream : times) {
    const auto first = std::lower_bound(stream.begin(), stream.end(), begin);
    const auto behind = std::upper_bound(first, stream.end(), end);
    if (behind - first <= static_cast<ptrdiff_t>(kFewestGaps)) return std::nullopt;
    rate += static_cast<double>(behind - first - 1) / (*(behind - 1) - *first);
  }
  return rate;
}

std::vector<size_t> turn_order(size_t count, int64_t round) {
  std::vector<size_t> order(count);
  for (size_t i = 0; i < count; ++i) order[i] = (static_cast<size_t>(round / 2) + i) % count;
  if (round % 2 != 0) std::reverse(order.begin(), order.end());
  return order;
}

}  // namespace quire::bench
