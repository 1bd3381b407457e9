#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "formats/raw_tensor.h"
#include "formats/rope_config.h"

namespace quire::formats {

// The facts of a decoder-only language model that config.json states. Values are checked one by one
// (types, ranges, heads divide); whether they fit the weights shows when the weights are loaded.
// Keys that only one family has are read from it with the get_* functions.
//
// A model that wraps a language model (text_config) is read from there first, then from the top.
struct HfConfig {
  std::string file;  // path of config.json, for error messages
  json::value raw;   // the whole file, always an object
  KeyNames stored;   // what keys are called in a file that is no config.json

  std::vector<std::string> architectures;  // at least one
  std::string model_type;
  std::optional<DType> dtype;  // torch_dtype or dtype: kF32, kF16 or kBF16

  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;  // 0: not given
  int64_t num_hidden_layers = 0;
  int64_t num_attention_heads = 0;
  int64_t num_key_value_heads = 0;  // divides num_attention_heads
  int64_t head_dim = 0;             // if not given qk_rope_head_dim, else hidden_size / heads
  int64_t vocab_size = 0;
  int64_t max_position_embeddings = 0;

  double rms_norm_eps = 1e-6;
  // False if not given, which is right for Llama, Mistral, Qwen and Phi-3. Families whose default
  // differs (transformers leaves defaults out of the file) ask get_bool(key, their default).
  bool tie_word_embeddings = false;
  bool attention_bias = false;
  bool mlp_bias = false;
  std::string hidden_act = "silu";

  std::optional<int64_t> sliding_window;
  std::optional<bool> use_sliding_window;  // absent in families where the window alone decides
  std::optional<int64_t> max_window_layers;
  std::vector<std::string> layer_types;  // empty, or one per layer

  std::optional<int64_t> bos_token_id;
  std::vector<int64_t> eos_token_ids;
  std::optional<int64_t> pad_token_id;

  RopeConfig rope;
  std::map<std::string, RopeConfig> rope_by_layer_type;  // empty if all layers share `rope`

  json::value quantization;  // the object `quantization` or `quantization_config`, or null
  // The file that it is in, if that is not config.json: modelopt's hf_quant_config.json, AutoGPTQ's
  // quantize_config.json, or AutoAWQ's quant_config.json. What stands before its keys there.
  std::string quantization_file, quantization_path = "quantization_config.";
  // It is one of the last two, which merged or dequantised models may keep: it counts only if there
  // are tensors of theirs (Checkpoint::open).
  bool quantization_may_be_old = false;

  // The rope of layers of this type (an entry of layer_types).
  const RopeConfig& rope_for(const std::string& layer_type) const;

  // A key of the file, or `fallback` if it is absent or null. LoadError names file and key if the
  // type is wrong.
  int64_t get_int(std::string_view key, int64_t fallback, IntRange range = {}) const;
  double get_double(std::string_view key, double fallback, RealRange range = {}) const;
  bool get_bool(std::string_view key, bool fallback) const;
  std::string get_string(std::string_view key, std::string_view fallback) const;
  // For what else a family needs: lists, required keys, nested objects. Views `raw`.
  ConfigReader reader() const;
};

// The floats that torch calls float32, float16 and bfloat16; none for other names.
std::optional<DType> dtype_of_torch(std::string_view name);

// Reads a config.json. Throws LoadError naming the file and the key.
HfConfig read_hf_config(const std::string& file);
// The same from a document already in memory; `file` and `stored` are for messages.
HfConfig parse_hf_config(json::value raw, const std::string& file, KeyNames stored = {});

// What generation_config.json recommends; every key may be absent, and so may the file.
struct GenerationConfig {
  std::optional<int64_t> bos_token_id;
  std::vector<int64_t> eos_token_ids;
  std::optional<int64_t> pad_token_id;
  std::optional<bool> do_sample;
  std::optional<double> temperature;
  std::optional<int64_t> top_k;  // 0 or -1: off
  std::optional<double> top_p;
  std::optional<double> min_p;
  std::optional<double> repetition_penalty;
  std::optional<int64_t> max_new_tokens;
  // Never produced. Ids that no token has count for nothing.
  std::vector<int64_t> suppress_tokens;
};

// An absent file gives an empty GenerationConfig; a bad one throws LoadError.
GenerationConfig read_generation_config(const std::string& file);

}  // namespace quire::formats
