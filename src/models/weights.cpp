#include "models/weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <utility>

#include "base/error.h"
#include "formats/openai_mxfp4.h"
#include "models/tensor_checks.h"
#include "ops/linear/pack/stack_matrices.h"

namespace quire::models {
namespace {

// What is wrong with the content of tensors that are packed together, with their names.
template <class Part>
[[noreturn]] void refuse_content(std::span<const Part> parts, const std::exception& error) {
  std::string names;
  for (const Part& part : parts) names += (names.empty() ? "" : ", ") + title(*part.tensors[0]);
  throw LoadError(parts[0].tensors[0]->file() + ": " + names + ": " + error.what() +
                  ": take the whole checkpoint, or convert the model anew");
}

// The elements of a small float tensor as float32.
void widen(const formats::RawTensor& tensor, float* out) {
  const int64_t n = tensor.num_elements();
  const std::vector<std::byte> stored = tensor.read_all();
  expect_finite(tensor, stored);
  const std::byte* bytes = stored.data();
  if (tensor.dtype == formats::DType::kF32) {
    std::memcpy(out, bytes, static_cast<size_t>(n) * sizeof(float));
    return;
  }
  for (int64_t i = 0; i < n; ++i) {
    if (tensor.dtype == formats::DType::kBF16) {
      mx::bfloat16_t x;
      std::memcpy(&x, bytes + 2 * i, sizeof x);
      out[i] = static_cast<float>(x);
    } else {
      mx::float16_t x;
      std::memcpy(&x, bytes + 2 * i, sizeof x);
      out[i] = static_cast<float>(x);
    }
  }
}

const formats::RawTensor* find_stored(const formats::Checkpoint& checkpoint,
                                      const std::string& name) {
  if (const auto* tensor = checkpoint.find(name)) return tensor;
  if (layer_name(name) == name) return nullptr;
  for (const char* suffix : kFolderSuffixes)
    if (const auto* tensor = checkpoint.find(layer_name(name) + suffix)) return tensor;
  return nullptr;
}

// Of a GGUF file, or OpenAI's, of which names alone say it.
bool has_blocks(const formats::Checkpoint& checkpoint) {
  return std::ranges::any_of(checkpoint.names(), [&](const std::string& name) {
    return formats::is_blocks(checkpoint.find(name)->dtype) || formats::is_openai_codes(name);
  });
}

// What the config says of quantisation. If that is refused, the error also names a tensor that it
// is about: people look there first.
std::optional<formats::QuantizationConfig> read_quantization(
    const formats::Checkpoint& checkpoint) {
  try {
    return formats::read_quantization_config(checkpoint.config());
  } catch (const LoadError& e) {
    for (const std::string& name : checkpoint.names())
      if (name.ends_with(".scales"))
        throw LoadError(std::string(e.what()) +
                        "; one of its tensors: " + where(*checkpoint.find(name)));
    throw;
  }
}

}  // namespace

mx::Dtype float_dtype(const formats::RawTensor& tensor) {
  switch (tensor.dtype) {
    case formats::DType::kF32:
      return mx::float32;
    case formats::DType::kF16:
      return mx::float16;
    case formats::DType::kBF16:
      return mx::bfloat16;
    default:
      throw LoadError(where(tensor) + " has dtype " +
                      std::string(formats::dtype_name(tensor.dtype)) +
                      "; supported are F32, F16 and BF16. Convert the checkpoint to one of these");
  }
}

std::optional<mx::Dtype> activation_dtype(const formats::Checkpoint& checkpoint,
                                          const std::string& weight) {
  const formats::RawTensor* tensor = find_tensor(checkpoint, weight);
  if (!tensor) return std::nullopt;
  const formats::RawTensor* scales = checkpoint.find(scales_name(tensor->name));
  // Scales of one byte say nothing of it; the norm before the head is as the model was.
  // Blocks of a GGUF file say nothing of it, either, and norms are float32 there.
  if (formats::is_blocks(tensor->dtype)) return mx::bfloat16;
  if (scales && scales->dtype == formats::DType::kU8) {
    scales = find_tensor(checkpoint, "model.norm.weight");
    if (!scales) return std::nullopt;
  }
  return float_dtype(scales ? *scales : *tensor);
}

const formats::RawTensor* find_tensor(const formats::Checkpoint& checkpoint,
                                      const std::string& name) {
  if (const auto* tensor = find_stored(checkpoint, name)) return tensor;
  if (const auto* tensor = find_stored(checkpoint, "language_model." + name)) return tensor;
  constexpr std::string_view kModel = "model.";
  if (!name.starts_with(kModel)) return nullptr;
  const std::string rest = name.substr(kModel.size());
  if (const auto* tensor = find_stored(checkpoint, "model.language_model." + rest)) return tensor;
  return find_stored(checkpoint, rest);
}

WeightLoader::WeightLoader(const ops::Context& context, const formats::Checkpoint& checkpoint,
                           mx::Dtype dtype, std::function<void(double)> progress,
                           std::optional<bool> int8_activations)
    : context_(context),
      checkpoint_(checkpoint),
      dtype_(dtype),
      quantization_(read_quantization(checkpoint)),
      folder_quantization_(formats::read_folder_quantization(checkpoint.config())),
      progress_(std::move(progress)),
      int8_activations_(int8_activations.value_or(false)),
      rounds_as_asked_(int8_activations.value_or(true)) {
  const bool has_folder = folder_quantization_ && !folder_quantization_->groups.empty();
  if (rounds_as_asked_ && has_folder && folder_quantization_->rounds_per_token() &&
      !context.device->host_memory())
    throw LoadError(folder_quantization_->file +
                    ": quantization_config asks for activations that are rounded to 8 bits, which "
                    "the CPU's kernels alone do; take --device cpu, or --quant-activations none, "
                    "which keeps them as they are");
  if (int8_activations_ && has_folder && !folder_quantization_->has_integers()) {
    throw LoadError(checkpoint.dir() + ": 8-bit activations do not go with weights in " +
                    folder_quantization_->title() + "; leave them out");
  }
  if (int8_activations_ && !quantization_ && !has_folder && !has_blocks(checkpoint)) {
    throw LoadError(checkpoint.dir() +
                    ": 8-bit activations go with quantised weights, and this model has none; make "
                    "one that has with `quire quantize`");
  }
}

const formats::RawTensor* WeightLoader::find(const std::string& name) const {
  return find_tensor(checkpoint_, name);
}

const formats::RawTensor& WeightLoader::take_any(const std::string& name) {
  const formats::RawTensor* tensor = find(name);
  if (!tensor) {
    throw LoadError(checkpoint_.dir() + ": tensor " + checkpoint_.name_in_file(name) +
                    " is missing, and " + checkpoint_.config().architectures.front() +
                    " needs it; the checkpoint is incomplete or of another architecture");
  }
  taken_.insert(tensor->name);
  return *tensor;
}

const formats::RawTensor& WeightLoader::take(const std::string& name) {
  const formats::RawTensor& tensor = take_any(name);
  float_dtype(tensor);
  return tensor;
}

void WeightLoader::count_progress(const formats::RawTensor& tensor) {
  bytes_read_ += tensor.size;
  if (progress_)
    progress_(static_cast<double>(bytes_read_) / static_cast<double>(checkpoint_.total_bytes()));
}

void WeightLoader::count_progress(const Part& part) {
  for (const formats::RawTensor* tensor : part.tensors) count_progress(*tensor);
}

std::span<const std::byte> WeightLoader::Part::row_bytes(int64_t begin, int64_t count) const {
  const void* data = affine        ? affine->values
                     : block_float ? block_float->values
                     : gguf        ? gguf->data
                                   : dense.data;
  return {static_cast<const std::byte*>(data) + begin * row_bytes(),
          static_cast<size_t>(count * row_bytes())};
}

int64_t WeightLoader::Part::row_bytes() const {
  if (affine) return affine->k * affine->format.bits / 8;
  if (block_float) return block_float->k * ops::block_float_format(block_float->format).bits / 8;
  if (gguf) return ops::gguf_row_bytes(gguf->format, gguf->k);
  return dense.k * static_cast<int64_t>(dense.dtype.size());
}

WeightLoader::Part WeightLoader::take_part(const std::string& weight, int64_t n, int64_t k,
                                           int64_t stack) {
  return with_contents(take_headers(weight, n, k, stack), k);
}

WeightLoader::Part WeightLoader::with_contents(Part part, int64_t /*k*/) {
  if (const auto read = std::exchange(part.read, nullptr)) read(part);
  return part;
}

WeightLoader::Part WeightLoader::take_headers(const std::string& weight, int64_t n, int64_t k,
                                              int64_t stack) {
  if (const auto* stored = find(weight); stored && formats::is_blocks(stored->dtype))
    return take_gguf_blocks(weight, n, k, stack);
  if (const auto* stored = find(weight); stored && is_folder_values(*stored))
    return take_folder(*stored, n, k, stack);
  if (is_quantised(weight)) return take_quantised(weight, n, k, stack);
  const formats::RawTensor& tensor = take(weight);
  stack ? expect_shape(tensor, {stack, n, k}) : expect_shape(tensor, {n, k});
  Part part{.n = tensor.shape[stack ? 1 : 0], .tensors = {&tensor}, .staged = stage(tensor)};
  part.dense = {.data = part.staged->data(), .n = part.n, .k = k, .dtype = float_dtype(tensor)};
  return part;
}

ops::PackProgress WeightLoader::staging(std::span<const Part> parts) const {
  std::vector<std::shared_ptr<const void>> owners;
  if (stay_in_place_)
    for (const Part& part : parts) owners.push_back(part.owner());
  return {.needs =
              [this, parts](size_t i, int64_t begin, int64_t count) {
                if (parts[i].staged)
                  parts[i].staged->load(parts[i].row_bytes(begin, count), *context_.pool);
              },
          .has_read =
              [this, parts](size_t i, int64_t begin, int64_t count) {
                if (parts[i].staged) parts[i].staged->release(parts[i].row_bytes(begin, count));
              },
          .fetch = [this, parts](size_t i, int64_t begin,
                                 int64_t count) -> std::shared_ptr<const void> {
            const std::span<const std::byte> rows = parts[i].row_bytes(begin, count);
            if (!parts[i].staged) return {std::shared_ptr<const void>(), rows.data()};
            const std::shared_ptr<std::byte[]> room = pieces_->take(rows.size());
            parts[i].staged->read(rows, {room.get(), rows.size()});
            return room;
          },
          .owners = std::move(owners)};
}

std::optional<ops::PackedMatrix> WeightLoader::pack_quantised(std::span<const Part> parts,
                                                              bool interleave) const {
  std::vector<ops::AffineRows> affine;
  std::vector<ops::BlockFloatRows> block_floats;
  std::vector<ops::GgufRows> blocks;
  for (const Part& part : parts) {
    if (part.affine) affine.push_back(*part.affine);
    if (part.gguf) blocks.push_back(*part.gguf);
    if (part.block_float && parts[0].block_float &&
        part.block_float->format == parts[0].block_float->format)
      block_floats.push_back(*part.block_float);
  }
  if (affine.size() == parts.size() && ops::go_together(affine))
    return ops::pack_affine_matrix(context_, affine, dtype_, interleave, staging(parts));
  const bool all_blocks = blocks.size() == parts.size();
  const bool all_floats =
      block_floats.size() == parts.size() && ops::go_together(block_floats, interleave);
  if (!all_floats && !all_blocks) return std::nullopt;
  try {
    if (all_blocks)
      return ops::pack_gguf_matrix(context_, blocks, dtype_, interleave, staging(parts));
    return ops::pack_block_float_matrix(context_, block_floats, dtype_, interleave, staging(parts));
  } catch (const std::invalid_argument& error) {
    refuse_content(parts, error);
  }
}

// Whether two neighbours can be packed together wherever they begin.
bool WeightLoader::is_alike(const Part& a, const Part& b) {
  if (a.affine && b.affine) {
    const ops::AffineRows both[] = {*a.affine, *b.affine};
    return ops::go_together(both);
  }
  if (a.block_float && b.block_float) {
    const ops::BlockFloatRows &x = *a.block_float, &y = *b.block_float;
    return x.format == y.format && x.multiplier == y.multiplier && x.divisor == y.divisor &&
           x.nested == y.nested;
  }
  if (a.gguf && b.gguf) return ops::is_alike(*a.gguf, *b.gguf);
  const auto is_dense = [](const Part& part) {
    return !part.affine && !part.block_float && !part.gguf;
  };
  return is_dense(a) && is_dense(b);
}

// Quantised parts that do not go together stay apart inside one matrix, each as it is; neighbours
// that are alike, such as rows of single heads, are one. On a GPU gate and up do not stay apart.
std::optional<ops::PackedMatrix> WeightLoader::pack_mixed(const std::vector<Part>& parts,
                                                          bool interleave) {
  const bool any = std::ranges::any_of(
      parts, [](const Part& part) { return part.affine || part.block_float || part.gguf; });
  const bool two_halves = parts.size() == 2 && parts[0].n == parts[1].n;
  if (!any || (interleave && !(two_halves && context_.device->host_memory()))) return std::nullopt;
  std::vector<ops::PackedMatrix> packed;
  for (auto begin = parts.begin(), end = begin; begin != parts.end(); begin = end) {
    const auto is_other = [&](const Part& part) { return interleave || !is_alike(part, *begin); };
    end = std::find_if(begin + 1, parts.end(), is_other);
    ops::PackedMatrix matrix = pack_parts({begin, end}, /*interleave=*/false);
    if (matrix.parts) {
      packed.insert(packed.end(), matrix.parts->begin(), matrix.parts->end());
    } else {
      packed.push_back(std::move(matrix));
    }
  }
  return ops::stack_matrices(context_, std::move(packed), interleave);
}

ops::PackedMatrix WeightLoader::pack_parts(std::vector<Part> parts, bool interleave) {
  if (auto packed = pack_quantised(parts, interleave)) {
    if (!packed->is_quantised()) unpacked_.insert(parts[0].tensors[0]->name);
    return std::move(*packed);
  }
  if (auto packed = pack_mixed(parts, interleave)) return std::move(*packed);
  std::vector<ops::RowMatrix> dense;
  for (Part& part : parts) {
    part = dequantised(std::move(part));
    dense.push_back(part.dense);
  }
  return ops::pack_matrix(context_, dense, dtype_, interleave, staging(parts));
}

mx::array WeightLoader::floats(const std::vector<float>& values, const mx::Shape& shape) const {
  return context_.device->make_array(values.data(), shape, mx::float32);
}

std::vector<float> WeightLoader::take_floats(const std::string& name,
                                             const std::vector<int64_t>& shape) {
  const auto& tensor = take(name);
  expect_shape(tensor, shape);
  std::vector<float> values(static_cast<size_t>(tensor.num_elements()));
  widen(tensor, values.data());
  count_progress(tensor);
  return values;
}

mx::array WeightLoader::stack_biases(const std::vector<std::string>& biases,
                                     const std::vector<Part>& parts, int64_t n) {
  std::vector<float> values(static_cast<size_t>(n));
  int64_t filled = 0;
  for (size_t i = 0; i < biases.size(); ++i) {
    const auto& tensor = take(biases[i]);
    expect_shape(tensor, {parts[i].n});
    widen(tensor, values.data() + filled);
    filled += parts[i].n;
  }
  return floats(values, {static_cast<int>(n)});
}

std::vector<WeightLoader::Part> WeightLoader::take_parts(const std::vector<std::string>& weights,
                                                         int64_t n, int64_t k) {
  std::vector<Part> parts;
  int64_t rows = 0;
  for (const auto& name : weights) {
    parts.push_back(take_part(name, weights.size() == 1 ? n : -1, k));
    rows += parts.back().n;
  }
  if (rows == n) return parts;
  std::string names;
  for (const Part& part : parts)
    names += (names.empty() ? "" : ", ") + title(*part.tensors.front()) + " (" +
             std::to_string(part.n) + ")";
  const formats::RawTensor& first = *parts.front().tensors.front();
  throw LoadError(first.file() + ": " + names + " have " + std::to_string(rows) +
                  " outputs together, but " + config_of(first) + " asks for " + std::to_string(n) +
                  kNotOfOneModel);
}

ops::LinearWeight WeightLoader::linear(const std::vector<std::string>& weights,
                                       const std::vector<std::string>& biases, int64_t n, int64_t k,
                                       bool interleave) {
  const std::vector<Part> parts = take_parts(weights, n, k);
  ops::LinearWeight result{.weight = pack(parts, interleave), .bias = std::nullopt};
  count_packed(result.weight);
  for (const Part& part : parts) count_progress(part);
  if (!biases.empty()) result.bias = stack_biases(biases, parts, n);
  return result;
}

ops::LinearWeight WeightLoader::linear(const std::string& weight, const std::string& bias,
                                       int64_t n, int64_t k) {
  return linear(std::vector{weight}, bias.empty() ? std::vector<std::string>{} : std::vector{bias},
                n, k);
}

mx::array WeightLoader::norm(const NormSpec& norm, int64_t n) {
  if (norm.weight.empty())
    return floats(std::vector<float>(static_cast<size_t>(n), norm.multiplier),
                  {static_cast<int>(n)});
  std::vector<float> values = take_vector(norm.weight, n);
  for (float& x : values) x = (x + norm_offset_) * norm.multiplier;
  return floats(values, {static_cast<int>(n)});
}

bool WeightLoader::is_mlx_convolution(const std::string& name, int64_t kernel) const {
  const formats::RawTensor* tensor = find(name);
  return tensor && tensor->shape.size() == 3 && tensor->shape[1] == kernel && tensor->shape[2] == 1;
}

mx::array WeightLoader::taps(const std::string& name, int64_t channels, int64_t kernel) {
  const bool is_mlx = is_mlx_convolution(name, kernel);
  const auto& tensor = take(name);
  expect_shape(tensor, is_mlx ? std::vector{channels, kernel, int64_t{1}}
                              : std::vector{channels, int64_t{1}, kernel});
  std::vector<float> stored(static_cast<size_t>(channels * kernel)), taps(stored.size());
  widen(tensor, stored.data());
  for (int64_t c = 0; c < channels; ++c)
    for (int64_t j = 0; j < kernel; ++j) taps[j * channels + c] = stored[c * kernel + j];
  packed_bytes_ += taps.size() * sizeof(float);
  count_progress(tensor);
  return floats(taps, {static_cast<int>(kernel), static_cast<int>(channels)});
}

mx::array WeightLoader::vector(const std::string& name, int64_t n) {
  return floats(take_vector(name, n), {static_cast<int>(n)});
}

mx::array WeightLoader::logs_of_negated(const std::string& name, int64_t n) {
  std::vector<float> values = take_vector(name, n);
  for (float& x : values) {
    if (!(x < 0)) throw LoadError(where(*find(name)) + " has a number that is not below 0");
    x = std::log(-x);
  }
  return floats(values, {static_cast<int>(n)});
}

float WeightLoader::number(const std::string& name) { return take_floats(name, {1}).front(); }

std::vector<float> WeightLoader::take_vector(const std::string& name, int64_t n) {
  const auto& tensor = take(name);
  if (!has_shape(tensor, {1, n})) expect_shape(tensor, {n});
  std::vector<float> values(static_cast<size_t>(n));
  widen(tensor, values.data());
  packed_bytes_ += values.size() * sizeof(float);
  count_progress(tensor);
  return values;
}

std::string WeightLoader::unpacked() const {
  if (unpacked_.empty()) return {};
  const std::string others =
      unpacked_.size() > 1 ? " and " + std::to_string(unpacked_.size() - 1) + " more" : "";
  return *unpacked_.begin() + others;
}

std::string WeightLoader::finish(const std::vector<std::string>& ignored) const {
  std::set<std::string> skip, skip_layers;
  std::map<std::string, int> skipped;  // by prefix
  for (const auto& name : ignored) {
    if (name.ends_with('*')) {
      skipped[name.substr(0, name.size() - 1)] = 0;
    } else {
      const formats::RawTensor* stored = find(name);  // a wrapper prefixes it
      skip.insert(stored ? stored->name : name);
      // With a weight goes what stands beside its values.
      if (name.ends_with(".weight")) skip_layers.insert(layer_name(stored ? stored->name : name));
    }
  }
  const auto has_ignored_prefix = [&](const std::string& name) {
    for (auto& [prefix, count] : skipped)
      if (name.starts_with(prefix)) return ++count > 0;
    return false;
  };
  std::string names;
  int count = 0;
  for (const auto& name : checkpoint_.names()) {
    if (taken_.contains(name) || skip.contains(name) || is_of_layer(name, skip_layers)) continue;
    if (has_ignored_prefix(name) || is_kv_scale(name)) continue;
    if (++count <= 8) names += (names.empty() ? "" : ", ") + title(*checkpoint_.find(name));
  }
  if (count > 0) {
    throw LoadError(checkpoint_.dir() + ": " + std::to_string(count) + " tensors that " +
                    checkpoint_.config().architectures.front() + " does not use: " + names +
                    (count > 8 ? ", ..." : "") +
                    "; the checkpoint is of another architecture than it says");
  }
  std::string text;
  for (const auto& [prefix, number] : skipped)
    if (number > 0)
      text += (text.empty() ? "" : ", ") + prefix + "* (" + std::to_string(number) + " tensors)";
  return text;
}

}  // namespace quire::models
