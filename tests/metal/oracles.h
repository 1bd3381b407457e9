#pragma once
#include <cmath>
#include <functional>
#include <optional>
#include <vector>

// What kernels must compute, in float64.
namespace quire::emulator::testing {

struct AttentionRow {
  const float* q = nullptr;
  int dim = 0, value_dim = 0;
  std::function<const float*(int)> key, value;  // of a position
  std::function<bool(int)> sees;                // a position
  double scale = 1, softcap = 0, slope = 0;     // slope: ALiBi's, times the distance
  int position = 0;
  std::optional<double> sink = std::nullopt;
};

// The output for `keys` keys; zeros if it sees none. lse: log of the sum of exponentials.
inline std::vector<double> attend(const AttentionRow& row, int keys, double* lse = nullptr) {
  std::vector<double> scores(keys, -INFINITY), out(row.value_dim, 0.0);
  double peak = row.sink.value_or(-INFINITY), sum = 0;
  for (int j = 0; j < keys; ++j) {
    if (!row.sees(j)) continue;
    double score = 0;
    for (int d = 0; d < row.dim; ++d) score += double{row.q[d]} * row.key(j)[d];
    score *= row.scale;
    if (row.softcap > 0) score = row.softcap * std::tanh(score / row.softcap);
    scores[j] = score - row.slope * std::abs(row.position - j);
    peak = std::max(peak, scores[j]);
  }
  if (lse != nullptr) *lse = -INFINITY;
  if (peak == -INFINITY) return out;
  if (row.sink) sum = std::exp(*row.sink - peak);
  for (int j = 0; j < keys; ++j) {
    if (scores[j] == -INFINITY) continue;
    const double p = std::exp(scores[j] - peak);
    sum += p;
    for (int d = 0; d < row.value_dim; ++d) out[d] += p * row.value(j)[d];
  }
  for (double& x : out) x /= sum;
  if (lse != nullptr) *lse = peak + std::log(sum);
  return out;
}

// The gated delta rule of one head, token by token: state [Dv][Dk] is decayed by decay, then
// delta = beta * (v - state k), state += delta k^T, out = state q.
struct DeltaToken {
  const float *q, *k, *v;
  double decay, beta;
};
inline std::vector<double> delta_step(std::vector<double>& state, int k_dim, int v_dim,
                                      const DeltaToken& token) {
  std::vector<double> out(v_dim, 0.0);
  for (int i = 0; i < v_dim; ++i) {
    double* row = &state[size_t(i) * k_dim];
    double seen = 0;
    for (int d = 0; d < k_dim; ++d) {
      row[d] *= token.decay;
      seen += row[d] * token.k[d];
    }
    const double delta = token.beta * (token.v[i] - seen);
    for (int d = 0; d < k_dim; ++d) {
      row[d] += delta * token.k[d];
      out[i] += row[d] * token.q[d];
    }
  }
  return out;
}

}  // namespace quire::emulator::testing
