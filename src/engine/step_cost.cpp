#include "engine/step_cost.h"

#include <algorithm>
#include <cmath>

namespace quire::engine {
namespace {

// One step that took much longer than expected (a page fault, a busy neighbour) says little, and so
// does one that seems to have taken no time, because the one before it was noticed late.
constexpr double kMostSurprise = 4.0;
constexpr double kPaceStep = 0.15;
constexpr double kFastest = 4.0;  // bounds of the pace, both ways: beyond them the fits follow
constexpr int64_t kMostTokens = int64_t{1} << 30;

std::array<double, 3> decode_terms(const StepLoad& load) {
  return {1.0, static_cast<double>(load.decode_rows), static_cast<double>(load.decode_context)};
}

double without_surprise(double seconds, double expected) {
  if (expected <= 0) return seconds;
  return std::clamp(seconds, expected / kMostSurprise, expected * kMostSurprise);
}

}  // namespace

template <size_t N>
void DecayedFit<N>::observe(const Terms& terms, double value) {
  constexpr int kSweeps = 30;  // coordinate descent from the last solution
  if (!(value > 0)) return;
  for (size_t i = 0; i < N; ++i) {
    for (size_t j = 0; j < N; ++j)
      products_[i][j] = keep_ * products_[i][j] + terms[i] / value * (terms[j] / value);
    values_[i] = keep_ * values_[i] + terms[i] / value;
  }
  for (int sweep = 0; sweep < kSweeps; ++sweep) {
    for (size_t i = 0; i < N; ++i) {
      if (products_[i][i] <= 0) continue;
      double rest = values_[i];
      for (size_t j = 0; j < N; ++j)
        if (j != i) rest -= products_[i][j] * coefficients_[j];
      coefficients_[i] = std::max(0.0, rest / products_[i][i]);
    }
  }
  empty_ = false;
}

template <size_t N>
double DecayedFit<N>::predict(const Terms& terms) const {
  double sum = 0;
  for (size_t i = 0; i < N; ++i) sum += coefficients_[i] * terms[i];
  return sum;
}

template class DecayedFit<3>;
template class DecayedFit<4>;

DecayedFit<4>::Terms StepCost::chunk_terms(const StepLoad& load) const {
  return {static_cast<double>(load.prompt_tokens),
          has_chunk_base_ && load.prompt_tokens > 0 ? 1.0 : 0.0,
          static_cast<double>(load.prompt_context), static_cast<double>(load.chunk_context)};
}

template <size_t N>
void StepCost::Estimate<N>::observe(const Terms& terms, double seconds) {
  if (const double plain = fit.predict(terms); plain > 0) {
    pace += kPaceStep * (seconds / plain - pace);
    pace = std::clamp(pace, 1 / kFastest, kFastest);
  }
  fit.observe(terms, seconds);
}

void StepCost::observe(const StepLoad& load, double seconds) {
  if (load.decode_rows + load.prompt_tokens == 0 || !(seconds > 0)) return;
  const double rows = decode_seconds(load), chunks = chunks_.seconds(chunk_terms(load));
  if (load.prompt_tokens == 0) {
    return rows_.observe(decode_terms(load), without_surprise(seconds, rows));
  }
  if (chunks > 0) seconds = without_surprise(seconds, rows + chunks);
  // A chunk costs something, even where the rows' share was overestimated.
  chunks_.observe(chunk_terms(load), std::max(seconds - rows, 0.1 * seconds));
}

double StepCost::decode_seconds(const StepLoad& load) const {
  return load.decode_rows == 0 ? 0 : rows_.seconds(decode_terms(load));
}

double StepCost::chunk_base_seconds() const { return chunks_.pace * chunks_.fit.coefficients()[1]; }

double StepCost::chunk_seconds(int64_t start, int64_t num_tokens) const {
  StepLoad load;
  load.add_chunk(start, num_tokens);
  return chunks_.seconds(chunk_terms(load)) - chunk_base_seconds();
}

// d n + e (n start + n^2 / 2) + f start = seconds, solved for n.
int64_t StepCost::chunk_within(double seconds, int64_t start) const {
  if (chunks_.fit.empty()) return 0;
  const auto [d, base, e, f] = chunks_.fit.coefficients();
  const auto before = static_cast<double>(start);
  const double left = seconds / chunks_.pace - f * before;
  if (left <= 0) return 0;
  const double linear = d + e * (before + 0.5);
  const double root = linear + std::sqrt(linear * linear + 2 * e * left);
  if (root * static_cast<double>(kMostTokens) <= 2 * left) return kMostTokens;
  return static_cast<int64_t>(2 * left / root);
}

}  // namespace quire::engine
