// Attention right behind the kernel that writes a step's keys, with the older ones asked for before
// that has ended: the same bits as once it has.
#include "attention_step.h"
#include "ops/kv_write/kv_write_cuda.h"

namespace quire::ops::cuda_test {
namespace {

// Blocks so small that what is old and what is new lie in one sector of memory, wherever they can.
struct NewKeysCase {
  const char* what;
  FloatType type;
  KvType kv_type;
  int64_t heads, kv_heads, dim, block_size;
};
constexpr NewKeysCase kNewKeysCases[] = {
    {"bf16 4/1 D64 P1", FloatType::kBf16, KvType::kBf16, 4, 1, 64, 1},
    {"bf16 16/8 D128 P16", FloatType::kBf16, KvType::kBf16, 16, 8, 128, 16},
    {"f16 4/1 D24 P3", FloatType::kF16, KvType::kF16, 4, 1, 24, 3},
    {"bf16 over int8 4/1 D64 P1", FloatType::kBf16, KvType::kInt8, 4, 1, 64, 1},
    {"bf16 over int8 4/1 D24 P3", FloatType::kBf16, KvType::kInt8, 4, 1, 24, 3},
    {"bf16 over fp8 4/1 D64 P2", FloatType::kBf16, KvType::kFp8, 4, 1, 64, 2},
    {"bf16 over fp8 8/2 D128 P16", FloatType::kBf16, KvType::kFp8, 8, 2, 128, 16},
};
constexpr int kSequences = 40, kRounds = 20;

// A decode step whose sequences' blocks alternate.
BatchLayout layout_of(const NewKeysCase& c) {
  BatchLayout layout;
  layout.num_sequences = layout.num_tokens = kSequences;
  layout.block_size = c.block_size;
  layout.cu_seqlens = {0};
  layout.block_offsets = {0};
  for (int s = 0; s < kSequences; ++s) {
    const int context = 100 + 11 * s;
    layout.positions.push_back(context - 1);
    layout.seq_lens.push_back(context);
    layout.cu_seqlens.push_back(s + 1);
    for (int64_t b = 0; b * c.block_size < context; ++b)
      layout.blocks.push_back(static_cast<int32_t>(b * kSequences + s));
    layout.block_offsets.push_back(static_cast<int64_t>(layout.blocks.size()));
    const int64_t last = layout.blocks.back();
    layout.slot_mapping.push_back(last * c.block_size + (context - 1) % c.block_size);
  }
  return layout;
}

// What the pools hold before the step; in its own slots, what an earlier one left there.
struct NewKeysPools {
  NewKeysPools(const NewKeysCase& c, int64_t slots)
      : k(values(c, slots, 1)),
        v(values(c, slots, 2)),
        k_scale(scales(c, slots, 3)),
        v_scale(scales(c, slots, 4)) {}
  static std::vector<uint8_t> values(const NewKeysCase& c, int64_t slots, uint32_t seed) {
    const auto count = static_cast<size_t>(slots * c.kv_heads * c.dim);
    if (!is_quantised(c.kv_type)) return encode(random_floats(count, c.type, seed), c.type);
    std::vector<uint8_t> codes(count);
    std::mt19937 random(seed);
    for (uint8_t& code : codes) code = static_cast<uint8_t>(random() % 0x70);  // no NaN of fp8
    return codes;
  }
  static std::vector<float> scales(const NewKeysCase& c, int64_t slots, uint32_t seed) {
    std::vector<float> out =
        random_floats(static_cast<size_t>(slots * c.kv_heads), FloatType::kF32, seed);
    for (float& x : out) x = 0.01f + std::abs(x) * 0.01f;
    return out;
  }
  std::vector<uint8_t> k, v;
  std::vector<float> k_scale, v_scale;
};

// Writes the step's keys into fresh pools, waits for that if `waits`, and attends.
std::vector<uint8_t> write_and_attend(CudaStream stream, const NewKeysCase& c,
                                      const BatchLayout& layout, const NewKeysPools& before,
                                      bool waits) {
  const DeviceBytes k_pool(before.k), v_pool(before.v), k_scale(before.k_scale),
      v_scale(before.v_scale);
  AttentionKernelParams p = {.q_type = c.type,
                             .kv_type = c.kv_type,
                             .heads = c.heads,
                             .kv_heads = c.kv_heads,
                             .key_dim = c.dim,
                             .value_dim = c.dim,
                             .block_size = c.block_size};
  p.exponent_scale = static_cast<float>(1.4426950408889634 / std::sqrt(static_cast<double>(c.dim)));
  UploadedStep step(layout, p, plan_for_device(p, layout));
  step.batch.has_old_keys = !waits;
  const DeviceBytes slots(layout.slot_mapping);
  const auto input = [&](int64_t heads, uint32_t seed) {
    return encode(random_floats(static_cast<size_t>(kSequences * heads * c.dim), c.type, seed),
                  c.type);
  };
  const DeviceBytes q(input(c.heads, 5)), k(input(c.kv_heads, 6)), v(input(c.kv_heads, 7));
  const DeviceBytes out(q.size());
  p.q = q.get();
  p.k = k_pool.get();
  p.v = v_pool.get();
  if (is_quantised(c.kv_type)) {
    p.k_scale = k_scale.as<float>();
    p.v_scale = v_scale.as<float>();
  }
  p.out = out.get();
  check_cuda(cudaDeviceSynchronize(), "upload");
  kv_write_cuda(stream, {.type = c.type,
                         .kv_type = c.kv_type,
                         .tokens = kSequences,
                         .kv_heads = c.kv_heads,
                         .key_dim = c.dim,
                         .value_dim = c.dim,
                         .slots = slots.as<int64_t>(),
                         .k = k.get(),
                         .v = v.get(),
                         .k_pool = k_pool.get(),
                         .v_pool = v_pool.get(),
                         .k_scale = k_scale.as<float>(),
                         .v_scale = v_scale.as<float>()});
  if (waits) check_cuda(cudaStreamSynchronize(stream), "write");
  paged_attention_cuda(stream, p, step.batch);
  return out.read<uint8_t>();
}

}  // namespace

void check_new_keys(CudaStream stream) {
  for (const NewKeysCase& c : kNewKeysCases) {
    const BatchLayout layout = layout_of(c);
    const NewKeysPools pools(c, (layout.blocks.back() + kSequences) * c.block_size);
    const std::vector<uint8_t> want = write_and_attend(stream, c, layout, pools, true);
    for (int round = 0; round < (few ? 1 : kRounds); ++round)
      compare_bits(std::string("new keys ") + c.what + " round " + std::to_string(round),
                   write_and_attend(stream, c, layout, pools, false), want);
  }
}

}  // namespace quire::ops::cuda_test
