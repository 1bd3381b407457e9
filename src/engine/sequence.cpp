#include "engine/sequence.h"

#include <algorithm>

namespace quire::engine {

RowFacts::RowFacts(const Request& request)
    : max_tokens(request.sampling.max_tokens),
      tenant(request.tenant),
      logprobs(request.sampling.logprobs),
      prompt_logprobs(request.sampling.prompt_logprobs),
      adapter(request.adapter),
      pools(request.pooling.has_value()),
      ignores_eos(request.sampling.ignore_eos),
      has_stop_tokens(!request.sampling.stop_token_ids.empty()) {}

int64_t Sequence::longest_len(int64_t max_model_len) const {
  const int64_t room = std::max<int64_t>(0, max_model_len - prompt_len);
  return prompt_len + std::min(request.sampling.max_tokens, room);
}

bool Sequence::ends_with_pending(int64_t max_model_len) const {
  if (num_pending == 0) return false;
  return num_output() + num_pending >= facts.max_tokens || target_len() >= max_model_len;
}

int64_t Sequence::num_held() const {
  int64_t sum = 0;
  for (const BlockTable& table : tables) sum += table.num_held();
  return sum;
}

void Sequence::forget_kv() {
  kv_len = 0;
  shared_len = 0;
  registered_blocks = 0;
  cache_node = -1;
}

StopDecision check_stop(const Sequence& sequence, std::span<const int32_t> eos_token_ids,
                        int64_t max_model_len) {
  const RowFacts& facts = sequence.facts;
  const int32_t token = sequence.tokens.back();
  const auto among = [token](std::span<const int32_t> ids) {
    return std::find(ids.begin(), ids.end(), token) != ids.end();
  };
  if (!facts.ignores_eos && among(eos_token_ids)) return {.finish = FinishReason::kStop};
  if (facts.has_stop_tokens && among(sequence.request.sampling.stop_token_ids))
    return {.finish = FinishReason::kStop, .stop_token = token};
  if (sequence.num_output() >= facts.max_tokens ||
      static_cast<int64_t>(sequence.tokens.size()) >= max_model_len) {
    return {.finish = FinishReason::kLength};
  }
  return {};
}

}  // namespace quire::engine
