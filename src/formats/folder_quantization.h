#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "formats/hf_config.h"
#include "formats/name_pattern.h"
#include "formats/raw_tensor.h"

namespace quire::formats {

// Formats of quantised weights in folders that were made for GPUs.
enum class FolderFormat {
  kAwq,     // 4 bits; `qweight` [K, N / 8], packed along N
  kGptq,    // 2, 3, 4 or 8 bits; `qweight` [K * bits / 32, N], a stream down each column
  kPacked,  // 4 or 8 bits; `weight_packed` [N, K * bits / 32], a stream along each row
  kInt8,    // signed bytes, of 8 bits or fewer: `weight` [N, K]
  kMxfp4,   // MLX's mxfp4 in bytes: `weight_packed` [N, K / 2], `weight_scale` [N, K / 32]
  kFp8,     // 8-bit floats, e4m3: `weight` [N, K]
  // MLX's nvfp4 in bytes, with a number for the whole matrix: `weight_packed` [N, K / 2],
  // `weight_scale` e4m3 [N, K / 16], which `weight_global_scale` divides
  kNvfp4,
  kModeloptNvfp4,  // the same under other names: `weight`, and `weight_scale_2` multiplies
  // 4 bits, `weight` [N * K / 2, 1] bytes, the high nibble first; a scale `weight.absmax` for 64 of
  // all of them, float32, or a byte that stands for one
  kNf4,
};

// How one layer's weight is quantised. Whole numbers: w = (q - z) * s with one scale and zero point
// for each group of neighbouring k. Floats: w = q * s.
struct FolderScheme {
  FolderFormat format = FolderFormat::kAwq;
  int bits = 0;
  int64_t group_size = 0;       // 0: a whole row
  bool symmetric = false;       // z = 2^(bits - 1), and not stored (but in GPTQ)
  bool zeros_less_one = false;  // GPTQ's first version stores z - 1
  bool any_order = false;       // a group's k may be no neighbours: `g_idx` says
  // Activations are to be rounded to 8 bits, symmetrically, with one scale for each token.
  bool rounds_per_token = false;
  // Of kFp8: outputs and columns that share a scale; 0: all of them.
  int64_t block_rows = 0, block_columns = 0;

  bool operator==(const FolderScheme&) const = default;
};

// What config.json says of a folder's quantised weights in the words of AutoAWQ, GPTQ's programs,
// AutoRound, compressed-tensors, modelopt or bitsandbytes. Which tensors are quantised shows in the
// file
// (`X.qweight` in place of `X.weight`); a config that says otherwise is an error.
struct FolderQuantization {
  // "awq", "gptq", "auto-round", "compressed-tensors", "fp8", "modelopt", "bitsandbytes"
  std::string method;
  struct Group {
    FolderScheme scheme;
    std::vector<std::string> targets;  // empty: all layers that no other group names
    bool plain = false;                // its layers are not quantised
  };
  // The first is not plain. The first that names a layer counts. Empty where only keys and values
  // are to be 8-bit floats: then weights are as they were.
  std::vector<Group> groups;
  // Whether weights of some are whole numbers times scales, as floats of 4 bits are when doubled.
  bool has_integers() const;
  bool rounds_per_token() const;      // FolderScheme::rounds_per_token of some
  std::vector<std::string> excluded;  // layers that stay as they are; "re:..." is a pattern

  // The scheme of a quantised layer ("model.layers.0.mlp.up_proj"), or null if the config says that
  // it is not quantised. Throws LoadError for a pattern that takes too long.
  const FolderScheme* of_layer(const std::string& layer) const;
  // "4-bit awq in groups of 128", for people; of the first group.
  std::string title() const;

  std::string file;  // path of config.json, or of the file beside it that says so, for messages
  // What the config asks for beside the weights and is not done, for people; or nothing.
  std::string note;
  // It asks for keys and values as 8-bit floats. Attention layers may have `k_scale` and `v_scale`,
  // or a `kv_scale` of both, which say how these are rounded.
  bool kv_cache_floats = false;
  // It asks for activations that are rounded with scales of their own. Layers may have an
  // `input_scale` or `activation_scale`, which say how.
  bool stored_activation_scales = false;
};

// Nothing if config.json names none of these methods. Throws LoadError naming the file and the key
// if it asks for what is not supported: other versions, bits or groups, activations in whole
// numbers but those of rounds_per_token, rotations, sparsity.
std::optional<FolderQuantization> read_folder_quantization(const HfConfig& config);

// The elements as which bitsandbytes stores bytes of codes, if they are no bytes. Throws LoadError.
std::optional<DType> nf4_storage(const HfConfig& config);

}  // namespace quire::formats
