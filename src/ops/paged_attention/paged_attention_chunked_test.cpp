// Chunked attention (AttentionParams::window_step): a query sees the keys of its own chunk.
#include "ops/paged_attention/attention_test_util.h"

namespace quire::ops {
namespace {

using namespace quire::ops::testing;

constexpr int kLength = 700;

// Each chunk of a sequence as a sequence of its own.
Sequences chunks_of(Sequences& whole, int step) {
  std::vector<int> lengths;
  for (int first = 0; first < kLength; first += step)
    lengths.push_back(std::min(step, kLength - first));
  Sequences parts(whole.heads(), whole.dtype(), lengths);
  const auto copy = [&](std::vector<float>& (Sequences::*data)(int), int row) {
    const std::vector<float>& from = (whole.*data)(0);
    int first = 0;
    for (int s = 0; s < static_cast<int>(lengths.size()); first += lengths[s++])
      (parts.*data)(s).assign(from.begin() + int64_t{first} * row,
                              from.begin() + int64_t{first + lengths[s]} * row);
  };
  const Heads& heads = whole.heads();
  copy(&Sequences::queries, heads.heads * heads.dim);
  copy(&Sequences::keys, heads.kv_heads * heads.dim);
  copy(&Sequences::values, heads.kv_heads * heads.value_dim);
  return parts;
}

// What the chunks are on their own: nothing but masks depends on positions.
mx::array apart(const Context& context, Sequences& whole, int step) {
  const Sequences parts = chunks_of(whole, step);
  return attend(context, parts.step(parts.whole()), plain(whole.heads()));
}

TEST(ChunkedAttention, TheReferencesChunksAreThoseOfSequencesOfTheirOwn) {
  Sequences whole({}, mx::float32, {kLength});
  Context context = make_context(1);
  context.use_reference = true;
  for (const int step : {7, 24, 256, 300, 699, 700, 5000}) {
    AttentionParams params = plain(whole.heads());
    params.window_step = step;
    const mx::array out = attend(context, whole.step(whole.whole()), params);
    EXPECT_TRUE(near(out, apart(context, whole, step), {.abs = 1e-6f, .rel = 1e-6f})) << step;
  }
}

TEST(ChunkedAttention, RefusesStepsThatAreNone) {
  const Sequences sequences({}, mx::float32, {9});
  EXPECT_THROW(attend(make_context(1), sequences.step({{0, 0, 9}}), {.window_step = -1}),
               std::invalid_argument);
}

}  // namespace
}  // namespace quire::ops
