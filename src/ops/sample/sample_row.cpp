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
  std::vector<Candidate> order;               // the same, for selection

  void fit(int64_t vocab) {
    if (static_cast<int64_t>(logits.size()) == vocab) return;
    const int64_t blocks = num_sample_blocks(vocab);
    logits.resize(vocab);
    maxima.resize(blocks);
    masses.resize(blocks);
    for (auto* list : {&values, &weights}) list->resize(vocab + 16);
    ids.resize(vocab + 16);
    order.reserve(vocab);
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

double total_mass(const Logits& logits, float temperature, Scratch& s) {
  block_masses(logits.x, logits.size, logits.max, temperature, s.masses.data());
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

void weigh(const Logits& logits, float temperature, int64_t count, Scratch& s) {
  softmax_weights(s.values.data(), count, logits.max, temperature, s.weights.data());
}

// Collects a set that has the best tokens with the share p of the mass, and weighs it. Language
// models put nearly all mass within a few nats of the maximum; the last try takes everything.
int64_t collect_mass(const Logits& logits, float temperature, double mass, Scratch& s) {
  for (double nats = 5;; nats *= 2) {
    const bool everything = nats > 40;
    const double reach = nats * static_cast<double>(temperature);
    const int64_t count = collect(logits, everything ? -FLT_MAX : logits.max - reach, s);
    weigh(logits, temperature, count, s);
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
int32_t draw_any(const Logits& logits, float temperature, double uniform, Scratch& s) {
  const double target = uniform * total_mass(logits, temperature, s);
  double before = 0;
  size_t block = 0;
  for (; block + 1 < s.masses.size(); ++block) {
    if (before + s.masses[block] > target) break;
    before += s.masses[block];
  }
  const int64_t begin = static_cast<int64_t>(block) * kSampleBlock;
  const int64_t n = std::min(kSampleBlock, logits.size - begin);
  softmax_weights(logits.x + begin, n, logits.max, temperature, s.weights.data());
  return static_cast<int32_t>(begin +
                              walk(n, before, target, [&](int64_t i) { return s.weights[i]; }));
}

// What of the collected candidates stays: those ranked no lower than `key`, and no less likely than
// min_p times the best.
struct Cut {
  uint64_t key = 0;
  double lowest = 0;  // of (logit - max) / temperature
};

// Collects candidates and finds the cut; s.weights are theirs.
int64_t select(const SampleRow& row, const Logits& logits, float temperature, Cut& cut,
               Scratch& s) {
  const bool by_rank = row.top_k > 0 && row.top_k < logits.size, by_mass = row.top_p < 1.0f;
  const double p = std::max(0.0, static_cast<double>(row.top_p));
  cut.lowest = row.min_p > 0.0f ? std::min(0.0, std::log(static_cast<double>(row.min_p)))
                                : -std::numeric_limits<double>::infinity();
  int64_t count = 0;
  double mass = 0;
  if (by_rank) {
    count = collect_best(logits, row.top_k, s);
    weigh(logits, temperature, count, s);
  } else if (by_mass) {
    mass = p * total_mass(logits, temperature, s);
    count = collect_mass(logits, temperature, mass, s);
  } else {  // min_p alone: its bound, a little lowered, since it holds for the rounded quotient
    const double reach = cut.lowest * static_cast<double>(temperature);
    const double slack = 1e-5 * (std::abs(static_cast<double>(logits.max)) - reach);
    count = collect(logits, logits.max + reach - slack, s);
    weigh(logits, temperature, count, s);
    return count;
  }
  s.order.clear();
  for (int64_t i = 0; i < count; ++i)
    s.order.push_back({order_key(s.values[i], s.ids[i]), s.weights[i]});
  std::span<Candidate> kept(s.order);
  if (by_rank) {
    kept = take_best(kept, row.top_k);
    double sum = 0;
    cut.key = kept.front().key;
    for (const Candidate& c : kept) {
      sum += c.mass;
      cut.key = std::min(cut.key, c.key);
    }
    mass = p * sum;
  }
  if (by_mass) cut.key = cut_at_mass(kept, mass);
  return count;
}

// By inverse CDF over the kept tokens in id order.
int32_t draw_selected(const SampleRow& row, const Logits& logits, float temperature, double uniform,
                      Scratch& s) {
  Cut cut;
  const int64_t count = select(row, logits, temperature, cut, s);
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    const float z = (s.values[i] - logits.max) / temperature;
    const bool keep = order_key(s.values[i], s.ids[i]) >= cut.key && z >= cut.lowest;
    if (!keep) s.weights[i] = 0;
    sum += s.weights[i];
  }
  return s.ids[walk(count, 0, uniform * sum, [&](int64_t i) { return s.weights[i]; })];
}

int32_t draw(const SampleRow& row, const Logits& logits, Scratch& s) {
  if (is_empty(logits)) return -1;
  if (!(row.temperature >= kGreedyBelow)) return argmax(logits, s);
  const float temperature = std::min(row.temperature, FLT_MAX);
  const double uniform = sample_uniform(row.seed, row.position);
  const bool all =
      (row.top_k <= 0 || row.top_k >= logits.size) && row.top_p >= 1.0f && row.min_p <= 0.0f;
  return all ? draw_any(logits, temperature, uniform, s)
             : draw_selected(row, logits, temperature, uniform, s);
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
  if (num_top == 0) return;
  const int64_t count = collect_best(logits, num_top, s);
  s.order.clear();
  for (int64_t i = 0; i < count; ++i) s.order.push_back({order_key(s.values[i], s.ids[i]), 0});
  const auto best = take_best(s.order, num_top);
  std::sort(best.begin(), best.end(),
            [](const Candidate& a, const Candidate& b) { return a.key > b.key; });
  for (size_t i = 0; i < best.size(); ++i) {
    out.top_ids[i] = id_of_key(best[i].key);
    out.top_logprobs[i] = logprob(canonical_logit(logits.x[out.top_ids[i]]));
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
