#include "ops/sample/sample_reference.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <limits>
#include <numeric>

#include "ops/sample/philox.h"

namespace quire::ops {
namespace {

constexpr float kMinusInf = -std::numeric_limits<float>::infinity();

float canonical(float x) {
  if (std::isnan(x)) return kMinusInf;
  return std::fpclassify(x) == FP_SUBNORMAL ? 0.0f : std::min(x, FLT_MAX);
}

// Logits after penalties, bias, mask and bans.
std::vector<float> adjusted(const SampleRow& row, int32_t pending, const float* logits,
                            int64_t vocab) {
  std::vector<float> x(logits, logits + vocab);
  for (int32_t id = 0; id < vocab; ++id) {
    int32_t produced = id == pending ? 1 : 0;
    bool seen = id == pending;
    for (const TokenCount& count : row.history) {
      if (count.token != id) continue;
      produced += count.in_output;
      seen = seen || count.in_prompt || count.in_output > 0;
    }
    if (seen) x[id] = x[id] > 0 ? x[id] / row.repetition_penalty : x[id] * row.repetition_penalty;
    if (produced > 0) {
      x[id] -= row.frequency_penalty * static_cast<float>(produced);
      x[id] -= row.presence_penalty;
    }
    for (const auto& [token, bias] : row.logit_bias)
      if (token == id) x[id] += bias;
    if (row.mask && !((*row.mask)[id / 32] >> (id % 32) & 1u)) x[id] = kMinusInf;
    if (std::count(row.banned.begin(), row.banned.end(), id) > 0) x[id] = kMinusInf;
    if (pending < 0) continue;
    const auto& after = row.banned_after;
    if (std::count(after.begin(), after.end(), std::pair(pending, id)) > 0) x[id] = kMinusInf;
  }
  return x;
}

// Ids of finite logits, best first.
std::vector<int32_t> ranked(std::vector<float>& x) {
  for (float& value : x) value = canonical(value);
  std::vector<int32_t> ids;
  for (size_t id = 0; id < x.size(); ++id)
    if (x[id] > kMinusInf) ids.push_back(static_cast<int32_t>(id));
  std::stable_sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) { return x[a] > x[b]; });
  return ids;
}

// Draws one of `ids` by inverse CDF in id order, and lowers `margin` to the distance to the edges.
int32_t draw(std::vector<int32_t> ids, const std::vector<double>& mass, double uniform,
             double& margin) {
  std::sort(ids.begin(), ids.end());
  double total = 0, sum = 0;
  for (const int32_t id : ids) total += mass[id];
  for (const int32_t id : ids) {
    const double edge = sum / total;
    sum += mass[id];
    if (sum <= uniform * total) continue;
    if (edge > 0) margin = std::min(margin, uniform - edge);
    if (sum < total) margin = std::min(margin, sum / total - uniform);
    return id;
  }
  return ids.back();
}

int32_t choose(const SampleRow& row, std::vector<float> x, double& margin) {
  std::vector<int32_t> ids = ranked(x);
  if (ids.empty()) return -1;
  if (row.temperature < kGreedyBelow) return ids.front();
  const float max = x[ids.front()];
  std::vector<double> mass(x.size(), 0.0), z(x.size(), 0.0);
  for (const int32_t id : ids) {
    z[id] = (x[id] - max) * (1.0f / row.temperature);  // in float32: the definition
    mass[id] = std::exp(z[id]);
  }
  if (row.top_k > 0 && row.top_k < static_cast<int64_t>(ids.size())) ids.resize(row.top_k);
  if (row.top_p < 1.0f) {
    double total = 0, above = 0;
    for (const int32_t id : ids) total += mass[id];
    size_t kept = 0;
    while (kept < ids.size() && (kept == 0 || above < row.top_p * total)) {
      above += mass[ids[kept++]];
      margin = std::min(margin, std::abs(above / total - row.top_p));
    }
    ids.resize(kept);
  }
  if (row.min_p > 0)
    std::erase_if(ids, [&](int32_t id) {
      return z[id] < std::min(0.0, std::log(static_cast<double>(row.min_p)));
    });
  return draw(std::move(ids), mass, sample_uniform(row.seed, row.position), margin);
}

}  // namespace

double sample_row_reference(const SampleRow& row, int32_t pending, const float* logits,
                            int64_t vocab, SampledRow& out) {
  double margin = 1;
  out.token = row.forced_token >= 0 ? row.forced_token
                                    : choose(row, adjusted(row, pending, logits, vocab), margin);
  if (row.num_top_logprobs < 0) return margin;
  std::vector<float> raw(logits, logits + vocab);
  const std::vector<int32_t> ids = ranked(raw);
  double total = 0;
  for (const int32_t id : ids) total += std::exp(static_cast<double>(raw[id]) - raw[ids[0]]);
  const auto logprob = [&](int32_t id) {
    return raw[id] > kMinusInf
               ? static_cast<float>(static_cast<double>(raw[id]) - raw[ids[0]] - std::log(total))
               : kMinusInf;
  };
  if (out.token >= 0) {
    out.logprob = logprob(out.token);
    out.rank = 1 + static_cast<int32_t>(std::count_if(raw.begin(), raw.end(),
                                                      [&](float x) { return x > raw[out.token]; }));
  }
  const size_t best = std::min<size_t>(ids.size(), row.num_top_logprobs);
  for (size_t i = 0; i < best; ++i) {
    out.top_ids[i] = ids[i];
    out.top_logprobs[i] = logprob(ids[i]);
  }
  return margin;
}

}  // namespace quire::ops
