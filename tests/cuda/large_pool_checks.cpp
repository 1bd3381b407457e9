// Pools that take most of the GPU's memory: bytes and elements are counted in 64 bits. What kernels
// write into the last blocks, and read from there, gives the bits that it gives in a small pool.
#include <memory>

#include "attention_step.h"
#include "ops/copy_slots/copy_slots_cuda.h"
#include "ops/kv_write/kv_write_cuda.h"
#include "ops/qk_norm_rope_kv_write/qk_norm_rope_kv_write_cuda.h"

namespace quire::ops::cuda_test {
namespace {

constexpr int64_t kHeads = 16, kKvHeads = 8, kDim = 128, kBlockSize = 16;
constexpr int64_t kTokens = 600, kWritten = 300, kBlocks = 40;  // in use

struct Types {
  const char* what;
  FloatType type;
  KvType kv_type;
};

int64_t element_bytes(KvType type) {
  return is_quantised(type) ? 1 : (type == KvType::kF32 ? 4 : 2);
}

// A layer's pools of `blocks` blocks, and the table of a sequence in the last kBlocks of them.
struct Pools {
  Pools(KvType type, int64_t blocks)
      : k(bytes_of(type, blocks)),
        v(k.size()),
        k_scale(scales_of(type, blocks)),
        v_scale(k_scale.size()) {
    for (int64_t i = 0; i * kBlockSize < kTokens; ++i)
      table.push_back(static_cast<int32_t>(blocks - kBlocks + i * 7 % kBlocks));
  }
  static size_t bytes_of(KvType type, int64_t blocks) {
    return static_cast<size_t>(blocks * kBlockSize * kKvHeads * kDim * element_bytes(type));
  }
  static size_t scales_of(KvType type, int64_t blocks) {
    return is_quantised(type) ? static_cast<size_t>(blocks * kBlockSize * kKvHeads) * 4 : 0;
  }
  int64_t slot(int64_t token) const {
    return int64_t{table[token / kBlockSize]} * kBlockSize + token % kBlockSize;
  }
  DeviceBytes k, v, k_scale, v_scale;
  std::vector<int32_t> table;
};

DeviceBytes upload(int64_t values, FloatType type, uint32_t seed) {
  return DeviceBytes(encode(random_floats(static_cast<size_t>(values), type, seed), type));
}

// The first tokens by kv_write, the others by qk_norm_rope_kv_write.
void write(CudaStream stream, const Types& t, const Pools& pools) {
  std::vector<int64_t> slots;
  std::vector<int32_t> positions;
  for (int64_t i = 0; i < kTokens; ++i) {
    slots.push_back(pools.slot(i));
    positions.push_back(static_cast<int32_t>(i));
  }
  const DeviceBytes slot(slots), position(positions);
  const DeviceBytes k = upload(kWritten * kKvHeads * kDim, t.type, 1),
                    v = upload(kWritten * kKvHeads * kDim, t.type, 2);
  kv_write_cuda(stream, {.type = t.type,
                         .kv_type = t.kv_type,
                         .tokens = kWritten,
                         .kv_heads = kKvHeads,
                         .key_dim = kDim,
                         .value_dim = kDim,
                         .slots = slot.as<int64_t>(),
                         .k = k.get(),
                         .v = v.get(),
                         .k_pool = pools.k.get(),
                         .v_pool = pools.v.get(),
                         .k_scale = pools.k_scale.as<float>(),
                         .v_scale = pools.v_scale.as<float>()});
  constexpr int64_t kRest = kTokens - kWritten, kRow = (kHeads + 2 * kKvHeads) * kDim;
  const DeviceBytes qkv = upload(kRest * kRow, t.type, 3);
  const DeviceBytes cos_sin(random_floats(kTokens * kDim, FloatType::kF32, 4));
  const DeviceBytes q(static_cast<size_t>(kRest * kHeads * kDim * float_type_bytes(t.type)));
  QkNormRopeKvWriteParams p{.type = t.type,
                            .kv_type = t.kv_type,
                            .heads = kHeads,
                            .kv_heads = kKvHeads,
                            .head_dim = kDim,
                            .row = kRow,
                            .rotary_dim = kDim};
  p.positions = position.as<int32_t>() + kWritten;
  p.slots = slot.as<int64_t>() + kWritten;
  p.cos_sin = cos_sin.as<float>();
  p.qkv = qkv.get();
  p.q = q.get();
  p.k = pools.k.get();
  p.v = pools.v.get();
  p.k_scale = pools.k_scale.as<float>();
  p.v_scale = pools.v_scale.as<float>();
  qk_norm_rope_kv_write_cuda(stream, p, kRest);
  check_cuda(cudaStreamSynchronize(stream), "write");
}

// Attention of the last `rows` tokens.
std::vector<uint8_t> attend(CudaStream stream, const Types& t, const Pools& pools, int64_t rows) {
  BatchLayout layout;
  layout.num_sequences = 1;
  layout.block_size = kBlockSize;
  layout.num_tokens = rows;
  layout.cu_seqlens = {0, static_cast<int32_t>(rows)};
  layout.seq_lens = {static_cast<int32_t>(kTokens)};
  layout.block_offsets = {0, static_cast<int64_t>(pools.table.size())};
  layout.blocks = pools.table;
  for (int64_t i = kTokens - rows; i < kTokens; ++i)
    layout.positions.push_back(static_cast<int32_t>(i));
  AttentionKernelParams p = {.q_type = t.type,
                             .kv_type = t.kv_type,
                             .heads = kHeads,
                             .kv_heads = kKvHeads,
                             .key_dim = kDim,
                             .value_dim = kDim,
                             .block_size = kBlockSize};
  p.exponent_scale = static_cast<float>(1.4426950408889634 / std::sqrt(double{kDim}));
  const AttentionCudaPlan plan = plan_for_device(p, layout);
  const UploadedStep step(layout, p, plan);
  const DeviceBytes q = upload(rows * kHeads * kDim, t.type, 5);
  const DeviceBytes out(static_cast<size_t>(rows * kHeads * kDim * float_type_bytes(t.type)));
  p.q = q.get();
  p.k = pools.k.get();
  p.v = pools.v.get();
  if (is_quantised(t.kv_type)) {
    p.k_scale = pools.k_scale.as<float>();
    p.v_scale = pools.v_scale.as<float>();
  }
  p.out = out.get();
  paged_attention_cuda(stream, p, step.batch);
  return out.read<uint8_t>();
}

size_t free_bytes() {
  size_t free = 0, total = 0;
  check_cuda(cudaMemGetInfo(&free, &total), "free memory");
  return free;
}

void check_kv(CudaStream stream, const Types& t) {
  const auto free = static_cast<double>(free_bytes());
  const auto block_bytes =
      static_cast<double>(2 * (Pools::bytes_of(t.kv_type, 1) + Pools::scales_of(t.kv_type, 1)));
  const Pools small(t.kv_type, kBlocks);
  const Pools large(t.kv_type, static_cast<int64_t>(0.8 * free / block_bytes));
  write(stream, t, small);
  write(stream, t, large);
  const std::string what = std::string("pools of ") +
                           std::to_string((large.k.size() + large.v.size()) >> 30) + " GiB, " +
                           t.what;
  for (const int64_t rows : {int64_t{1}, kTokens})
    compare_bits(what + ", rows " + std::to_string(rows), attend(stream, t, small, rows),
                 attend(stream, t, large, rows));
}

// The last slot of a pool, copied into the one before and back into the first.
void check_slots(CudaStream stream) {
  constexpr int64_t kSlotBytes = 1 << 20, kConvBytes = 1 << 12;
  const auto slots = static_cast<int64_t>(0.8 * static_cast<double>(free_bytes())) / kSlotBytes;
  const DeviceBytes recurrent(static_cast<size_t>(slots * kSlotBytes)),
      conv(static_cast<size_t>(slots * kConvBytes));
  std::vector<uint8_t> state(kSlotBytes);
  std::mt19937 random(1);
  for (uint8_t& byte : state) byte = static_cast<uint8_t>(random());
  const auto at = [](const DeviceBytes& pool, int64_t slot, int64_t bytes) {
    return pool.as<char>() + slot * bytes;
  };
  check_cuda(cudaMemcpy(at(recurrent, slots - 1, kSlotBytes), state.data(), kSlotBytes,
                        cudaMemcpyHostToDevice),
             "copy up");
  const auto last = static_cast<int32_t>(slots - 1);
  for (const auto& [from, to] : {std::pair{last, last - 1}, std::pair{last - 1, 0}}) {
    const DeviceBytes pairs(std::vector<int32_t>{from, to});
    copy_slots_cuda(stream, {.count = 1,
                             .pairs = pairs.as<int32_t>(),
                             .recurrent = recurrent.get(),
                             .conv = conv.get(),
                             .recurrent_bytes = kSlotBytes,
                             .conv_bytes = kConvBytes});
    check_cuda(cudaStreamSynchronize(stream), "copy_slots");
  }
  std::vector<uint8_t> first(kSlotBytes);
  check_cuda(cudaMemcpy(first.data(), recurrent.get(), kSlotBytes, cudaMemcpyDeviceToHost),
             "copy down");
  compare_bits("copy_slots, " + std::to_string(slots) + " slots of a MiB", first, state);
}

}  // namespace

void check_large_pools(CudaStream stream) {
  for (const Types& t : {Types{"bf16", FloatType::kBf16, KvType::kBf16},
                         Types{"bf16 over int8", FloatType::kBf16, KvType::kInt8},
                         Types{"f16 by the plain kernel", FloatType::kF16, KvType::kF16}})
    check_kv(stream, t);
  check_slots(stream);
}

}  // namespace quire::ops::cuda_test
