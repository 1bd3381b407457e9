#pragma once
#include <span>
#include <vector>

namespace quire::cli {

// Of no values, each is 0. As numpy has them, so that figures compare with vLLM's.
double mean(std::span<const double> values);
double standard_deviation(std::span<const double> values);  // of the population
// The value below which `percent` % lie, linear between neighbours. Any order.
double percentile(std::vector<double> values, double percent);

}  // namespace quire::cli
