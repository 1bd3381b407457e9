#include "ops/linear/linear.h"

#include "bench/ops/cases.h"
#include "bench/ops/shapes.h"
#include "bench/ops/weight_formats.h"

namespace quire::bench {
namespace {

// Weights are read cold, as in a model: copies, taken in turn, exceed every cache.
constexpr size_t kWeightBytes = size_t{512} << 20;

// What a model has the product do besides: the norm before it, the residual stream behind it, the
// gate of an MLP, logits in float32.
enum class Use { kNormed, kAdded, kNormedAndGated, kLogits };

struct Matrix {
  const char* name;
  int n, k;
  Use use;

  bool has_norm() const { return use != Use::kAdded; }
  int out_columns() const { return use == Use::kNormedAndGated ? n / 2 : n; }
};
constexpr int kQueries = kHeads * kHeadDim;
constexpr Matrix kMatrices[] = {{"qkv", kQueries + 2 * kKvHeads* kHeadDim, kHidden, Use::kNormed},
                                {"o", kHidden, kQueries, Use::kAdded},
                                {"gate_up", 2 * kIntermediate, kHidden, Use::kNormedAndGated},
                                {"down", kHidden, kIntermediate, Use::kAdded},
                                {"head", kVocab, kHidden, Use::kLogits}};
constexpr int kRows[] = {1, 8, 32, 512, 2048};
constexpr int kMostHeadRows = 32;  // only sampled rows meet the head

std::vector<ops::LinearWeight> make_copies(const ops::Context& context, const WeightFormat& format,
                                           const Matrix& matrix) {
  const mx::array source = random_bf16({matrix.n, matrix.k});
  std::vector<ops::LinearWeight> copies;
  for (size_t bytes = 0; bytes < kWeightBytes;) {
    copies.push_back(format.make(context, source, matrix.use == Use::kNormedAndGated));
    bytes += copies.back().weight.nbytes();
  }
  return copies;
}

ops::LinearOptions options_of(const Matrix& matrix, int rows) {
  ops::LinearOptions options;
  if (matrix.has_norm()) {
    options.norm = ops::LinearOptions::Norm{.weight = mx::ones({matrix.k}), .eps = 1e-6f};
    mx::eval(options.norm->weight);
  } else {
    options.residual = random_bf16({rows, matrix.n});
  }
  if (matrix.use == Use::kNormedAndGated) options.gate = ops::Gate{};
  if (matrix.use == Use::kLogits) options.out_dtype = mx::float32;
  return options;
}

OpWork work_of(const Matrix& matrix, const ops::PackedMatrix& weight, int rows) {
  double row_bytes = 2.0 * matrix.k;
  row_bytes += (matrix.use == Use::kLogits ? 4.0 : 2.0) * matrix.out_columns();
  if (matrix.use == Use::kAdded) row_bytes += 2.0 * matrix.n;
  return {.bytes = static_cast<double>(weight.nbytes()) + rows * row_bytes,
          .flops = 2.0 * rows * matrix.n * matrix.k};
}

void bench_matrix(OpBench& bench, const WeightFormat& format, const Matrix& matrix) {
  std::vector<ops::LinearWeight> copies;
  for (const int rows : kRows) {
    const std::string name =
        std::string("linear/") + format.name + "/" + matrix.name + "/M=" + std::to_string(rows);
    if (!bench.wants(name) || (matrix.use == Use::kLogits && rows > kMostHeadRows)) continue;
    if (copies.empty()) copies = make_copies(bench.context(), format, matrix);
    const mx::array x = random_bf16({rows, matrix.k});
    const ops::LinearOptions options = options_of(matrix, rows);
    bench.measure(name, work_of(matrix, copies.front().weight, rows), [&](int64_t run) {
      return ops::linear(bench.context(), x, copies[run % copies.size()], options);
    });
  }
}

}  // namespace

void bench_linear(OpBench& bench) {
  for (const WeightFormat& format : weight_formats())
    for (const Matrix& matrix : kMatrices) bench_matrix(bench, format, matrix);
}

}  // namespace quire::bench
