#pragma once
#include <cstdint>

namespace quire::ops {

// What a router makes of a token's logits.
enum class MoeScore : uint8_t {
  kSoftmax,  // over all experts
  kSigmoid,  // of each expert
  // Phi-3.5-MoE's (arXiv:2409.12136), of two experts: each is the best of those that are left, and
  // its score is the softmax over those of them that are hardly less likely.
  kSparseMixer,
};

// A router as data. With the defaults the k largest of softmax(logits); a softmax over the chosen
// logits alone (gpt-oss, Granite) is the same with `normalise`.
struct MoeRouteOptions {
  int64_t top_k = 1;       // experts of a token, in [1, E]
  bool normalise = false;  // the chosen scores are divided by their sum
  MoeScore score = MoeScore::kSoftmax;
  // The sum they are divided by is max(sum + sum_offset, least_sum).
  float sum_offset = 0.0f, least_sum = 0.0f;
  float scale = 1.0f;    // what weights are multiplied by at the end
  float softcap = 0.0f;  // logits become softcap * tanh(logit / softcap) first; 0: as they are
  // kSparseMixer: z counts if (max - z) / max(|z|, max) <= 2 jitter.
  float jitter = 0.0f;
  // Experts are in `groups` equal groups of neighbours, and only those of the `chosen_groups` best
  // are chosen from. A group is as good as its best expert (DeepSeek-V2's group_limited_greedy), or
  // as the sum of its best two (DeepSeek-V3's noaux_tc).
  int64_t groups = 1, chosen_groups = 1;
  bool groups_by_two = false;
};

}  // namespace quire::ops
