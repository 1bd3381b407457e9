#include "ops/metal/kernel.metal.h"
// first
#include "ops/sample/sample_rows.metal.h"

using namespace metal;
using namespace quire;
using namespace quire::ops;

constant constexpr float kGreedyBelow = 1e-5f;

// The 53 bits of Philox4x32-10 of (seed, position); philox.h.
inline ulong random_bits(const device SampleMetalRow& row) {
  uint c0 = row.position[0], c1 = row.position[1], c2 = 0, c3 = 0;
  uint k0 = row.seed[0], k1 = row.seed[1];
  for (int round = 0; round < 10; ++round) {
    const ulong a = ulong(0xD2511F53u) * c0, b = ulong(0xCD9E8D57u) * c2;
    c0 = uint(b >> 32) ^ c1 ^ k0;
    c1 = uint(b);
    c2 = uint(a >> 32) ^ c3 ^ k1;
    c3 = uint(a);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return (ulong(c1) << 32 | c0) >> 11;
}

inline bool has_penalties(const device SampleMetalRow& row) {
  return row.repetition_penalty != 1.0f || row.presence_penalty != 0.0f ||
         row.frequency_penalty != 0.0f;
}

inline void penalise(const device SampleMetalRow& row, int token, int in_output, bool in_prompt,
                     device float* x, int vocab) {
  if (token < 0 || token >= vocab) return;
  float logit = x[token];
  if (in_prompt || in_output > 0)
    logit = logit > 0 ? logit / row.repetition_penalty : logit * row.repetition_penalty;
  if (in_output > 0) {
    logit -= row.frequency_penalty * float(in_output);
    logit -= row.presence_penalty;
  }
  x[token] = logit;
}

// The tokens of a history are distinct; `pending` is one more produced token.
inline void apply_penalties(const device SampleMetalRow& row,
                            const device SampleMetalCount* history, int pending, device float* x,
                            int vocab, threadgroup ulong* parts, int thread_index) {
  ulong met = 0;
  for (int i = row.history_begin + thread_index; i < row.history_end; i += kThreads) {
    const bool is_pending = history[i].token == pending;
    if (is_pending) met = 1;
    penalise(row, history[i].token, history[i].in_output + (is_pending ? 1 : 0),
             history[i].in_prompt != 0, x, vocab);
  }
  if (group_sum(met, parts, thread_index) == 0 && thread_index == 0)
    penalise(row, pending, 1, false, x, vocab);
  threadgroup_barrier(mem_flags::mem_device);
}

// A token that is listed several times gets its biases in the list's order, from one thread.
inline void apply_bias(const device SampleMetalRow& row, const device SampleMetalBias* bias,
                       device float* x, int vocab, int thread_index) {
  for (int i = row.bias_begin + thread_index; i < row.bias_end; i += kThreads) {
    const int token = bias[i].token;
    bool is_first = token >= 0 && token < vocab;
    for (int j = row.bias_begin; j < i && is_first; ++j) is_first = bias[j].token != token;
    for (int j = i; j < row.bias_end && is_first; ++j)
      if (bias[j].token == token) x[token] += bias[j].value;
  }
  threadgroup_barrier(mem_flags::mem_device);
}

inline void apply_mask_and_bans(const device SampleMetalRow& row, const device uint* masks,
                                const device int* banned, const device SampleMetalPair* after,
                                int pending, device float* x, int vocab, int thread_index) {
  if (row.mask >= 0)
    for (int i = thread_index; i < vocab; i += kThreads)
      if ((masks[row.mask + i / 32] >> (i % 32) & 1u) == 0) x[i] = -INFINITY;
  threadgroup_barrier(mem_flags::mem_device);
  for (int i = row.banned_begin + thread_index; i < row.banned_end; i += kThreads)
    if (banned[i] >= 0 && banned[i] < vocab) x[banned[i]] = -INFINITY;
  for (int i = row.after_begin + thread_index; i < row.after_end; i += kThreads) {
    const int token = after[i].token;
    if (after[i].before == pending && pending >= 0 && token >= 0 && token < vocab)
      x[token] = -INFINITY;
  }
  threadgroup_barrier(mem_flags::mem_device);
}

// By inverse CDF over the kept tokens in id order.
inline int draw(const device SampleMetalRow& row, thread const Logits& logits,
                threadgroup ulong* parts, int thread_index) {
  if (is_empty(logits)) return -1;
  if (!(row.temperature >= kGreedyBelow)) return logits.argmax;
  Weights w = count_all();
  w.scale = 1.0f / min(row.temperature, 1e30f);
  if (row.top_k > 0 && row.top_k < logits.size) {
    const ulong finite = sum_of(logits, w, 0, parts, thread_index);
    cut_at(logits, w, min(ulong(row.top_k), finite), parts, thread_index);
  }
  w.by_mass = true;
  if (row.top_p < 1.0f) {
    const ulong total = sum_of(logits, w, 0, parts, thread_index);
    const Product part = part_of(ulong(max(row.top_p, 0.0f) * 9007199254740992.0f), total);
    const ulong need = part.floor + (part.is_exact ? 0 : 1);
    cut_at(logits, w, clamp(need, ulong(1), total), parts, thread_index);
  }
  if (row.min_p > 0.0f) w.lowest = min(0.0f, precise::log(row.min_p));
  const ulong total = sum_of(logits, w, 0, parts, thread_index);
  const ulong target = part_of(random_bits(row), total).floor;
  return walk(logits, w, min(target, total - 1), parts, thread_index);
}

// log softmax of the raw logits: of the token, and of the best ones.
inline void score(const device SampleMetalRow& row, int token, thread const Logits& logits,
                  device float* logprob, device int* rank, device int* top_ids,
                  device float* top_logprobs, threadgroup ulong* parts, int thread_index) {
  Weights w = count_all();
  w.by_mass = true;
  const ulong total = sum_of(logits, w, 0, parts, thread_index);
  const float log_total = is_empty(logits) ? 0.0f : precise::log(float(total) * 0x1p-40f);
  if (token >= 0) {
    const float x = canonical(logits.x[token]);
    const uint key = max(kLowestFinite, key_of(x));
    w.by_mass = false;
    const ulong greater = key == 0xFFFFFFFFu ? 0
                                             : sum_of(logits, w, key_of(x) < key ? key : key + 1,
                                                      parts, thread_index);
    if (thread_index == 0) {
      *rank = 1 + int(greater);
      *logprob = is_empty(logits) ? x : x - logits.peak - log_total;
    }
  }
  if (is_empty(logits)) return;
  ulong before = ~0ul;
  for (int i = 0; i < row.num_top_logprobs; ++i) {
    before = best_after(logits, before, parts, thread_index);
    const uint key = uint(before >> 32);
    if (key < kLowestFinite) return;
    if (thread_index != 0) continue;
    top_ids[i] = int(~uint(before));
    top_logprobs[i] = value_of(key) - logits.peak - log_total;
  }
}

// A threadgroup of kThreads for each row.
[[kernel]] void sample(constant SampleMetalParams& p [[buffer(kSampleParams)]],
                       const device SampleMetalRow* rows [[buffer(kSampleRows)]],
                       const device float* all_logits [[buffer(kSampleLogits)]],
                       const device int* previous [[buffer(kSamplePrevious)]],
                       const device SampleMetalCount* history [[buffer(kSampleHistory)]],
                       const device SampleMetalBias* bias [[buffer(kSampleBias)]],
                       const device int* banned [[buffer(kSampleBanned)]],
                       const device SampleMetalPair* banned_after [[buffer(kSampleBannedAfter)]],
                       const device uint* masks [[buffer(kSampleMasks)]],
                       device float* scratch [[buffer(kSampleScratch)]],
                       device int* tokens [[buffer(kSampleTokens)]],
                       device float* logprobs [[buffer(kSampleLogprobs)]],
                       device int* ranks [[buffer(kSampleRanks)]],
                       device int* top_ids [[buffer(kSampleTopIds)]],
                       device float* top_logprobs [[buffer(kSampleTopLogprobs)]],
                       uint group [[threadgroup_position_in_grid]],
                       uint thread_in_group [[thread_index_in_threadgroup]]) {
  threadgroup ulong parts[kSimdgroups];
  const int thread_index = int(thread_in_group);
  const device SampleMetalRow& row = rows[group];
  const device float* raw = all_logits + int64_t(group) * p.vocab;
  device float* changed = scratch + int64_t(group) * p.vocab;
  device int* own_ids = top_ids + int64_t(group) * p.width;
  device float* own_logprobs = top_logprobs + int64_t(group) * p.width;
  for (int i = thread_index; i < p.width; i += kThreads) {
    own_ids[i] = -1;
    own_logprobs[i] = 0.0f;
  }
  if (thread_index == 0) {
    logprobs[group] = 0.0f;
    ranks[group] = 0;
  }
  threadgroup_barrier(mem_flags::mem_device);
  int token = row.forced_token;
  if (token < 0) {
    if (row.changes_logits != 0) {
      const int pending =
          row.pending_row >= 0 && p.has_previous != 0 ? previous[row.pending_row] : -1;
      for (int i = thread_index; i < p.vocab; i += kThreads) changed[i] = raw[i];
      threadgroup_barrier(mem_flags::mem_device);
      if (has_penalties(row))
        apply_penalties(row, history, pending, changed, p.vocab, parts, thread_index);
      apply_bias(row, bias, changed, p.vocab, thread_index);
      apply_mask_and_bans(row, masks, banned, banned_after, pending, changed, p.vocab,
                          thread_index);
    }
    const device float* seen = row.changes_logits != 0 ? changed : raw;
    const Logits logits = scanned(seen, p.vocab, parts, thread_index);
    token = draw(row, logits, parts, thread_index);
  }
  if (thread_index == 0) tokens[group] = token;
  if (row.num_top_logprobs < 0) return;
  const Logits logits = scanned(raw, p.vocab, parts, thread_index);
  score(row, token, logits, logprobs + group, ranks + group, own_ids, own_logprobs, parts,
        thread_index);
}
