#include "harness.h"
#include "ops/copy_slots/copy_slots_cuda.h"
#include "ops/embedding/embedding_cuda.h"
#include "ops/gated_activation/gated_activation_cuda.h"
#include "ops/gather_rows/gather_rows_cuda.h"
#include "ops/kv_write/kv_write_cuda.h"
#include "ops/qk_norm_rope_kv_write/qk_norm_rope_kv_write_cuda.h"
#include "ops/rms_norm/rms_norm_cuda.h"
#include "ops/rope/rope_cuda.h"
#include "ops/sigmoid_gate/sigmoid_gate_cuda.h"

namespace quire::ops::cuda_test {
namespace {

std::string with(const char* what, FloatType type, int64_t size) {
  return std::string(what) + " " + name(type) + " " + std::to_string(size);
}

void check_norm(CudaStream stream, FloatType type, int64_t width) {
  const int64_t rows = 5;
  const auto x = random_floats(static_cast<size_t>(rows * width), type, 1),
             r = random_floats(x.size(), type, 2);
  const auto w = random_floats(static_cast<size_t>(width), FloatType::kF32, 3);
  const DeviceBytes dx(encode(x, type)), dr(encode(r, type)), dw(w), y(dx.size()), sum(dx.size()),
      again(dx.size());
  RmsNormParams p = {.type = type,
                     .width = width,
                     .eps = 1e-5f,
                     .x = dx.get(),
                     .residual = dr.get(),
                     .weight = dw.as<float>(),
                     .y = y.get(),
                     .sum = sum.get()};
  rms_norm_cuda(stream, p, rows);
  const auto sums = read_floats(sum, type);
  std::vector<double> want, want_sum;
  for (int64_t row = 0; row < rows; ++row) {
    double total = 0;
    for (int64_t i = 0; i < width; ++i) {
      const size_t at = static_cast<size_t>(row * width + i);
      want_sum.push_back(through(x[at] + r[at], type));
      total += want_sum.back() * want_sum.back();
    }
    for (int64_t i = 0; i < width; ++i)
      want.push_back(want_sum[static_cast<size_t>(row * width + i)] /
                     std::sqrt(total / static_cast<double>(width) + 1e-5f) * w[i]);
  }
  compare(with("add_rms_norm", type, width), read_floats(y, type), want, rounding(type) + 1e-6,
          type == FloatType::kF16 ? 0.1 : 1e-6);
  compare(with("add_rms_norm sum", type, width), sums, want_sum, 0, 1e-6);
  rms_norm_cuda(stream,
                {.type = type,
                 .width = width,
                 .eps = 1e-5f,
                 .x = sum.get(),
                 .weight = dw.as<float>(),
                 .y = again.get()},
                rows);
  compare_bits(with("rms_norm of the sum", type, width), y.read<uint8_t>(), again.read<uint8_t>());
}

void check_gates(CudaStream stream, FloatType type, int64_t width) {
  const int64_t rows = 3;
  const auto x = random_floats(static_cast<size_t>(rows * 2 * width), type, 4, 8.0f);
  const DeviceBytes dx(encode(x, type)), y(dx.size() / 2);
  gated_activation_cuda(stream, {.type = type, .width = width, .gate_up = dx.get(), .y = y.get()},
                        rows);
  std::vector<double> want;
  for (int64_t i = 0; i < rows * width; ++i) {
    const double gate = x[i / width * 2 * width + i % width],
                 up = x[i / width * 2 * width + width + i % width];
    want.push_back(gate / (1 + std::exp(-gate)) * up);
  }
  compare(with("gated_activation", type, width), read_floats(y, type), want, rounding(type) + 1e-6,
          1e-4);
  const auto a = random_floats(static_cast<size_t>(rows * width), type, 5);
  const DeviceBytes da(encode(a, type));
  SigmoidGateParams p = {.type = type,
                         .width = width,
                         .gate_row = 2 * width,
                         .first = width,
                         .x = da.get(),
                         .gate = dx.get(),
                         .y = y.get()};
  sigmoid_gate_cuda(stream, p, rows);
  for (int64_t i = 0; i < rows * width; ++i)
    want[i] =
        a[i] / (1 + std::exp(-static_cast<double>(x[i / width * 2 * width + width + i % width])));
  compare(with("sigmoid_gate", type, width), read_floats(y, type), want, rounding(type) + 1e-6,
          1e-4);
}

void check_rope(CudaStream stream, FloatType type, KvType kv_type, int64_t dim, int64_t rotary) {
  const int64_t tokens = 4, heads = 6, kv_heads = 2, row = (heads + 2 * kv_heads + 1) * dim,
                slots_in_pool = 10;
  const auto qkv = random_floats(static_cast<size_t>(tokens * row), type, 7);
  const auto qn = random_floats(static_cast<size_t>(dim), FloatType::kF32, 8),
             kn = random_floats(qn.size(), FloatType::kF32, 9);
  std::vector<float> table;
  for (int position = 0; position < 20; ++position) {
    for (int64_t i = 0; i < rotary / 2; ++i)
      table.push_back(std::cos(position * std::pow(0.1f, static_cast<float>(i) * 0.1f)));
    for (int64_t i = 0; i < rotary / 2; ++i)
      table.push_back(std::sin(position * std::pow(0.1f, static_cast<float>(i) * 0.1f)));
  }
  const std::vector<int32_t> positions = {3, 17, 0, 9};
  const std::vector<int64_t> slots = {4, -1, 9, 0};
  const DeviceBytes d_qkv(encode(qkv, type)), d_qn(qn), d_kn(kn), d_table(table), d_pos(positions),
      d_slots(slots);
  const int64_t item = is_quantised(kv_type) ? 1 : float_type_bytes(type);
  const size_t pool = static_cast<size_t>(slots_in_pool * kv_heads * dim * item);
  const DeviceBytes q(static_cast<size_t>(tokens * heads * dim * float_type_bytes(type))), k(pool),
      v(pool);
  const DeviceBytes ks(slots_in_pool * kv_heads * 4), vs(slots_in_pool * kv_heads * 4);
  QkNormRopeKvWriteParams p = {.type = type,
                               .kv_type = kv_type,
                               .heads = heads,
                               .kv_heads = kv_heads,
                               .head_dim = dim,
                               .row = row,
                               .rotary_dim = rotary,
                               .eps = 1e-6f,
                               .positions = d_pos.as<int32_t>(),
                               .slots = d_slots.as<int64_t>(),
                               .cos_sin = d_table.as<float>(),
                               .q_norm = d_qn.as<float>(),
                               .k_norm = d_kn.as<float>(),
                               .qkv = d_qkv.get(),
                               .q = q.get(),
                               .k = k.get(),
                               .v = v.get(),
                               .k_scale = ks.as<float>(),
                               .v_scale = vs.as<float>()};
  qk_norm_rope_kv_write_cuda(stream, p, tokens);
  // The composition, by the other kernels.
  const auto slice = [&](int64_t first, int64_t count, const DeviceBytes& to) {
    const int64_t size = float_type_bytes(type);
    slice_columns_cuda(stream, {.rows = tokens,
                                .row_bytes = row * size,
                                .offset = first * dim * size,
                                .bytes = count * dim * size,
                                .from = d_qkv.get(),
                                .to = to.get()});
  };
  const size_t q_bytes = q.size(), k_bytes = q_bytes / heads * kv_heads;
  const DeviceBytes sq(q_bytes), sk(k_bytes), sv(k_bytes), nq(q_bytes), nk(k_bytes), rq(q_bytes),
      rk(k_bytes);
  slice(0, heads, sq);
  slice(heads, kv_heads, sk);
  slice(heads + kv_heads, kv_heads, sv);
  rms_norm_cuda(stream,
                {.type = type,
                 .width = dim,
                 .eps = 1e-6f,
                 .x = sq.get(),
                 .weight = d_qn.as<float>(),
                 .y = nq.get()},
                tokens * heads);
  rms_norm_cuda(stream,
                {.type = type,
                 .width = dim,
                 .eps = 1e-6f,
                 .x = sk.get(),
                 .weight = d_kn.as<float>(),
                 .y = nk.get()},
                tokens * kv_heads);
  RopeKernelParams rope = {.type = type,
                           .heads = heads,
                           .head_dim = dim,
                           .rotary_dim = rotary,
                           .positions = d_pos.as<int32_t>(),
                           .cos_sin = d_table.as<float>(),
                           .x = nq.get(),
                           .y = rq.get()};
  rope_cuda(stream, rope, tokens);
  rope.heads = kv_heads;
  rope.x = nk.get();
  rope.y = rk.get();
  rope_cuda(stream, rope, tokens);
  const DeviceBytes k2(pool), v2(pool), ks2(ks.size()), vs2(vs.size());
  kv_write_cuda(stream, {.type = type,
                         .kv_type = kv_type,
                         .tokens = tokens,
                         .kv_heads = kv_heads,
                         .key_dim = dim,
                         .value_dim = dim,
                         .slots = d_slots.as<int64_t>(),
                         .k = rk.get(),
                         .v = sv.get(),
                         .k_pool = k2.get(),
                         .v_pool = v2.get(),
                         .k_scale = ks2.as<float>(),
                         .v_scale = vs2.as<float>()});
  const std::string what = with("qk_norm_rope_kv_write", type, dim) + " kv type " +
                           std::to_string(static_cast<int>(kv_type));
  compare_bits(what + " q", q.read<uint8_t>(), rq.read<uint8_t>());
  compare_bits(what + " k", k.read<uint8_t>(), k2.read<uint8_t>());
  compare_bits(what + " v", v.read<uint8_t>(), v2.read<uint8_t>());
  compare_bits(what + " k scale", ks.read<uint8_t>(), ks2.read<uint8_t>());
  // Against float64.
  const auto got = read_floats(q, type);
  std::vector<double> want;
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t h = 0; h < heads; ++h) {
      const float* x = &qkv[static_cast<size_t>(t * row + h * dim)];
      double total = 0;
      for (int64_t i = 0; i < dim; ++i) total += static_cast<double>(x[i]) * x[i];
      std::vector<double> n;
      for (int64_t i = 0; i < dim; ++i)
        n.push_back(x[i] / std::sqrt(total / static_cast<double>(dim) + 1e-6) * qn[i]);
      for (int64_t i = 0; i < dim; ++i) {
        const int64_t half = rotary / 2, pair = i % std::max<int64_t>(1, half);
        const float* cs = &table[static_cast<size_t>(positions[t] * rotary)];
        want.push_back(i >= rotary ? n[i]
                                   : (i < half ? n[i] * cs[i] - n[i + half] * cs[half + i]
                                               : n[i] * cs[pair] + n[pair] * cs[half + pair]));
      }
    }
  compare(what, got, want, 3 * rounding(type) + 1e-6, 1.0);
  if (!is_quantised(kv_type)) return;
  const auto codes = v.read<uint8_t>();
  const auto scales = vs.read<float>();
  double worst = 0;
  for (int64_t h = 0; h < kv_heads; ++h)
    for (int64_t i = 0; i < dim; ++i) {
      const size_t at = static_cast<size_t>((4 * kv_heads + h) * dim + i);
      const float value = kv_type == KvType::kInt8 ? to_float(I8{static_cast<int8_t>(codes[at])})
                                                   : to_float(F8{codes[at]});
      const float x = qkv[static_cast<size_t>((heads + kv_heads + h) * dim + i)],
                  scale = scales[4 * kv_heads + h];
      const double step =
          kv_type == KvType::kInt8 ? 0.5 * scale : std::abs(x) / 16 + scale * 0x1p-10;
      worst = std::max(worst, std::abs(value * scale - x) / step);
    }
  report(worst <= 1.001, what + " v codes, of half a step", worst, 1);
}

void check_embedding(CudaStream stream, FloatType type) {
  const int64_t n = 50, k = 77;
  const auto rows = random_floats(static_cast<size_t>(n * k), type, 20);
  const std::vector<int32_t> ids = {0, 49, 17, 16, 15, 17};
  const DeviceBytes d_rows(encode(rows, type)), d_ids(ids);
  CudaWeightLayout layout = {.n = n, .k = k, .type = type};
  const DeviceBytes packed(static_cast<size_t>(layout.bytes()));
  clear_packed_cuda(stream, layout, packed.get());
  pack_rows_cuda(stream, {.layout = layout,
                          .rows = n,
                          .source = d_rows.get(),
                          .source_type = type,
                          .packed = packed.get()});
  const DeviceBytes y(ids.size() * k * float_type_bytes(type)), z(ids.size() * k * 4);
  embedding_cuda(stream, {.tokens = 6,
                          .ids = d_ids.as<int32_t>(),
                          .layout = layout,
                          .packed = packed.get(),
                          .y = y.get()});
  EmbeddingCudaParams plain = {.tokens = 6, .ids = d_ids.as<int32_t>(), .layout = {}};
  plain.rows = d_rows.get();
  plain.rows_type = type;
  plain.k = k;
  plain.out_type = FloatType::kF32;
  plain.y = z.get();
  embedding_cuda(stream, plain);
  std::vector<double> want;
  for (const int32_t id : ids)
    want.insert(want.end(), rows.begin() + id * k, rows.begin() + (id + 1) * k);
  compare(with("embedding packed", type, k), read_floats(y, type), want, 0);
  compare(with("embedding rows", type, k), z.read<float>(), want, 0);
}

void check_copies(CudaStream stream) {
  std::vector<int32_t> x(6 * 10);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<int32_t>(i);
  const DeviceBytes from(x), rows(std::vector<int32_t>{1, 5, 0}), to(3 * 10 * 4);
  gather_rows_cuda(stream, {.count = 3,
                            .row_bytes = 40,
                            .rows = rows.as<int32_t>(),
                            .from = from.get(),
                            .to = to.get()});
  const auto got = to.read<int32_t>();
  bool right = true;
  for (int i = 0; i < 30; ++i)
    right = right && got[i] == (i / 10 == 0 ? 10 : (i / 10 == 1 ? 50 : 0)) + i % 10;
  report(right, "gather_rows", 0, 0);
  const DeviceBytes ids(std::vector<int32_t>{7, 8, 9}), source(std::vector<int32_t>{-1, 1, 0}),
      previous(std::vector<int32_t>{-1, 42}), out(12);
  resolve_tokens_cuda(stream, {.count = 3,
                               .ids = ids.as<int32_t>(),
                               .from = source.as<int32_t>(),
                               .previous = previous.as<int32_t>(),
                               .out = out.as<int32_t>()});
  report(out.read<int32_t>() == std::vector<int32_t>({7, 42, 0}), "resolve_tokens", 0, 0);
  const DeviceBytes pool(x), conv(x), pairs(std::vector<int32_t>{0, 3, 1, 5});
  copy_slots_cuda(stream, {.count = 2,
                           .pairs = pairs.as<int32_t>(),
                           .recurrent = pool.get(),
                           .conv = conv.get(),
                           .recurrent_bytes = 40,
                           .conv_bytes = 36});
  const auto a = pool.read<int32_t>(), b = conv.read<int32_t>();
  report(a[30] == 0 && a[39] == 9 && a[50] == 10 && a[40] == 40 && b[27] == 0 && b[45] == 9 &&
             b[44] == 44,
         "copy_slots", 0, 0);
}

}  // namespace

void check_elementwise(CudaStream stream) {
  for (const FloatType type : kTypes) {
    if (few && type != FloatType::kBf16) continue;
    for (const int64_t width : {1, 7, 64, 128, 1000, 4096, 5120}) check_norm(stream, type, width);
    for (const int64_t width : {5, 64, 3072}) check_gates(stream, type, width);
    const KvType own = kv_type_of(type);
    check_rope(stream, type, own, 128, 128);
    check_rope(stream, type, own, 64, 32);
    check_rope(stream, type, own, 36, 36);
    check_rope(stream, type, own, 512, 128);
    for (const KvType codes : {KvType::kInt8, KvType::kFp8})
      check_rope(stream, type, codes, 128, 128);
    check_embedding(stream, type);
  }
  check_copies(stream);
}

}  // namespace quire::ops::cuda_test
