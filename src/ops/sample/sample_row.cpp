#include "ops/sample/sample_row.h"

#include <algorithm>
#include <functional>

#include "ops/sample/philox.h"
#include "ops/sample/sample_adjust.h"
#include "ops/sample/sample_cpu.h"
#include "ops/sample/sample_select.h"

namespace quire::ops {
namespace {

// Grows to the vocabulary once per thread.
struct Scratch {
  std::vector<float> logits;                  // adjusted
  std::vector<float> maxima, ordered_maxima;  // per block
  std::vector<double> masses;                 // per block
  std::vector<int32_t> ids;                   // candidates, ids ascending
  std::vector<float> values, weights;         // theirs
  std::vector<Candidate> candidates;          // the same, for the cuts

  void fit(int64_t vocab) {
    if (static_cast<int64_t>(logits.size()) == vocab) return;
    const int64_t blocks = num_sample_blocks(vocab);
    logits.resize(vocab);
    maxima.resize(blocks);
    masses.resize(blocks);
    for (auto* list : {&values, &weights}) list->resize(vocab + 16);
    ids.resize(vocab + 16);
    candidates.reserve(vocab);
    ordered_maxima.reserve(blocks);
  }
};

// One row's logits with the maxima of its blocks.
struct Logits {
  const float* x;
  int64_t size;
  float max;
};

Logits scan(const float* x, int64_t size, Scratch& s) {
  block_maxima(x, size, s.maxima.data());
  return {x, size, *std::max_element(s.maxima.begin(), s.maxima.end())};
}

bool is_empty(const Logits& logits) { return logits.max < -FLT_MAX; }

int32_t argmax(const Logits& logits, const Scratch& s) {
  const auto block = std::find(s.maxima.begin(), s.maxima.end(), logits.max) - s.maxima.begin();
  int64_t id = block * kSampleBlock;
  while (canonical_logit(logits.x[id]) != logits.max) ++id;
  return static_cast<int32_t>(id);
}

double total_mass(const Logits& logits, float scale, Scratch& s) {
  block_masses(logits.x, logits.size, logits.max, scale, s.masses.data());
  double total = 0;
  for (const double mass : s.masses) total += mass;
  return total;
}

int64_t collect(const Logits& logits, double threshold, Scratch& s) {
  const auto t = static_cast<float>(std::max<double>(threshold, -FLT_MAX));
  return collect_at_least(logits.x, logits.size, s.maxima.data(), t, s.ids.data(), s.values.data());
}

// Collects a set that has the k best. The k-th greatest of the blocks' maxima is a lower bound of
// the k-th greatest logit, and few others exceed it.
int64_t collect_best(const Logits& logits, int64_t k, Scratch& s) {
  if (k > static_cast<int64_t>(s.maxima.size())) return collect(logits, -FLT_MAX, s);
  s.ordered_maxima.assign(s.maxima.begin(), s.maxima.end());
  const auto kth = s.ordered_maxima.begin() + (k - 1);
  std::nth_element(s.ordered_maxima.begin(), kth, s.ordered_maxima.end(), std::greater<float>());
  return collect(logits, *kth, s);
}

void weigh(const Logits& logits, float scale, int64_t count, Scratch& s) {
  softmax_weights(s.values.data(), count, logits.max, scale, s.weights.data());
}

// Collects a set that has the best tokens with this mass, and weighs it. Language models put nearly
// all mass within a few nats of the maximum; the last try takes everything.
int64_t collect_mass(const Logits& logits, float scale, double mass, Scratch& s) {
  for (double nats = 5;; nats *= 2) {
    const bool everything = nats > 40;
    const int64_t count =
        collect(logits, everything ? -FLT_MAX : logits.max - nats / static_cast<double>(scale), s);
    weigh(logits, scale, count, s);
    double sum = 0;
    for (int64_t i = 0; i < count; ++i) sum += s.weights[i];
    if (sum >= mass || everything) return count;
  }
}

// Index of the first of the n weights at which the running sum, begun at `sum`, passes `target`; if
// rounding keeps it below, the last with any weight.
template <class Weight>
int64_t walk(int64_t n, double sum, double target, const Weight& weight) {
  int64_t last = 0;
  for (int64_t i = 0; i < n; ++i) {
    const double w = weight(i);
    if (w <= 0) continue;
    last = i;
    sum += w;
    if (sum > target) break;
  }
  return last;
}

// By inverse CDF over all tokens in id order.
int32_t draw_any(const Logits& logits, float scale, double uniform, Scratch& s) {
  const double target = uniform * total_mass(logits, scale, s);
  double before = 0;
  size_t block = 0;
  for (; block + 1 < s.masses.size(); ++block) {
    if (before + s.masses[block] > target) break;
    before += s.masses[block];
  }
  const int64_t begin = static_cast<int64_t>(block) * kSampleBlock;
  const int64_t n = std::min(kSampleBlock, logits.size - begin);
  softmax_weights(logits.x + begin, n, logits.max, scale, s.weights.data());
  return static_cast<int32_t>(begin +
                              walk(n, before, target, [&](int64_t i) { return s.weights[i]; }));
}

// Puts the first `count` collected tokens into s.candidates, in id order, each with a mass of 1.
void list_candidates(int64_t count, Scratch& s) {
  s.candidates.resize(count);
  for (int64_t i = 0; i < count; ++i)
    s.candidates[i] = {.value = s.values[i], .id = s.ids[i], .mass = 1};
}

// Drops the collected tokens that rank after `cut`, and returns how many stay.
int64_t drop_after(const Candidate& cut, int64_t count, Scratch& s) {
  int64_t kept = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (ranks_before(cut, {.value = s.values[i], .id = s.ids[i]})) continue;
    s.values[kept] = s.values[i];
    s.ids[kept] = s.ids[i];
    s.weights[kept++] = s.weights[i];
  }
  return kept;
}

int64_t keep_best(const Logits& logits, int64_t k, Scratch& s) {
  const int64_t count = collect_best(logits, k, s);
  list_candidates(count, s);
  return drop_after(cut_at_mass(s.candidates, static_cast<double>(k)), count, s);
}

int64_t keep_mass(double mass, int64_t count, Scratch& s) {
  list_candidates(count, s);
  for (int64_t i = 0; i < count; ++i) s.candidates[i].mass = s.weights[i];
  return drop_after(cut_at_mass(s.candidates, mass), count, s);
}

// Collects and weighs the tokens that top_k and top_p leave.
int64_t keep_by_rank_and_mass(const SampleRow& row, const Logits& logits, float scale, Scratch& s) {
  const double p = std::max(0.0, static_cast<double>(row.top_p));
  if (row.top_k <= 0 || row.top_k >= logits.size) {
    const double mass = p * total_mass(logits, scale, s);
    return keep_mass(mass, collect_mass(logits, scale, mass, s), s);
  }
  const int64_t count = keep_best(logits, row.top_k, s);
  weigh(logits, scale, count, s);
  if (p >= 1) return count;
  double total = 0;
  for (int64_t i = 0; i < count; ++i) total += s.weights[i];
  return keep_mass(p * total, count, s);
}

// The bound of min_p on (logit - max) * scale.
double min_p_bound(const SampleRow& row) {
  return row.min_p > 0.0f ? std::min(0.0, std::log(static_cast<double>(row.min_p))) : -HUGE_VAL;
}

// A little more than what min_p alone leaves: its bound holds for a rounded product.
int64_t collect_min_p(const SampleRow& row, const Logits& logits, float scale, Scratch& s) {
  const double reach = min_p_bound(row) / static_cast<double>(scale);
  const double slack = 1e-5 * (std::abs(static_cast<double>(logits.max)) - reach);
  const int64_t count = collect(logits, logits.max + reach - slack, s);
  weigh(logits, scale, count, s);
  return count;
}

// By inverse CDF over the kept tokens in id order.
int32_t draw_kept(const SampleRow& row, const Logits& logits, float scale, double uniform,
                  Scratch& s) {
  const bool ranked = (row.top_k > 0 && row.top_k < logits.size) || row.top_p < 1.0f;
  const int64_t count =
      ranked ? keep_by_rank_and_mass(row, logits, scale, s) : collect_min_p(row, logits, scale, s);
  const double lowest = min_p_bound(row);
  double total = 0;
  for (int64_t i = 0; i < count; ++i) {
    if ((s.values[i] - logits.max) * scale < lowest) s.weights[i] = 0;
    total += s.weights[i];
  }
  return s.ids[walk(count, 0, uniform * total, [&](int64_t i) { return s.weights[i]; })];
}

int32_t draw(const SampleRow& row, const Logits& logits, Scratch& s) {
  if (is_empty(logits)) return -1;
  if (!(row.temperature >= kGreedyBelow)) return argmax(logits, s);
  // Never 0, whatever the thread does with denormals.
  const float scale = 1.0f / std::min(row.temperature, 1e30f);
  const double uniform = sample_uniform(row.seed, row.position);
  const bool all =
      (row.top_k <= 0 || row.top_k >= logits.size) && row.top_p >= 1.0f && row.min_p <= 0.0f;
  return all ? draw_any(logits, scale, uniform, s) : draw_kept(row, logits, scale, uniform, s);
}

// log softmax of the raw logits.
void score(const Logits& logits, int32_t num_top, Scratch& s, SampledRow& out) {
  const double log_total = is_empty(logits) ? 0 : std::log(total_mass(logits, 1.0f, s));
  const auto logprob = [&](float x) {
    return static_cast<float>(static_cast<double>(x) - logits.max - log_total);
  };
  if (out.token >= 0) {
    const float x = canonical_logit(logits.x[out.token]);
    out.logprob = is_empty(logits) ? x : logprob(x);
    out.rank = 1 + static_cast<int32_t>(count_greater(logits.x, logits.size, s.maxima.data(), x));
  }
  if (num_top == 0 || is_empty(logits)) return;  // nothing finite: there is no best token
  const int64_t count = keep_best(logits, num_top, s);
  list_candidates(count, s);
  std::sort(s.candidates.begin(), s.candidates.end(), ranks_before);
  for (int64_t i = 0; i < count; ++i) {
    out.top_ids[i] = s.candidates[i].id;
    out.top_logprobs[i] = logprob(s.candidates[i].value);
  }
}

}  // namespace

void sample_row(const SampleRow& row, int32_t pending, const float* logits, int64_t vocab,
                SampledRow& out) {
  static thread_local Scratch scratch;
  Scratch& s = scratch;
  s.fit(vocab);
  const bool changed = changes_logits(row);
  const float* x = logits;
  if (changed) {
    std::copy_n(logits, vocab, s.logits.data());
    adjust_logits(row, pending, s.logits.data(), vocab);
    x = s.logits.data();
  }
  Logits scanned = scan(x, vocab, s);
  out.token = row.forced_token >= 0 ? row.forced_token : draw(row, scanned, s);
  if (row.num_top_logprobs < 0) return;
  if (changed) scanned = scan(logits, vocab, s);
  score(scanned, row.num_top_logprobs, s, out);
}

}  // namespace quire::ops
