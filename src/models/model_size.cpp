#include "models/model_size.h"

#include <algorithm>
#include <array>
#include <optional>

#include "formats/folder_quantization.h"
#include "formats/openai_mxfp4.h"
#include "formats/quantization.h"
#include "models/adapters.h"
#include "models/layer_tables.h"
#include "models/registry.h"
#include "models/tensor_checks.h"
#include "models/weights.h"
#include "ops/linear/pack/affine_matrix.h"

namespace quire::models {
namespace {

// A chunk is kept as a window of its length, which its last token needs whole.
int64_t reach_of(const AttentionSpec& attention) {
  const int64_t window = attention.window_left, step = attention.window_step;
  if (step == 0) return window;
  return window < 0 ? step - 1 : std::min(window, step - 1);
}

CacheSpec cache_of(const AttentionSpec& attention) {
  if (attention.kv_of_layer) return SharedKvSpec{*attention.kv_of_layer};
  return KvCacheSpec{.kv_heads = attention.kv_heads,
                     .head_dim = attention.head_dim,
                     .window_left = reach_of(attention)};
}

CacheSpec cache_of(const MlaSpec& mla) {
  return KvCacheSpec{
      .kv_heads = 1, .head_dim = mla.latent + mla.rope.rotary_dim, .values_in_keys = mla.latent};
}

CacheSpec cache_of(const GdnSpec& gdn) {
  return StateCacheSpec{.conv_dim = gdn.conv_dim(),
                        .conv_kernel = gdn.conv_kernel,
                        .v_heads = gdn.v_heads,
                        .v_dim = gdn.v_dim,
                        .k_dim = gdn.k_dim};
}

// Elements per token of the widest array inside.
int64_t width_of(const AttentionSpec& attention) {
  const int64_t gates = attention.has_output_gate ? attention.heads : 0;
  return (attention.heads + 2 * attention.kv_heads + gates) * attention.head_dim;
}

int64_t width_of(const MlaSpec& mla) {
  const int64_t rotary = mla.rope.rotary_dim, query = mla.heads * (mla.key_dim + rotary);
  const int64_t row = (mla.q_rank > 0 ? mla.q_rank : query) + mla.latent + rotary;
  return std::max({row, query, mla.heads * (mla.latent + rotary), mla.heads * mla.value_dim});
}

int64_t width_of(const GdnSpec& gdn) { return gdn.conv_dim() + gdn.v_heads * (gdn.v_dim + 2); }

// Elements per token of the widest array inside; a mixture of experts holds float32 sums and one
// expert's rows besides.
int64_t ffn_width(const LayerSpec& layer, int64_t hidden) {
  const MlpSpec* mlp = mlp_of(layer);
  const MoeSpec* moe = experts_of(layer);
  const int64_t dense = mlp ? 2 * mlp->intermediate : 0;
  if (!moe) return dense;
  const int64_t shared = moe->shared ? moe->shared->intermediate : 0;
  return std::max(dense, 2 * std::max(moe->intermediate, shared) + 6 * hidden);
}

bool is_ignored(const ModelSpec& spec, const std::string& name) {
  return std::ranges::any_of(spec.ignored, [&](const std::string& pattern) {
    if (pattern.ends_with('*')) return name.starts_with(pattern.substr(0, pattern.size() - 1));
    return name == pattern ||
           (pattern.ends_with(".weight") && is_of_layer(name, {layer_name(pattern)}));
  });
}

bool is_float(formats::DType dtype) {
  return dtype == formats::DType::kF32 || dtype == formats::DType::kF16 ||
         dtype == formats::DType::kBF16;
}

// What config.json says of quantised values.
struct Quantisation {
  std::optional<formats::QuantizationConfig> mlx;
  std::optional<formats::FolderQuantization> folder;
  int float_bits = 0;           // of the model's dtype
  bool in_4_or_8_bits = false;  // affine values: a GPU and activations of 8 bits want them so

  // Of a tensor's whole numbers, in a folder that was made for GPUs; or null.
  const formats::FolderScheme* scheme_of(const formats::RawTensor& values) const {
    if (!folder || !is_folder_values(values)) return nullptr;
    return folder->of_layer(layer_name(values.name));
  }
  // Whether the tensor holds no values of the model, but scales and the like of others.
  bool is_beside_values(const std::string& name) const {
    constexpr const char* kBeside[] = {".scales",
                                       ".qzeros",
                                       ".g_idx",
                                       ".weight_scale",
                                       ".weight_zero_point",
                                       ".weight_g_idx",
                                       ".weight_shape",
                                       ".weight_scale_inv",
                                       ".weight_scale_2",
                                       ".input_scale",
                                       ".activation_scale",
                                       ".weight_global_scale",
                                       ".input_global_scale",
                                       ".k_scale",
                                       ".v_scale",
                                       ".absmax",
                                       ".quant_map",
                                       ".nested_absmax",
                                       ".nested_quant_map",
                                       ".bitsandbytes__nf4"};
    return folder && std::ranges::any_of(kBeside, [&](const char* s) { return name.ends_with(s); });
  }
};

// Bytes of values of a folder that was made for GPUs, as WeightLoader::take_folder has them.
int64_t packed_folder_bytes(const formats::RawTensor& values, const formats::FolderScheme& scheme,
                            int64_t dense_bits, bool on_gpu) {
  const auto stored = static_cast<int64_t>(values.size);
  const int64_t dense = stored / scheme.bits * dense_bits;
  switch (scheme.format) {
    case formats::FolderFormat::kAwq:
    case formats::FolderFormat::kGptq:
    case formats::FolderFormat::kPacked:
      if (!on_gpu) return stored;
      return scheme.any_order ? dense : stored / scheme.bits * ops::packed_bits(scheme.bits);
    case formats::FolderFormat::kInt8:
      return stored + stored / 64;  // two bytes for the scale of 128 values
    case formats::FolderFormat::kFp8: {
      // One number is no matrix, which loading will say.
      const int64_t columns = values.shape.empty() ? 1 : values.shape.back();
      if (!is_packed_float8(scheme, columns)) return dense;
      return stored + stored / 32;  // four bytes for the scale of 128 values
    }
    case formats::FolderFormat::kNf4:
      // Beside 128 values are two bytes, on a GPU two float32.
      return stored + stored / (on_gpu ? 8 : 32);
    case formats::FolderFormat::kMxfp4:
    case formats::FolderFormat::kNvfp4:
    case formats::FolderFormat::kModeloptNvfp4:
      break;
  }
  // Beside 2048 values of NVFP4 are the numbers of their matrix.
  return stored + stored / 64;
}

// Bytes of quantised values once they are packed.
int64_t packed_bytes(const formats::RawTensor& values, const Quantisation& quantization,
                     bool on_gpu) {
  const auto stored = static_cast<int64_t>(values.size);
  if (formats::is_openai_codes(values.name)) return stored;
  // Scales of large blocks stand twice, which is 4.8 % of the smallest.
  if (formats::is_blocks(values.dtype)) return stored + stored / 20;
  if (const formats::FolderScheme* scheme = quantization.scheme_of(values))
    return packed_folder_bytes(values, *scheme, quantization.float_bits, on_gpu);
  if (values.dtype != formats::DType::kU32 || !quantization.mlx) return stored;
  const auto format = quantization.mlx->of_layer(layer_name(values.name));
  if (format && format->mode == formats::QuantMode::kAffine && quantization.in_4_or_8_bits)
    return stored / format->bits * ops::packed_bits(format->bits);
  return stored;
}

// Values of the model that a tensor holds; scales and biases of quantised values hold none.
int64_t parameters_in(const formats::RawTensor& tensor, const Quantisation& quantization) {
  const auto stored = static_cast<int64_t>(tensor.size);
  if (formats::is_openai_codes(tensor.name)) return 2 * stored;
  if (formats::is_openai_scales(tensor.name) || weight_name(tensor.name) != tensor.name) return 0;
  if (const formats::FolderScheme* scheme = quantization.scheme_of(tensor))
    return stored * 8 / scheme->bits;
  if (quantization.is_beside_values(tensor.name)) return 0;
  if (tensor.dtype != formats::DType::kU32 || !quantization.mlx) return tensor.num_elements();
  const auto format = quantization.mlx->of_layer(layer_name(tensor.name));
  return format ? stored * 8 / format->bits : tensor.num_elements();
}

// What WeightLoader::take_multipliers packs with a matrix of GGUF's NVFP4, or leaves out.
bool is_beside_nvfp4(const formats::Checkpoint& checkpoint, const std::string& name) {
  return std::ranges::any_of(std::to_array({kGgufScale, kGgufInputScale}), [&](const char* ending) {
    if (!name.ends_with(ending)) return false;
    const auto* values = checkpoint.find(name.substr(0, name.rfind('.')) + ".weight");
    return values && values->dtype == formats::DType::kNvfp4;
  });
}

void count_tensor(const formats::Checkpoint& checkpoint, const formats::RawTensor& tensor,
                  const Quantisation& quantization, bool on_gpu, ModelSize& size) {
  if (is_beside_nvfp4(checkpoint, tensor.name)) return;
  const int64_t elements = tensor.num_elements();
  const bool quantised = !is_float(tensor.dtype) || weight_name(tensor.name) != tensor.name ||
                         quantization.is_beside_values(tensor.name) ||
                         checkpoint.find(scales_name(tensor.name)) != nullptr;
  const bool matrix = tensor.shape.size() >= 2;
  const auto float_bytes = static_cast<int64_t>(size.dtype.size());
  const int64_t loaded =
      quantised ? packed_bytes(tensor, quantization, on_gpu)
                : elements * (matrix ? float_bytes : static_cast<int64_t>(sizeof(float)));
  size.weights += loaded;
  size.parameters += parameters_in(tensor, quantization);
  // 4 bits a value, and a scale and a bias of 16 bits each for 64 of them.
  size.weights_in_4_bits += matrix && !quantised ? elements * 9 / 16 : loaded;
}

}  // namespace

std::vector<CacheSpec> cache_specs(const ModelSpec& spec) {
  std::vector<CacheSpec> specs;
  for (const LayerSpec& layer : spec.layers)
    specs.push_back(std::visit([](const auto& mixer) { return cache_of(mixer); }, layer.mixer));
  return specs;
}

int64_t widest_activation(const ModelSpec& spec) {
  int64_t widest = spec.hidden;
  if (spec.layer_inputs)
    widest = std::max(widest, static_cast<int64_t>(spec.layers.size()) * spec.layer_inputs->width);
  for (const LayerSpec& layer : spec.layers) {
    const int64_t mixer = std::visit([](const auto& m) { return width_of(m); }, layer.mixer);
    widest = std::max({widest, mixer, ffn_width(layer, spec.hidden)});
  }
  return widest;
}

ModelSpec model_spec_of(const formats::Checkpoint& checkpoint, const LoadOptions& options) {
  const int64_t max_positions = options.max_positions > 0
                                    ? options.max_positions
                                    : checkpoint.config().max_position_embeddings;
  ModelSpec spec = make_model_spec(checkpoint.config(), max_positions);
  if (options.most_positions > 0)
    spec.max_positions = std::min(spec.max_positions, options.most_positions);
  return spec;
}

mx::Dtype dtype_of(const formats::Checkpoint& checkpoint, const ModelSpec& spec,
                   const LoadOptions& options) {
  if (options.dtype) return *options.dtype;
  return activation_dtype(checkpoint, spec.embed_weight).value_or(mx::float32);
}

ModelSize measure_model(const formats::Checkpoint& checkpoint, const LoadOptions& options,
                        bool on_gpu) {
  const ModelSpec spec = model_spec_of(checkpoint, options);
  ModelSize size = {.max_positions = spec.max_positions,
                    .rope_bytes = table_bytes(spec),
                    .vocab = spec.vocab,
                    .widest_activation = widest_activation(spec),
                    .dtype = dtype_of(checkpoint, spec, options),
                    .caches = cache_specs(spec)};
  const Quantisation quantization = {
      .mlx = formats::read_quantization_config(checkpoint.config()),
      .folder = formats::read_folder_quantization(checkpoint.config()),
      .float_bits = static_cast<int>(8 * size.dtype.size()),
      .in_4_or_8_bits = on_gpu || options.int8_activations.value_or(false)};
  for (const std::string& name : checkpoint.names())
    if (!is_ignored(spec, name))
      count_tensor(checkpoint, *checkpoint.find(name), quantization, on_gpu, size);
  const int64_t adapters = adapter_bytes(options.adapters, size.dtype);
  size.weights += adapters;
  size.weights_in_4_bits += adapters;
  return size;
}

}  // namespace quire::models
