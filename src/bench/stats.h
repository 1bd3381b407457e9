#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace quire::bench {

// Of no values, each is 0. As numpy has them, so that figures compare with vLLM's.
double mean(std::span<const double> values);
double standard_deviation(std::span<const double> values);  // of the population
// The value below which `percent` % lie, linear between neighbours. Any order.
double percentile(std::vector<double> values, double percent);

// Fewer tokens of a stream in a row say nothing about its rate.
inline constexpr size_t kFewestGaps = 8;

// Tokens per second while all streams decode: from the moment when the last of them has its first
// token to the one when the first has its last. `times` are those of each stream's tokens, in
// seconds, ascending. A stream's rate is counted from its first to its last token in between, so
// it does not matter in which order a step's tokens arrive. None if a stream has fewer than
// kFewestGaps gaps in between.
std::optional<double> decode_rate(std::span<const std::vector<double>> times);

// The order in which `count` ways take turns in a round, so that none is always first or always
// behind the same other: forwards and backwards from the first, then from the second, and so on.
std::vector<size_t> turn_order(size_t count, int64_t round);

}  // namespace quire::bench
