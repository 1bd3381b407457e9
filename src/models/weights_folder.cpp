// The part of WeightLoader that takes weights of folders that were made for GPUs: which format they
// are in, and the whole numbers of AutoAWQ, GPTQ and compressed-tensors.
#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

#include "base/error.h"
#include "models/folder_tensors.h"
#include "models/tensor_checks.h"
#include "models/weights.h"
#include "ops/cpu/half.h"

namespace quire::models {
namespace {

using formats::FolderFormat;
using formats::FolderScheme;
using formats::IntegerMatrix;
using formats::RawTensor;

float to_float(uint16_t bits, mx::Dtype dtype) {
  return dtype == mx::float16 ? ops::to_float(ops::F16{bits}) : ops::to_float(ops::Bf16{bits});
}

// How the names of quantised values end.
const char* values_suffix(FolderFormat format) {
  switch (format) {
    case FolderFormat::kAwq:
    case FolderFormat::kGptq:
      return ".qweight";
    case FolderFormat::kPacked:
    case FolderFormat::kMxfp4:
    case FolderFormat::kNvfp4:
      return ".weight_packed";
    case FolderFormat::kInt8:
    case FolderFormat::kFp8:
    case FolderFormat::kModeloptNvfp4:
    case FolderFormat::kNf4:
      break;
  }
  return ".weight";
}

bool is_zero(const RawTensor& tensor) {
  return std::ranges::all_of(tensor.read_all(), [](std::byte b) { return b == std::byte{0}; });
}

// Throws LoadError unless a tensor of two whole numbers is these.
void expect_says(const RawTensor& tensor, const std::array<int64_t, 2>& expected) {
  const std::vector<std::byte> bytes = tensor.read_all();
  std::array<int64_t, 2> said = {};
  if (tensor.dtype == formats::DType::kI64) {
    std::memcpy(said.data(), bytes.data(), bytes.size());
  } else {
    std::array<int32_t, 2> narrow;
    std::memcpy(narrow.data(), bytes.data(), bytes.size());
    std::ranges::copy(narrow, said.begin());
  }
  if (said != expected)
    throw LoadError(where(tensor) + " says " + shape_text({said[0], said[1]}) +
                    ", but config.json asks for " + shape_text({expected[0], expected[1]}) +
                    kOtherConfig);
}

void expect_whole_words(const RawTensor& values, int64_t k) {
  if (k % 32 != 0)
    throw LoadError(where(values) + " has " + std::to_string(k) +
                    " columns, which 32 do not divide");
}

// Scales, which are finite, and their dtype. Those of float32 that bfloat16 holds exactly are
// narrowed to it.
struct Scales {
  std::vector<std::byte> bytes;
  mx::Dtype dtype;
};
Scales narrow_scales(const RawTensor& tensor) {
  Scales out = {.bytes = tensor.read_all(), .dtype = float_dtype(tensor)};
  expect_finite(tensor, out.bytes);
  if (out.dtype != mx::float32) return out;
  std::vector<std::byte> high;
  for (size_t i = 0; i < out.bytes.size(); i += 4) {
    if (out.bytes[i] != std::byte{0} || out.bytes[i + 1] != std::byte{0}) return out;
    high.insert(high.end(), {out.bytes[i + 2], out.bytes[i + 3]});
  }
  return {.bytes = std::move(high), .dtype = mx::bfloat16};
}

// Columns with one scale and bias in the packed matrix: those of a group, or a part of them, so
// that the last group has whole parts, too.
int64_t packed_group(const IntegerMatrix& m) {
  const int64_t both = std::gcd(m.k, m.group_size);
  return both % 128 == 0 ? 128 : both % 64 == 0 ? 64 : 32;
}

// A byte of each group, [n, groups], and the number that has to be added to each. Most zero points
// are bytes; those of 8 bits that are stored less one may be 256.
struct ZeroBytes {
  ops::ZeroPoints kind = ops::ZeroPoints::kBytes;
  int least = 0;
  std::vector<std::byte> bytes = {};
};

ZeroBytes zero_bytes(const IntegerMatrix& m, const FolderScheme& scheme, const RawTensor& values) {
  if (scheme.symmetric) {
    const int middle = 1 << (scheme.bits - 1);
    if (std::ranges::any_of(m.zeros, [&](uint16_t zero) { return zero != middle; }))
      throw LoadError(where(values) + " has a zero point that symmetric weights do not have" +
                      kOtherConfig);
    return {.kind = ops::ZeroPoints::kSame, .least = middle};
  }
  ZeroBytes out{.least = scheme.bits == 8 && scheme.zeros_less_one ? 1 : 0};
  out.bytes.reserve(m.zeros.size());
  for (const uint16_t zero : m.zeros) out.bytes.push_back(static_cast<std::byte>(zero - out.least));
  return out;
}

// Of values [n, groups], those of the packed groups.
template <class T>
void spread(const IntegerMatrix& m, int64_t packed, const std::vector<T>& values, std::byte* out) {
  for (int64_t row = 0; row < m.n; ++row)
    for (int64_t column = 0; column < m.k; column += packed, out += sizeof(T))
      std::memcpy(out, &values[static_cast<size_t>(row * m.groups() + column / m.group_size)],
                  sizeof(T));
}

// The columns in the order of their groups, if all but the last have the size; or nothing.
std::vector<int32_t> grouped_columns(const IntegerMatrix& m) {
  std::vector<int32_t> order(static_cast<size_t>(m.k));
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](int32_t column) { return m.group(column); });
  for (int64_t j = 0; j < m.k; ++j)
    if (m.group(order[static_cast<size_t>(j)]) != j / m.group_size) return {};
  return order;
}

}  // namespace

// One number says how activations would be rounded (formats::FolderQuantization::note); others
// would be something else.
void WeightLoader::skip_activation_scales(const std::string& stem) {
  if (!folder_quantization_->stored_activation_scales) return;
  for (const char* name : {".input_scale", ".activation_scale"}) {
    const RawTensor* scale = checkpoint_.find(stem + name);
    if (scale && scale->num_elements() == 1) taken_.insert(scale->name);
  }
}

bool WeightLoader::is_kv_scale(const std::string& name) const {
  return folder_quantization_ && folder_quantization_->kv_cache_floats &&
         (name.ends_with(".k_scale") || name.ends_with(".v_scale") || name.ends_with(".kv_scale"));
}

WeightLoader::Part WeightLoader::take_folder(const RawTensor& values, int64_t n, int64_t k,
                                             int64_t stack) {
  taken_.insert(values.name);
  if (!folder_quantization_)
    throw LoadError(where(values) +
                    " is quantised, but config.json has no \"quantization_config\" " +
                    "that says how; take the config.json that came with the weights");
  if (stack)
    throw LoadError(where(values) + " holds all experts of a layer, which is not supported in " +
                    folder_quantization_->title());
  const FolderScheme* scheme = folder_quantization_->of_layer(layer_name(values.name));
  if (!scheme)
    throw LoadError(where(values) + " is quantised, but " + folder_quantization_->file +
                    " says that it is not" + kNotOfOneModel);
  if ((scheme->format == FolderFormat::kFp8) != (values.dtype == formats::DType::kF8E4M3))
    throw LoadError(where(values) + " has dtype " + std::string(formats::dtype_name(values.dtype)) +
                    ", which is not " + folder_quantization_->title() + kOtherConfig);
  if (scheme->format == FolderFormat::kFp8) return take_float8(values, *scheme, n, k);
  if (!values.name.ends_with(values_suffix(scheme->format)))
    throw LoadError(where(values) + " is no tensor of " + folder_quantization_->title() +
                    kOtherConfig);
  if (scheme->format == FolderFormat::kNf4) return take_nf4(values, n, k);
  if (scheme->format == FolderFormat::kMxfp4) return take_mxfp4_bytes(values, n, k);
  if (scheme->format == FolderFormat::kNvfp4 || scheme->format == FolderFormat::kModeloptNvfp4)
    return take_nvfp4_bytes(values, *scheme, n, k);
  if (scheme->format == FolderFormat::kInt8) return take_signed_bytes(values, *scheme, n, k);
  // GPTQ's programs store biases of zeros for families without biases.
  const RawTensor* bias = checkpoint_.find(layer_name(values.name) + ".bias");
  if (bias && is_zero(*bias)) taken_.insert(bias->name);
  return take_integers(values, *scheme, n, k);
}

WeightLoader::Part WeightLoader::take_integers(const RawTensor& values, const FolderScheme& scheme,
                                               int64_t n, int64_t k) {
  using formats::DType;
  const std::string stem = layer_name(values.name);
  const bool packed = scheme.format == FolderFormat::kPacked;
  const bool awq = scheme.format == FolderFormat::kAwq;
  const int64_t size = scheme.group_size ? scheme.group_size : k, bits = scheme.bits;
  expect_whole_words(values, k);
  if (n < 0 && values.shape.size() == 2)
    n = packed ? values.shape[0] : awq ? values.shape[1] * 8 : values.shape[1];
  if (!packed && n > 0 && n * bits % 32 != 0)
    throw LoadError(where(values) + " has " + std::to_string(n) + " outputs, which do not fill " +
                    "words of " + std::to_string(bits) + " bits");
  expect_tensor(values, {DType::kI32, DType::kU32},
                packed ? std::vector<int64_t>{n, k * bits / 32}
                : awq  ? std::vector<int64_t>{k, n / 8}
                       : std::vector<int64_t>{k * bits / 32, n});
  IntegerMatrix out{.n = n, .k = k, .group_size = size, .bits = scheme.bits};
  const RawTensor& scales = take_any(stem + (packed ? ".weight_scale" : ".scales"));
  expect_tensor(
      scales, {DType::kF16, DType::kBF16},
      packed ? std::vector<int64_t>{n, out.groups()} : std::vector<int64_t>{out.groups(), n});
  Part part{.n = n, .tensors = {&values, &scales}};
  const RawTensor* zeros = take_zeros(scheme, stem, out, part);
  if (packed && checkpoint_.find(stem + ".weight_shape")) {
    const RawTensor& shape = take_any(stem + ".weight_shape");
    expect_tensor(shape, {DType::kI64, DType::kI32}, {2});
    expect_says(shape, {n, k});
    part.tensors.push_back(&shape);
  }
  if (!awq)
    out.group_of =
        take_group_order(stem + (packed ? ".weight_g_idx" : ".g_idx"), scheme.any_order, out, part);
  part.read = [this, scheme, zeros, out](Part& read) { read_integers(scheme, zeros, out, read); };
  return part;
}

bool WeightLoader::rounds_per_token(const FolderScheme& scheme) const {
  return rounds_as_asked_ && scheme.rounds_per_token;
}

WeightLoader::Part WeightLoader::take_signed_bytes(const RawTensor& values,
                                                   const FolderScheme& scheme, int64_t n,
                                                   int64_t k) {
  using formats::DType;
  expect_whole_words(values, k);
  if (n < 0 && values.shape.size() == 2) n = values.shape[0];
  expect_tensor(values, {DType::kI8}, {n, k});
  const IntegerMatrix matrix{
      .n = n, .k = k, .group_size = scheme.group_size ? scheme.group_size : k, .bits = 8};
  const RawTensor& scales = take_any(layer_name(values.name) + ".weight_scale");
  const bool by_rows = matrix.groups() == 1;
  const bool one = by_rows && scales.num_elements() == 1;
  expect_tensor(scales, {DType::kF16, DType::kBF16, DType::kF32},
                one || (by_rows && scales.shape.size() == 1)
                    ? std::vector<int64_t>(scales.shape.size(), one ? 1 : n)
                    : std::vector<int64_t>{n, matrix.groups()});
  Part part{.n = n, .tensors = {&values, &scales}};
  part.read = [this, scheme, matrix](Part& read) { read_signed_bytes(scheme, matrix, read); };
  return part;
}

// As codes of 8 bits with 128 for zero; beside float32 scales that is a bias.
void WeightLoader::read_signed_bytes(const FolderScheme& scheme, const IntegerMatrix& matrix,
                                     Part& part) {
  const RawTensor &values = *part.tensors[0], &stored = *part.tensors[1];
  const auto [scales, dtype] = narrow_scales(stored);
  const bool wide = dtype == mx::float32;
  const size_t size = dtype.size(), count = values.size;
  const int64_t group = packed_group(matrix), groups = matrix.k / group;
  const size_t scale_bytes = static_cast<size_t>(matrix.n * groups) * size;
  const std::shared_ptr<std::byte[]> memory(new std::byte[count + scale_bytes * (wide ? 2 : 1)]);
  values.read(0, {memory.get(), count}, *context_.pool);
  std::byte *first_scale = memory.get() + count, *first_bias = first_scale + scale_bytes;
  const int64_t of_row = stored.num_elements() == 1 ? 0 : matrix.groups();
  context_.pool->parallel_for(matrix.n, [&](int64_t row) {
    std::byte* codes = memory.get() + row * matrix.k;
    for (int64_t i = 0; i < matrix.k; ++i) codes[i] ^= std::byte{128};
    for (int64_t g = 0; g < groups; ++g) {
      const size_t from = static_cast<size_t>(row * of_row + g * group / matrix.group_size) * size;
      const size_t to = static_cast<size_t>(row * groups + g) * size;
      std::memcpy(first_scale + to, scales.data() + from, size);
      if (!wide) continue;
      float scale;
      std::memcpy(&scale, scales.data() + from, size);
      const float bias = -128 * scale;
      std::memcpy(first_bias + to, &bias, size);
    }
  });
  part.affine =
      ops::AffineRows{.values = memory.get(),
                      .scales = first_scale,
                      .biases = wide ? first_bias : nullptr,
                      .n = matrix.n,
                      .k = matrix.k,
                      .format = {.bits = 8,
                                 .group_size = group,
                                 .scale_dtype = dtype,
                                 .zeros = wide ? ops::ZeroPoints::kNone : ops::ZeroPoints::kSame,
                                 .least_zero = wide ? 0 : 128,
                                 .int8_activations = int8_activations_ || rounds_per_token(scheme),
                                 .per_token = rounds_per_token(scheme)}};
  part.copy = memory;
}

const RawTensor* WeightLoader::take_zeros(const FolderScheme& scheme, const std::string& stem,
                                          const IntegerMatrix& matrix, Part& part) {
  const bool packed = scheme.format == FolderFormat::kPacked;
  if (packed && scheme.symmetric) return nullptr;
  const RawTensor& zeros = take_any(stem + (packed ? ".weight_zero_point" : ".qzeros"));
  const int64_t bits = matrix.n * scheme.bits;
  expect_tensor(zeros, {formats::DType::kI32, formats::DType::kU32},
                packed ? std::vector<int64_t>{(bits + 31) / 32, matrix.groups()}
                       : std::vector<int64_t>{matrix.groups(), bits / 32});
  part.tensors.push_back(&zeros);
  return &zeros;
}

void WeightLoader::read_integers(const FolderScheme& scheme, const RawTensor* zeros,
                                 IntegerMatrix matrix, Part& part) {
  const RawTensor &values = *part.tensors[0], &scales = *part.tensors[1];
  const std::vector<std::byte> zero_bytes = zeros ? zeros->read_all() : std::vector<std::byte>{};
  std::vector<std::byte> codes(values.size);
  values.read(0, codes, *context_.pool);
  const std::vector<std::byte> scale_bytes = scales.read_all();
  expect_finite(scales, scale_bytes);
  if (scheme.format == FolderFormat::kPacked) {
    formats::unpack_packed(codes, zero_bytes, scale_bytes, matrix);
  } else if (scheme.format == FolderFormat::kAwq) {
    formats::unpack_awq(codes, zero_bytes, scale_bytes, *context_.pool, matrix);
  } else {
    formats::unpack_gptq(codes, zero_bytes, scale_bytes, scheme.zeros_less_one ? 1 : 0,
                         *context_.pool, matrix);
  }
  const mx::Dtype dtype = float_dtype(scales);
  std::vector<int32_t> columns;
  if (!matrix.group_of.empty()) {
    columns = grouped_columns(matrix);
    if (columns.empty() || !context_.device->host_memory()) {
      if (rounds_per_token(scheme)) refuse_rounding(values);
      return make_dense(matrix, dtype, part);
    }
    formats::sort_columns(columns, *context_.pool, matrix);
  }
  make_affine(matrix, columns, scheme, dtype, part);
}

std::vector<int32_t> WeightLoader::take_group_order(const std::string& name, bool any_order,
                                                    const IntegerMatrix& matrix, Part& part) {
  const int64_t k = matrix.k, groups = matrix.groups();
  if (!checkpoint_.find(name) && (!any_order || groups == 1)) return {};
  const RawTensor& tensor = take_any(name);
  expect_tensor(tensor, {formats::DType::kI32}, {k});
  part.tensors.push_back(&tensor);
  std::vector<int32_t> order(static_cast<size_t>(k));
  std::memcpy(order.data(), tensor.read_all().data(), tensor.size);
  bool in_order = true;
  for (int64_t i = 0; i < k; ++i) {
    const int64_t group = order[static_cast<size_t>(i)];
    if (group < 0 || group >= groups)
      throw LoadError(where(tensor) + " has group " + std::to_string(group) + ", but there are " +
                      std::to_string(groups) + kOtherConfig);
    in_order = in_order && group == i / matrix.group_size;
  }
  if (in_order) order.clear();
  return order;
}

void WeightLoader::make_affine(const IntegerMatrix& matrix, const std::vector<int32_t>& columns,
                               const FolderScheme& scheme, mx::Dtype scale_dtype,
                               Part& part) const {
  const int64_t group = packed_group(matrix);
  const auto groups = static_cast<size_t>(matrix.n * (matrix.k / group));
  const ZeroBytes zeros = zero_bytes(matrix, scheme, *part.tensors[0]);
  const auto codes = static_cast<size_t>(matrix.n * matrix.k * matrix.bits / 8);
  const size_t scale_bytes = groups * sizeof(uint16_t);
  const size_t order_bytes = columns.size() * sizeof(int32_t);
  const std::shared_ptr<std::byte[]> memory(
      new std::byte[order_bytes + codes + scale_bytes + (zeros.bytes.empty() ? 0 : groups)]);
  std::byte* values = memory.get() + order_bytes;
  if (!columns.empty()) std::memcpy(memory.get(), columns.data(), order_bytes);
  std::memcpy(values, matrix.codes.get(), codes);
  spread(matrix, group, matrix.scales, values + codes);
  if (!zeros.bytes.empty()) spread(matrix, group, zeros.bytes, values + codes + scale_bytes);
  part.affine = ops::AffineRows{
      .values = values,
      .scales = values + codes,
      .biases = zeros.bytes.empty() ? nullptr : values + codes + scale_bytes,
      .n = matrix.n,
      .k = matrix.k,
      .format = {.bits = matrix.bits,
                 .group_size = group,
                 .scale_dtype = scale_dtype,
                 .zeros = zeros.kind,
                 .least_zero = zeros.least,
                 .int8_activations = int8_activations_ || rounds_per_token(scheme),
                 .per_token = rounds_per_token(scheme)},
      .columns = columns.empty() ? nullptr : reinterpret_cast<const int32_t*>(memory.get())};
  part.copy = memory;
}

// Groups of columns that are no neighbours, where no kernel takes them in their order: as dense
// values (q - zero) * scale, which float32 holds exactly.
void WeightLoader::make_dense(const IntegerMatrix& matrix, mx::Dtype scale_dtype, Part& part) {
  unpacked_.insert(part.tensors[0]->name);
  const auto count = static_cast<size_t>(matrix.n * matrix.k);
  const std::shared_ptr<std::byte[]> memory(new std::byte[count * sizeof(float)]);
  auto* out = reinterpret_cast<float*>(memory.get());
  context_.pool->parallel_for(matrix.n, [&](int64_t row) {
    for (int64_t k = 0; k < matrix.k; ++k) {
      const auto at = static_cast<size_t>(row * matrix.groups() + matrix.group(k));
      const int q = static_cast<int>(matrix.code(row, k)) - matrix.zeros[at];
      out[row * matrix.k + k] = static_cast<float>(q) * to_float(matrix.scales[at], scale_dtype);
    }
  });
  part.dense = {.data = memory.get(), .n = matrix.n, .k = matrix.k, .dtype = mx::float32};
  part.copy = memory;
}

}  // namespace quire::models
