#include <algorithm>
#include <memory>

#include "harness.h"
#include "ops/moe_experts/moe_experts_cuda.h"
#include "ops/moe_route/moe_route_cuda.h"

namespace quire::ops::cuda_test {
namespace {

void check_route(CudaStream stream, int64_t experts, int64_t top_k, bool normalise) {
  const int64_t rows = 9;
  auto logits =
      random_floats(static_cast<size_t>(rows * experts), FloatType::kBf16, 1);  // with ties
  const DeviceBytes d(logits), ids(static_cast<size_t>(rows * top_k * 4)),
      weights(static_cast<size_t>(rows * top_k * 4));
  moe_route_cuda(stream,
                 {.num_experts = experts,
                  .options = {.top_k = top_k, .normalise = normalise},
                  .logits = d.as<float>(),
                  .experts = ids.as<int32_t>(),
                  .weights = weights.as<float>()},
                 rows);
  const auto got = ids.read<int32_t>();
  std::vector<int32_t> want;
  std::vector<double> want_weights;
  for (int64_t r = 0; r < rows; ++r) {
    std::vector<int32_t> order(static_cast<size_t>(experts));
    for (int64_t e = 0; e < experts; ++e) order[e] = static_cast<int32_t>(e);
    const float* x = &logits[static_cast<size_t>(r * experts)];
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return x[a] > x[b]; });
    double sum = 0;
    for (int64_t e = 0; e < (normalise ? top_k : experts); ++e)
      sum += std::exp(static_cast<double>(x[order[e]]));
    for (int64_t i = 0; i < top_k; ++i) {
      want.push_back(order[i]);
      want_weights.push_back(std::exp(static_cast<double>(x[order[i]])) / sum);
    }
  }
  const std::string what = "moe_route " + std::to_string(experts) + " top " + std::to_string(top_k);
  report(got == want, what + " experts", 0, 0);
  compare(what + " weights", weights.read<float>(), want_weights, 1e-6, 1e-3);
}

struct Matrices {
  CudaWeightLayout layout;
  std::vector<std::vector<float>> values = {};
  std::vector<std::unique_ptr<DeviceBytes>> packed = {};
  std::unique_ptr<DeviceBytes> table = nullptr;
};

Matrices make(CudaStream stream, int64_t experts, const CudaWeightLayout& layout, uint32_t seed) {
  Matrices m = {.layout = layout};
  std::vector<const void*> table;
  for (int64_t e = 0; e < experts; ++e) {
    m.values.push_back(random_floats(static_cast<size_t>(layout.n * layout.k), layout.type,
                                     seed + static_cast<uint32_t>(e), 0.1f));
    m.packed.push_back(std::make_unique<DeviceBytes>(static_cast<size_t>(layout.bytes())));
    const DeviceBytes source(encode(m.values.back(), layout.type));
    clear_packed_cuda(stream, layout, m.packed.back()->get());
    pack_rows_cuda(stream, {.layout = layout,
                            .rows = layout.n,
                            .source = source.get(),
                            .source_type = layout.type,
                            .packed = m.packed.back()->get()});
    check_cuda(cudaDeviceSynchronize(), "pack");
    table.push_back(m.packed.back()->get());
  }
  m.table = std::make_unique<DeviceBytes>(table);
  return m;
}

void check(CudaStream stream, FloatType type, int64_t rows, bool extras) {
  const int64_t experts = 12, top_k = 3, hidden = 96, inner = 80;
  const Matrices gate_up =
      make(stream, experts, {.n = 2 * inner, .k = hidden, .type = type, .interleaved = true}, 100);
  const Matrices down = make(stream, experts, {.n = hidden, .k = inner, .type = type}, 200);
  const auto x = random_floats(static_cast<size_t>(rows * hidden), type, 1),
             shared = random_floats(x.size(), type, 2), residual = random_floats(x.size(), type, 3);
  const auto logit = random_floats(static_cast<size_t>(rows), FloatType::kF32, 4),
             weights = random_floats(static_cast<size_t>(rows * top_k), FloatType::kF32, 5);
  std::mt19937 random(6);
  std::vector<int32_t> chosen;
  for (int64_t r = 0; r < rows; ++r) {
    std::vector<int32_t> all(experts);
    for (int32_t e = 0; e < experts; ++e) all[e] = e;
    std::shuffle(all.begin(), all.end(), random);
    chosen.insert(chosen.end(), all.begin(), all.begin() + top_k);
  }
  const auto run = [&](int64_t m) {
    const DeviceBytes dx(encode({x.begin(), x.begin() + m * hidden}, type)),
        ds(encode(shared, type)), dr(encode(residual, type));
    const DeviceBytes dl(logit), de(chosen), dw(weights),
        y(static_cast<size_t>(m * hidden * float_type_bytes(type)));
    MoeExpertsCudaParams p = {.type = type,
                              .rows = m,
                              .hidden = hidden,
                              .intermediate = inner,
                              .top_k = top_k,
                              .num_experts = experts,
                              .gate_up = gate_up.layout,
                              .down = down.layout};
    p.gate_up_weights = gate_up.table->as<const void*>();
    p.down_weights = down.table->as<const void*>();
    p.x = dx.get();
    p.experts = de.as<int32_t>();
    p.weights = dw.as<float>();
    if (extras) {
      p.shared = ds.get();
      p.shared_logit = dl.as<float>();
      p.residual = dr.get();
    }
    p.y = y.get();
    const DeviceBytes scratch(moe_experts_cuda_scratch_bytes(p));
    p.scratch = scratch.get();
    moe_experts_cuda(stream, p);
    return y.read<uint8_t>();
  };
  const auto got = run(rows);
  std::vector<double> want;
  for (int64_t r = 0; r < rows; ++r) {
    std::vector<double> y(static_cast<size_t>(hidden));
    for (int64_t i = 0; i < top_k; ++i) {
      const auto e = static_cast<size_t>(chosen[r * top_k + i]);
      std::vector<double> h;
      for (int64_t n = 0; n < inner; ++n) {
        double gate = 0, up = 0;
        for (int64_t k = 0; k < hidden; ++k) {
          gate += static_cast<double>(gate_up.values[e][n * hidden + k]) * x[r * hidden + k];
          up +=
              static_cast<double>(gate_up.values[e][(inner + n) * hidden + k]) * x[r * hidden + k];
        }
        h.push_back(gate / (1 + std::exp(-gate)) * up);
      }
      for (int64_t n = 0; n < hidden; ++n) {
        double sum = 0;
        for (int64_t k = 0; k < inner; ++k) sum += down.values[e][n * inner + k] * h[k];
        y[n] += weights[r * top_k + i] * sum;
      }
    }
    for (int64_t n = 0; n < hidden; ++n) {
      const auto at = static_cast<size_t>(r * hidden + n);
      want.push_back(y[n] + (extras ? shared[at] / (1 + std::exp(-static_cast<double>(logit[r]))) +
                                          residual[at]
                                    : 0));
    }
  }
  const std::string what =
      std::string("moe_experts ") + name(type) + " rows " + std::to_string(rows);
  compare(what, decode(got, type), want, 8 * rounding(type) + 1e-5, 1.0);
  for (const int64_t m : {int64_t{1}, rows / 2}) {
    const auto other = run(m);
    compare_bits(what + " as of " + std::to_string(m),
                 {got.begin(), got.begin() + static_cast<long>(other.size())}, other);
  }
}

}  // namespace

void check_experts(CudaStream stream) {
  check_route(stream, 128, 8, true);
  check_route(stream, 60, 4, false);
  check_route(stream, 512, 10, true);
  check_route(stream, 5, 5, false);
  for (const FloatType type : kTypes) {
    if (few && type != FloatType::kBf16) continue;
    check(stream, type, 2, false);
    check(stream, type, few ? 12 : 70, true);
  }
}

}  // namespace quire::ops::cuda_test
