// Which rows of a request say the same of every token, so that only their positions are written.
#include <gtest/gtest.h>

#include <functional>

#include "engine/batch_builder.h"

namespace quire::engine {
namespace {

constexpr int64_t kPrompt = 3;

Sequence sequence_with(const std::function<void(SamplingParams&)>& ask) {
  Sequence sequence;
  sequence.id = 7;
  sequence.tokens = {1, 2, 3, 4};
  sequence.prompt_len = kPrompt;
  ask(sequence.request.sampling);
  return sequence;
}

ops::SampleRow row_at(const Sequence& sequence, int64_t position,
                      std::shared_ptr<const std::vector<uint32_t>> mask = nullptr) {
  const TokenHistory history;
  const bool has_history = needs_history(sequence.request.sampling);
  RowInfo row;
  row.position = position;
  row.samples = true;
  return sample_row(row, sequence, has_history ? &history : nullptr, std::move(mask), {5});
}

TEST(SampleRow, IsConstantWhereNothingFollowsFromTheTokens) {
  const Sequence plain = sequence_with([](SamplingParams& sampling) {
    sampling.temperature = 0.5f;
    sampling.top_k = 3;
    sampling.logit_bias = {{1, 2.0f}};
    sampling.allowed_tokens = std::make_shared<const std::vector<uint32_t>>(1, 6u);
  });
  EXPECT_EQ(row_at(plain, 4).constant, 7u);
  EXPECT_EQ(row_at(plain, 9).constant, 7u);
}

TEST(SampleRow, IsNotConstantWhereItIsMadeForOneToken) {
  const auto constant = [](const std::function<void(SamplingParams&)>& ask) {
    return row_at(sequence_with(ask), 4).constant;
  };
  EXPECT_EQ(constant([](auto& sampling) { sampling.presence_penalty = 0.5f; }), 0u);
  EXPECT_EQ(constant([](auto& sampling) { sampling.repetition_penalty = 1.5f; }), 0u);
  EXPECT_EQ(constant([](auto& sampling) {
              sampling.bad_words =
                  std::make_shared<const BadWords>(std::vector<std::vector<int32_t>>{{1, 2}});
            }),
            0u);
  const auto mask = std::make_shared<const std::vector<uint32_t>>(1, 6u);
  EXPECT_EQ(row_at(sequence_with([](auto&) {}), 4, mask).constant, 0u);
  RowInfo scored;
  scored.position = 2;
  const Sequence sequence = sequence_with([](auto& sampling) { sampling.prompt_logprobs = 1; });
  EXPECT_EQ(sample_row(scored, sequence, nullptr, nullptr, {}).constant, 0u);
}

// Stop tokens are banned until then.
TEST(SampleRow, IsConstantOnceItHasItsLeastTokens) {
  const Sequence sequence = sequence_with([](auto& sampling) { sampling.min_tokens = 4; });
  EXPECT_EQ(row_at(sequence, kPrompt + 3).constant, 0u);
  EXPECT_EQ(row_at(sequence, kPrompt + 4).constant, 7u);
}

}  // namespace
}  // namespace quire::engine
