#pragma once
#include <random>

#include "ops/runtime/test_util.h"
#include "ops/sample/sample.h"
#include "ops/sample/sample_reference.h"

namespace quire::ops::testing {

// SampleOutput as host vectors.
struct Sampled {
  std::vector<int32_t> tokens, ranks, top_ids;
  std::vector<float> logprobs, top_logprobs;
  int width = 0;

  bool operator==(const Sampled&) const = default;
};

template <class T>
std::vector<T> to_vector(const mx::array& x) {
  return {x.data<T>(), x.data<T>() + x.size()};
}

inline SampleRows share(std::vector<SampleRow> rows) {
  return std::make_shared<const std::vector<SampleRow>>(std::move(rows));
}

inline mx::array logits_array(const std::vector<float>& values, int rows) {
  return mx::array(values.data(), {rows, static_cast<int>(values.size()) / rows}, mx::float32);
}

inline Sampled run_sample(const Context& context, const mx::array& logits,
                          std::vector<SampleRow> rows,
                          const std::optional<mx::array>& previous = std::nullopt) {
  SampleOutput out = sample(context, logits, share(std::move(rows)), previous);
  mx::eval(out.tokens, out.logprobs, out.ranks, out.top_ids, out.top_logprobs);
  return {.tokens = to_vector<int32_t>(out.tokens),
          .ranks = to_vector<int32_t>(out.ranks),
          .top_ids = to_vector<int32_t>(out.top_ids),
          .logprobs = to_vector<float>(out.logprobs),
          .top_logprobs = to_vector<float>(out.top_logprobs),
          .width = out.top_ids.shape(1)};
}

// The token that one row of logits gives.
inline int32_t token_of(const std::vector<float>& logits, SampleRow row) {
  return run_sample(make_context(1), logits_array(logits, 1), {std::move(row)}).tokens[0];
}

// A row with each parameter on or off by chance.
inline SampleRow random_row(std::mt19937& random, int64_t vocab) {
  const auto chance = [&](int one_in) { return random() % one_in == 0; };
  const auto real = [&](float low, float high) {
    return std::uniform_real_distribution<float>(low, high)(random);
  };
  const auto token = [&] { return static_cast<int32_t>(random() % vocab); };
  SampleRow row{.temperature = chance(4)   ? 0.0f
                               : chance(4) ? 1.0f
                                           : real(0.05f, 2.0f),
                .seed = random(),
                .position = static_cast<int64_t>(random() % 100000)};
  if (chance(2)) row.top_k = 1 + static_cast<int32_t>(random() % (chance(2) ? 8 : 1000));
  if (chance(2)) row.top_p = real(0.01f, 0.999f);
  if (chance(3)) row.min_p = real(0.0f, 0.5f);
  if (chance(3)) row.repetition_penalty = real(0.7f, 1.5f);
  if (chance(3)) row.presence_penalty = real(-1.0f, 1.0f);
  if (chance(3)) row.frequency_penalty = real(-1.0f, 1.0f);
  for (int i = 0; i < 8 && i < vocab; ++i) {
    const TokenCount count{static_cast<int32_t>((token() / 8 * 8 + i) % vocab),
                           static_cast<int32_t>(random() % 3), chance(2)};
    bool distinct = true;
    for (const TokenCount& other : row.history) distinct = distinct && other.token != count.token;
    if (distinct) row.history.push_back(count);
  }
  if (chance(4)) row.logit_bias = {{token(), real(-100.0f, 100.0f)}, {token(), real(-2.0f, 2.0f)}};
  if (chance(4)) row.banned = {token(), token()};
  // Of tokens that are pending now and then.
  if (chance(4)) row.banned_after = {{static_cast<int32_t>(random() % 3), token()}, {token(), 0}};
  if (chance(5)) {
    std::vector<uint32_t> mask((vocab + 31) / 32);
    for (uint32_t& word : mask) word = chance(2) ? 0u : chance(2) ? ~0u : random();
    row.mask = std::make_shared<const std::vector<uint32_t>>(std::move(mask));
  }
  if (chance(8)) row.forced_token = token();
  if (chance(2)) row.num_top_logprobs = static_cast<int32_t>(random() % 21);
  return row;
}

}  // namespace quire::ops::testing
