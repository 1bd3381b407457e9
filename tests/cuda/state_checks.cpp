#include <algorithm>
#include <memory>

#include "harness.h"
#include "ops/causal_conv1d/causal_conv1d_cuda.h"
#include "ops/gated_delta_rule/gated_delta_rule_cuda.h"
#include "ops/gated_rms_norm/gated_rms_norm_cuda.h"

namespace quire::ops::cuda_test {
namespace {

// Sequences of these lengths; `cut` of each run as a first step, the rest as a second.
struct Steps {
  std::vector<int> lengths;
  int cut = 0;
};

// Rows [from, to) of each sequence as one step.
struct StepBatch {
  StepBatch(const std::vector<int>& lengths, int from, int to) {
    std::vector<int32_t> cu = {0}, positions, slots;
    int start = 0;
    for (size_t s = 0; s < lengths.size(); ++s) {
      for (int i = std::min(from, lengths[s]); i < std::min(to, lengths[s]); ++i) {
        positions.push_back(i);
        rows.push_back(start + i);
      }
      start += lengths[s];
      cu.push_back(static_cast<int32_t>(positions.size()));
      slots.push_back(static_cast<int32_t>(lengths.size() - s));
    }
    buffers[0] = std::make_unique<DeviceBytes>(cu);
    buffers[1] = std::make_unique<DeviceBytes>(positions);
    buffers[2] = std::make_unique<DeviceBytes>(slots);
    batch = {.num_sequences = static_cast<int64_t>(lengths.size()),
             .max_tokens = to - from,
             .cu_seqlens = buffers[0]->as<int32_t>(),
             .positions = buffers[1]->as<int32_t>(),
             .state_slots = buffers[2]->as<int32_t>()};
  }
  std::vector<int> rows;  // of the whole
  std::unique_ptr<DeviceBytes> buffers[3];
  StateCudaBatch batch;
};

std::vector<float> take_rows(const std::vector<float>& x, const std::vector<int>& rows,
                             int64_t width) {
  std::vector<float> out;
  for (const int row : rows)
    out.insert(out.end(), x.begin() + row * width, x.begin() + (row + 1) * width);
  return out;
}

int total(const std::vector<int>& lengths) {
  int sum = 0;
  for (const int n : lengths) sum += n;
  return sum;
}

// Runs both steps by run(batch, rows) -> y of the rows, and puts them together.
template <class Run>
std::vector<float> in_steps(const Steps& steps, int64_t width, Run run) {
  std::vector<float> y(static_cast<size_t>(total(steps.lengths) * width));
  const int most = *std::max_element(steps.lengths.begin(), steps.lengths.end());
  for (const auto& [from, to] : {std::pair{0, steps.cut}, {steps.cut, most}}) {
    if (from == to) continue;
    const StepBatch step(steps.lengths, from, to);
    if (step.rows.empty()) continue;
    const std::vector<float> part = run(step);
    for (size_t i = 0; i < step.rows.size(); ++i)
      std::copy_n(part.begin() + i * width, width, y.begin() + step.rows[i] * width);
  }
  return y;
}

const std::vector<int> kLengths = {5, 1, 70, 2, 33};

void check_conv(CudaStream stream, FloatType type, int64_t kernel, int64_t channels) {
  const int64_t row = channels + 8, slots = 7;
  const auto x = random_floats(static_cast<size_t>(total(kLengths) * row), type, 1);
  const auto w = random_floats(static_cast<size_t>(kernel * channels), FloatType::kF32, 2);
  const DeviceBytes dw(w);
  std::vector<double> want;
  int start = 0;
  for (const int n : kLengths) {
    for (int t = 0; t < n; ++t)
      for (int64_t c = 0; c < channels; ++c) {
        double sum = 0;
        for (int64_t j = 0; j < kernel; ++j)
          if (const int64_t at = t - kernel + 1 + j; at >= 0)
            sum += static_cast<double>(w[j * channels + c]) * x[(start + at) * row + c];
        want.push_back(sum / (1 + std::exp(-sum)));
      }
    start += n;
  }
  std::vector<float> first;
  for (const int cut : {0, 1, 3, 40}) {
    const DeviceBytes state(
        static_cast<size_t>(slots * (kernel - 1) * channels * float_type_bytes(type)));
    const auto y = in_steps({kLengths, cut}, channels, [&](const StepBatch& step) {
      const DeviceBytes dx(encode(take_rows(x, step.rows, row), type));
      const DeviceBytes out(step.rows.size() * channels * float_type_bytes(type));
      causal_conv1d_cuda(stream,
                         {.type = type,
                          .kernel = kernel,
                          .channels = channels,
                          .row = row,
                          .x = dx.get(),
                          .weight = dw.as<float>(),
                          .y = out.get(),
                          .state = state.get()},
                         step.batch);
      return read_floats(out, type);
    });
    const std::string what = std::string("causal_conv1d ") + name(type) + " kernel " +
                             std::to_string(kernel) + " cut " + std::to_string(cut);
    compare(what, y, want, rounding(type) + 1e-5, 0.05);
    if (first.empty()) first = y;
    report(first == y, what + " bits", 0, 0);
  }
}

struct DeltaInputs {
  int64_t k_heads, v_heads, k_dim, v_dim, row, gates_row;
  std::vector<float> qkv, gates, a_log, dt;
};

std::vector<double> delta_oracle(const DeltaInputs& x) {
  const auto& [k_heads, v_heads, k_dim, v_dim, row, gates_row, qkv, gates, a_log, dt] = x;
  std::vector<double> want;
  int start = 0;
  for (const int n : kLengths) {
    std::vector<double> state(static_cast<size_t>(v_heads * v_dim * k_dim));
    for (int t = 0; t < n; ++t)
      for (int64_t h = 0; h < v_heads; ++h) {
        const float* in = &qkv[static_cast<size_t>((start + t) * row)];
        const float* g = &gates[static_cast<size_t>((start + t) * gates_row)];
        const float *q = in + h / (v_heads / k_heads) * k_dim, *k = q + k_heads * k_dim,
                    *v = in + 2 * k_heads * k_dim + h * v_dim;
        double qs = 1e-6, ks = 1e-6;
        for (int64_t i = 0; i < k_dim; ++i)
          qs += static_cast<double>(q[i]) * q[i], ks += static_cast<double>(k[i]) * k[i];
        const double decay = std::exp(-std::exp(static_cast<double>(a_log[h])) *
                                      std::log1p(std::exp(static_cast<double>(g[1 + h]) + dt[h])));
        const double beta = 1 / (1 + std::exp(-static_cast<double>(g[1 + v_heads + h])));
        for (int64_t r = 0; r < v_dim; ++r) {
          double* m = &state[static_cast<size_t>((h * v_dim + r) * k_dim)];
          double seen = 0, y = 0;
          for (int64_t i = 0; i < k_dim; ++i) seen += (m[i] *= decay) * k[i] / std::sqrt(ks);
          for (int64_t i = 0; i < k_dim; ++i)
            y += (m[i] += beta * (v[r] - seen) * k[i] / std::sqrt(ks)) * q[i] /
                 std::sqrt(qs * static_cast<double>(k_dim));
          want.push_back(y);
        }
      }
    start += n;
  }
  return want;
}

void check_delta(CudaStream stream, FloatType type, int64_t k_heads, int64_t v_heads, int64_t k_dim,
                 int64_t v_dim) {
  const int64_t row = 2 * k_heads * k_dim + v_heads * v_dim, gates_row = 2 * v_heads + 3, slots = 7;
  const auto qkv = random_floats(static_cast<size_t>(total(kLengths) * row), type, 3);
  const auto gates = random_floats(static_cast<size_t>(total(kLengths) * gates_row), type, 4);
  const auto a_log = random_floats(static_cast<size_t>(v_heads), FloatType::kF32, 5),
             dt = random_floats(a_log.size(), FloatType::kF32, 6);
  const DeviceBytes da(a_log), ddt(dt);
  const std::vector<double> want =
      delta_oracle({k_heads, v_heads, k_dim, v_dim, row, gates_row, qkv, gates, a_log, dt});
  std::vector<float> first;
  for (const int cut : {0, 1, 2, 30}) {
    const DeviceBytes state(static_cast<size_t>(slots * v_heads * v_dim * k_dim * 4));
    const auto y = in_steps({kLengths, cut}, v_heads * v_dim, [&](const StepBatch& step) {
      const DeviceBytes dq(encode(take_rows(qkv, step.rows, row), type)),
          dg(encode(take_rows(gates, step.rows, gates_row), type));
      const DeviceBytes out(step.rows.size() * v_heads * v_dim * float_type_bytes(type));
      GatedDeltaRuleParams p = {.type = type,
                                .k_heads = k_heads,
                                .v_heads = v_heads,
                                .k_dim = k_dim,
                                .v_dim = v_dim,
                                .gates_row = gates_row,
                                .a_column = 1,
                                .b_column = 1 + v_heads,
                                .qkv = dq.get(),
                                .gates = dg.get(),
                                .a_log = da.as<float>(),
                                .dt_bias = ddt.as<float>(),
                                .state = state.as<float>(),
                                .y = out.get()};
      gated_delta_rule_cuda(stream, p, step.batch);
      return read_floats(out, type);
    });
    const std::string what = std::string("gated_delta_rule ") + name(type) + " Dk " +
                             std::to_string(k_dim) + " Dv " + std::to_string(v_dim) + " cut " +
                             std::to_string(cut);
    compare(what, y, want, rounding(type) + 2e-5, 0.05);
    if (first.empty()) first = y;
    report(first == y, what + " bits", 0, 0);
  }
}

void check_gated_norm(CudaStream stream, FloatType type, int64_t dim) {
  const int64_t tokens = 3, heads = 5, z_row = heads * dim + 16;
  const auto x = random_floats(static_cast<size_t>(tokens * heads * dim), type, 7),
             z = random_floats(static_cast<size_t>(tokens * z_row), type, 8);
  const auto w = random_floats(static_cast<size_t>(dim), FloatType::kF32, 9);
  const DeviceBytes dx(encode(x, type)), dz(encode(z, type)), dw(w), y(dx.size());
  GatedRmsNormParams p = {.type = type,
                          .heads = heads,
                          .dim = dim,
                          .z_row = z_row,
                          .z_first = 8,
                          .eps = 1e-6f,
                          .x = dx.get(),
                          .z = dz.get(),
                          .weight = dw.as<float>(),
                          .y = y.get()};
  gated_rms_norm_cuda(stream, p, tokens);
  std::vector<double> want;
  for (int64_t h = 0; h < tokens * heads; ++h) {
    double sum = 0;
    for (int64_t i = 0; i < dim; ++i) sum += static_cast<double>(x[h * dim + i]) * x[h * dim + i];
    for (int64_t i = 0; i < dim; ++i) {
      const double gate = z[h / heads * z_row + 8 + h % heads * dim + i];
      want.push_back(x[h * dim + i] / std::sqrt(sum / static_cast<double>(dim) + 1e-6) * w[i] *
                     gate / (1 + std::exp(-gate)));
    }
  }
  compare(std::string("gated_rms_norm ") + name(type), read_floats(y, type), want,
          rounding(type) + 1e-5, 1e-3);
}

}  // namespace

void check_state(CudaStream stream) {
  for (const FloatType type : kTypes) {
    if (few && type != FloatType::kBf16) continue;
    check_conv(stream, type, 4, 200);
    check_conv(stream, type, 2, 64);
    check_conv(stream, type, 8, 31);
    check_delta(stream, type, 2, 4, 128, 128);
    check_delta(stream, type, 1, 1, 20, 10);
    check_delta(stream, type, 1, 2, 256, 72);
    check_gated_norm(stream, type, 128);
    check_gated_norm(stream, type, 50);
  }
}

}  // namespace quire::ops::cuda_test
