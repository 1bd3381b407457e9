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

// Kinds of kernels: every instruction set, queries and pools; groups that fill tiles, and do not.
template <class Body>
void each_kernel(const Body& body) {
  for (const auto& isa : isas_to_test(/*with_vnni=*/true)) {
    const ForcedIsa forced(isa);
    for (const mx::Dtype dtype : float_dtypes())
      for (const KvStorage storage : {KvStorage::kAuto, KvStorage::kInt8, KvStorage::kFp8})
        for (const int group : {1, 3, 12}) {
          if (group != 3 && !takes_all_groups(isa, dtype)) continue;
          if (on_emulator() && storage != KvStorage::kAuto && dtype != mx::bfloat16) continue;
          SCOPED_TRACE(isa + " " + std::to_string(static_cast<int>(storage)) + " " +
                       dtype_name(dtype) + " group " + std::to_string(group));
          body(Sequences({.heads = 2 * group, .kv_heads = 2, .dim = 64, .value_dim = 64}, dtype,
                         kMixedLengths, 7, storage),
               attention_kernel(dtype, storage));
        }
  }
}

// Within what 16 bits and codes lose; how exact the kernels are is other tests' business, and that
// masks are right is seen in whole units.
TEST(ChunkedAttention, KernelsMatchTheReferenceAndDoNotDependOnTheBatch) {
  each_kernel([](const Sequences& sequences, const char* kernel) {
    for (const auto& [step, window] : {std::pair(24, -1), {100, 40}, {300, 299}}) {
      AttentionParams params = plain(sequences.heads());
      params.window_step = step;
      params.window_left = window;
      Context context = make_context(3);
      const Step mixed = sequences.step(kMixed, {.block_size = step == 100 ? 8 : 16, .order = 3});
      const mx::array out = attend(context, mixed, params);
      EXPECT_TRUE(kernel_ran(context, "paged_attention", 1, kernel));
      if (step == 300 || sequences.heads().heads > 6) {
        expect_solo_bits(solo(sequences, params), kMixed, out);
        continue;
      }
      context.use_reference = true;
      EXPECT_TRUE(near(out, attend(context, mixed, params), {.abs = 0.03f, .rel = 0.03f}))
          << "step " << step << " window " << window;
    }
  });
}

// Edges of the kernels' own chunks lie at multiples of 256 tokens, and so do those of these.
TEST(ChunkedAttention, ChunksHaveTheBitsOfSequencesOfTheirOwn) {
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const mx::Dtype dtype : float_dtypes()) {
      Sequences whole({}, dtype, {kLength});
      for (const int step : {256, 512}) {
        AttentionParams params = plain(whole.heads());
        params.window_step = step;
        const mx::array out = attend(make_context(2), whole.step(whole.whole()), params);
        EXPECT_TRUE(same_bits(out, apart(make_context(2), whole, step))) << isa << " " << step;
      }
    }
  }
}

// Blocks before a chunk are given back: no kernel reads what is there then.
TEST(ChunkedAttention, BlocksBeforeTheChunkAreNotRead) {
  each_kernel([](const Sequences& sequences, const char*) {
    AttentionParams params = plain(sequences.heads());
    params.window_step = 100;
    Step step = sequences.step(kMixed, {.block_size = 8, .order = 3});
    const mx::array expected = attend(make_context(2), step, params);
    auto given_back = std::make_shared<BatchLayout>(*step.layout);
    int64_t replaced = 0;
    for (int64_t s = 0; s < given_back->num_sequences; ++s) {
      const int64_t first = given_back->positions[given_back->cu_seqlens[s]] / 100 * 100;
      for (int64_t i = 0; (i + 1) * 8 <= first; ++i, ++replaced)
        given_back->blocks[given_back->block_offsets[s] + i] = kNoBlock;
    }
    ASSERT_GT(replaced, 100);
    step.layout = given_back;
    EXPECT_TRUE(same_bits(attend(make_context(2), step, params), expected));
  });
}

TEST(ChunkedAttention, RefusesStepsThatAreNone) {
  const Sequences sequences({}, mx::float32, {9});
  EXPECT_THROW(attend(make_context(1), sequences.step({{0, 0, 9}}), {.window_step = -1}),
               std::invalid_argument);
}

}  // namespace
}  // namespace quire::ops
