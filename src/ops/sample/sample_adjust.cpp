#include "ops/sample/sample_adjust.h"

#include <algorithm>
#include <limits>

namespace quire::ops {
namespace {

constexpr float kMinusInf = -std::numeric_limits<float>::infinity();

bool has_penalties(const SampleRow& row) {
  return row.repetition_penalty != 1.0f || row.presence_penalty != 0.0f ||
         row.frequency_penalty != 0.0f;
}

void penalise(const SampleRow& row, const TokenCount& count, float* x, int64_t vocab) {
  if (count.token < 0 || count.token >= vocab) return;
  float& logit = x[count.token];
  if (count.in_prompt || count.in_output > 0)
    logit = logit > 0 ? logit / row.repetition_penalty : logit * row.repetition_penalty;
  if (count.in_output == 0) return;
  logit -= row.frequency_penalty * static_cast<float>(count.in_output);
  logit -= row.presence_penalty;
}

void apply_penalties(const SampleRow& row, int32_t pending, float* x, int64_t vocab) {
  bool met = false;
  for (TokenCount count : row.history) {
    if (count.token == pending) {
      met = true;
      ++count.in_output;
    }
    penalise(row, count, x, vocab);
  }
  if (!met) penalise(row, {.token = pending, .in_output = 1, .in_prompt = false}, x, vocab);
}

// Most words of a grammar's mask are all ones or all zeros.
void apply_mask(const std::vector<uint32_t>& mask, float* x, int64_t vocab) {
  for (int64_t begin = 0; begin < vocab; begin += 32) {
    const uint32_t word = mask[begin / 32];
    if (word == ~0u) continue;
    const int64_t n = std::min<int64_t>(32, vocab - begin);
    if (word == 0) {
      std::fill_n(x + begin, n, kMinusInf);
      continue;
    }
    for (int64_t i = 0; i < n; ++i)
      if (!(word >> i & 1u)) x[begin + i] = kMinusInf;
  }
}

}  // namespace

bool changes_logits(const SampleRow& row) {
  return row.forced_token < 0 && (has_penalties(row) || !row.logit_bias.empty() || row.mask ||
                                  !row.banned.empty() || !row.banned_after.empty());
}

void adjust_logits(const SampleRow& row, int32_t pending, float* x, int64_t vocab) {
  if (has_penalties(row)) apply_penalties(row, pending, x, vocab);
  for (const auto& [token, bias] : row.logit_bias)
    if (token >= 0 && token < vocab) x[token] += bias;
  if (row.mask) apply_mask(*row.mask, x, vocab);
  for (const int32_t token : row.banned)
    if (token >= 0 && token < vocab) x[token] = kMinusInf;
  for (const auto& [before, token] : row.banned_after)
    if (before == pending && pending >= 0 && token >= 0 && token < vocab) x[token] = kMinusInf;
}

}  // namespace quire::ops
