#include "formats/gguf/translator.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <utility>
#include <variant>

#include "base/error.h"

namespace quire::formats {
namespace {

constexpr IntRange kWidth{.min = 1, .max = 1 << 24};
constexpr IntRange kHeads{.min = 1, .max = 1 << 16};
constexpr IntRange kHeadDim{.min = 1, .max = 1 << 14};
// Below it frequencies would grow from one to the next, up to what is no number.
constexpr RealRange kFrequencyBase{.min = 1.0, .max = kFactors.max};

// Keys under an architecture's name that say nothing that is not said by tensors, too, or that do
// not matter to what the model computes.
constexpr std::array<std::string_view, 3> kHarmless = {"vocab_size", "rope.scaling.finetuned",
                                                       "tensor_data_layout"};

json::array list_of(const std::vector<double>& values) {
  json::array out;
  for (const double x : values) out.push_back(x);
  return out;
}

constexpr std::string_view kScales[] = {".scale", ".input_scale"};

bool is_scale(std::string_view ending) {
  return std::ranges::find(kScales, ending) != std::end(kScales);
}

// Gates and ups have numbers of their own, and no program writes or reads one for both.
void refuse_fused_scale(const RawTensor& tensor, const GgufBlockName& name) {
  if (name.part != "ffn_gate_up_exps" || !is_scale(name.ending)) return;
  throw LoadError(tensor.file() + ": tensor " + quote_name(tensor.name) +
                  " is not supported: it stands beside gates and ups in one tensor; take a file " +
                  "that has them apart");
}

}  // namespace

GgufTranslator::GgufTranslator(const GgufMetadata& metadata, const std::vector<RawTensor>& tensors)
    : metadata_(metadata), architecture_(metadata.require_string("general.architecture")) {
  for (const RawTensor& tensor : tensors) tensors_.emplace(tensor.name, tensor);
}

std::optional<int64_t> GgufTranslator::find_int(std::string_view name, IntRange range) const {
  return metadata_.find_int(key(name), range);
}
std::optional<double> GgufTranslator::find_double(std::string_view name, RealRange range) const {
  return metadata_.find_double(key(name), range);
}
std::optional<double> GgufTranslator::find_factor_or_zero(std::string_view name) const {
  const auto factor = find_double(name, {.min = 0});
  return factor == 0 ? factor : find_double(name, kFactors);
}
std::optional<bool> GgufTranslator::find_bool(std::string_view name) const {
  return metadata_.find_bool(key(name));
}
int64_t GgufTranslator::require_int(std::string_view name, IntRange range) const {
  return metadata_.require_int(key(name), range);
}
void GgufTranslator::fail(std::string_view name, const std::string& why) const {
  metadata_.fail(key(name), why);
}

std::optional<std::vector<double>> GgufTranslator::take_floats(const std::string& name) {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) return std::nullopt;
  const RawTensor& tensor = found->second;
  if (tensor.dtype != DType::kF32 || tensor.shape.size() != 1)
    throw LoadError(tensor.file() + ": tensor " + quote_name(name) + " must be a vector of F32");
  const std::vector<std::byte> bytes = tensor.read_all();
  std::vector<double> out;
  for (size_t i = 0; i < bytes.size(); i += sizeof(float)) {
    float x;
    std::memcpy(&x, bytes.data() + i, sizeof x);
    out.push_back(x);
  }
  tensors_.erase(found);
  return out;
}

double GgufTranslator::share_of(int64_t rotary, int64_t head_dim) {
  const double share = static_cast<double>(rotary) / static_cast<double>(head_dim);
  const bool fits = static_cast<int64_t>(static_cast<double>(head_dim) * share) == rotary;
  return fits ? share : std::nextafter(share, 2.0);
}

const RawTensor* GgufTranslator::find_tensor(const std::string& name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

std::vector<int64_t> GgufTranslator::ints_by_layer(std::string_view name, IntRange range) const {
  const GgufValue* value = metadata_.find(key(name));
  if (!value) fail(name, "is missing");
  if (!std::holds_alternative<std::vector<int64_t>>(value->value))
    return std::vector<int64_t>(static_cast<size_t>(layers_), require_int(name, range));
  const std::vector<int64_t>& all = *metadata_.find_ints(key(name));
  if (static_cast<int64_t>(all.size()) != layers_)
    fail(name, "lists " + std::to_string(all.size()) + " layers of " + std::to_string(layers_));
  for (const int64_t x : all)
    if (x < range.min || x > range.max) fail(name, "has " + std::to_string(x) + " for a layer");
  return all;
}

std::optional<int64_t> GgufTranslator::find_first_int(std::string_view name, IntRange range) const {
  const GgufValue* value = metadata_.find(key(name));
  if (!value || !by_layer_.contains(name)) return find_int(name, range);
  return ints_by_layer(name, range).front();
}

// Each has a tensor that a layer of the model itself never has: else the key is wrong, and a layer
// would be left out. As in llama.cpp, files may be without these layers.
void GgufTranslator::check_further_layers(int64_t end) const {
  const auto has_any = [&](const std::string& prefix) {
    const auto found = tensors_.lower_bound(prefix);
    return found != tensors_.end() && found->first.starts_with(prefix);
  };
  for (int64_t i = layers_; i < end; ++i) {
    const std::string block = "blk." + std::to_string(i) + ".", own = block + "nextn.";
    if (has_any(block) && !has_any(own))
      fail("nextn_predict_layers", "is " + std::to_string(end - layers_) + ", but layer " +
                                       std::to_string(i) + " has no tensor " + own +
                                       "*, as layers that predict further tokens have");
  }
}

void GgufTranslator::add_sizes() {
  // Layers that predict further tokens are the last ones; families ignore what is behind theirs.
  const int64_t further = find_int("nextn_predict_layers", {.min = 0, .max = 999}).value_or(0);
  const int64_t blocks = require_int("block_count", {.min = 1, .max = 9999});
  if (further >= blocks) fail("nextn_predict_layers", "is not less than block_count");
  layers_ = blocks - further;
  check_further_layers(blocks);
  config["num_nextn_predict_layers"] = further;
  config["num_hidden_layers"] = layers_;
  config["hidden_size"] = require_int("embedding_length", kWidth);
  config["num_attention_heads"] = heads_ = require_int("attention.head_count", kHeads);
  config["max_position_embeddings"] = require_int("context_length", {.min = 1, .max = INT32_MAX});
  const auto intermediate = find_first_int("feed_forward_length", {.min = 0, .max = kWidth.max});
  if (intermediate.value_or(0) > 0) config["intermediate_size"] = *intermediate;
  // Files whose norms have a mean say so by the other key, which their architecture asks for.
  if (const auto eps = find_double("attention.layer_norm_rms_epsilon", kEpsilons))
    config["rms_norm_eps"] = *eps;
  else if (!metadata_.has(key("attention.layer_norm_epsilon")))
    fail("attention.layer_norm_rms_epsilon", "is missing");
}

void GgufTranslator::add_heads() {
  const int64_t hidden = config.at("hidden_size").as_int64();
  head_dim_ = find_int("attention.key_length", kHeadDim).value_or(hidden / heads_);
  if (head_dim_ < 1)
    fail("attention.head_count",
         "is " + std::to_string(heads_) + ", more than embedding_length allows");
  if (find_int("attention.value_length", kHeadDim).value_or(head_dim_) != head_dim_)
    fail("attention.value_length", "differs from attention.key_length, which is not supported");
  kv_heads_ = find_first_int("attention.head_count_kv", kHeads).value_or(heads_);
  config["num_key_value_heads"] = kv_heads_;
  config["head_dim"] = head_dim_;
}

// Files of today have the lengths of absorbed heads under the usual keys, and those of the heads
// themselves under others; older ones have the latter under the usual keys.
void GgufTranslator::add_latent_heads() {
  head_dim_ = require_int("rope.dimension_count", kHeadDim);  // what rotates
  const auto key = find_int("attention.key_length_mla", kHeadDim);
  const auto value = find_int("attention.value_length_mla", kHeadDim);
  const auto stored_key = find_int("attention.key_length", kHeadDim);
  const auto stored_value = find_int("attention.value_length", kHeadDim);
  if (!(key ? key : stored_key) || !(value ? value : stored_value))
    fail("attention.key_length_mla", "and attention.value_length_mla must be there");
  const int64_t key_dim = (key ? *key : *stored_key) - head_dim_;
  if (key_dim < 1) fail("attention.key_length_mla", "is not more than rope.dimension_count");
  find_int("attention.head_count_kv");  // of absorbed heads
  config["num_key_value_heads"] = heads_;
  config["qk_nope_head_dim"] = key_dim;
  config["qk_rope_head_dim"] = head_dim_;
  config["v_head_dim"] = value ? *value : *stored_value;
  config["kv_lora_rank"] = require_int("attention.kv_lora_rank", kHeadDim);
  const auto q_rank = find_int("attention.q_lora_rank", kHeadDim);
  config["q_lora_rank"] = q_rank ? json::value(*q_rank) : json::value();
}

void GgufTranslator::add_decoder(const char* architecture) {
  config["architectures"] = json::array{architecture};
  add_sizes();
  add_heads();
  add_rest();
}

void GgufTranslator::add_latent_decoder(const char* architecture) {
  config["architectures"] = json::array{architecture};
  add_sizes();
  add_latent_heads();
  add_rest();
}

// Of hybrid models the first layers have no attention.
bool GgufTranslator::has_attention_bias() const {
  for (int64_t i = 0; i < layers_; ++i)
    for (const char* part : {"attn_q", "attn_qkv", "attn_kv_a_mqa"})
      if (has_tensor("blk." + std::to_string(i) + "." + part + ".bias")) return true;
  return false;
}

void GgufTranslator::add_rest() {
  const auto embedding = tensors_.find("token_embd.weight");
  if (embedding == tensors_.end() || embedding->second.shape.size() != 2)
    throw LoadError(metadata_.file() +
                    ": there is no matrix token_embd.weight; this file holds no language model");
  config["vocab_size"] = embedding->second.shape[0];
  config["tie_word_embeddings"] = !has_tensor("output.weight");
  config["attention_bias"] = has_attention_bias();
  config["mlp_bias"] = has_tensor("blk.0.ffn_up.bias");
  config["hidden_act"] = "silu";
  if (!find_bool("attention.causal").value_or(true))
    fail("attention.causal", "is false; only causal models are supported");
  add_rope();
}

// Factors of the frequencies. Those of Llama 3 are one list for all lengths: then nothing else is
// scaled. Two lists are longrope's.
bool GgufTranslator::add_factors(json::object& rope) {
  const auto factors = take_floats("rope_freqs.weight");
  auto long_factors = take_floats("rope_factors_long.weight");
  auto short_factors = take_floats("rope_factors_short.weight");
  if (factors && (long_factors || short_factors))
    throw LoadError(metadata_.file() + ": there are both rope_freqs.weight and rope_factors_*");
  if (long_factors.has_value() != short_factors.has_value())
    throw LoadError(metadata_.file() + ": of rope_factors_long.weight and " +
                    "rope_factors_short.weight there is only one");
  if (!factors && !long_factors) return false;
  rope["rope_type"] = "longrope";
  rope["short_factor"] = list_of(factors ? *factors : *short_factors);
  rope["long_factor"] = list_of(factors ? *factors : *long_factors);
  rope["attention_factor"] = find_double("rope.scaling.attn_factor", kFactors).value_or(1.0);
  return true;
}

void GgufTranslator::add_scaling(json::object& rope) {
  if (const auto original = find_int("rope.scaling.original_context_length", {.min = 1}))
    rope["original_max_position_embeddings"] = *original;
  auto factor = find_factor_or_zero("rope.scaling.factor");
  if (!factor) factor = find_factor_or_zero("rope.scale_linear");
  // Without a type a factor is linear; 0 stands for none.
  const bool is_scaled = factor && *factor > 0 && *factor != 1;
  const std::string type =
      metadata_.find_string(key("rope.scaling.type")).value_or(is_scaled ? "linear" : "none");
  if (add_factors(rope)) {
    if (is_scaled) fail("rope.scaling.factor", "stands beside factors of each frequency");
    return;
  }
  if (type == "none") return;
  if (type == "longrope")
    fail("rope.scaling.type", "is longrope, but there is no rope_factors_long.weight");
  if (type != "linear" && type != "yarn")
    fail("rope.scaling.type",
         "is " + quote_name(type) + "; supported are none, linear, yarn and longrope");
  if (!is_scaled) return;
  rope["rope_type"] = type;
  rope["factor"] = *factor;
  if (type == "linear") return;
  if (find_double("rope.scaling.yarn_ext_factor").value_or(1.0) != 1)
    fail("rope.scaling.yarn_ext_factor", "is not 1, which is not supported");
  const std::pair<const char*, const char*> kKeys[] = {
      {"rope.scaling.yarn_attn_factor", "attention_factor"},
      {"rope.scaling.yarn_beta_fast", "beta_fast"},
      {"rope.scaling.yarn_beta_slow", "beta_slow"}};
  for (const auto& [gguf, hugging_face] : kKeys)
    if (const auto number = find_double(gguf, kFactors)) rope[hugging_face] = *number;
}

void GgufTranslator::add_rope() {
  json::object rope{{"rope_type", "default"}};
  rope["rope_theta"] = find_double("rope.freq_base", kFrequencyBase).value_or(10000.0);
  const int64_t rotary = find_int("rope.dimension_count", kHeadDim).value_or(head_dim_);
  if (rotary > head_dim_)
    fail("rope.dimension_count", "is " + std::to_string(rotary) + ", but heads have " +
                                     std::to_string(head_dim_) + " dimensions");
  rope["partial_rotary_factor"] = share_of(rotary, head_dim_);
  add_scaling(rope);
  config["rope_parameters"] = std::move(rope);
}

void GgufTranslator::add_layer_types(int64_t full_every) {
  const std::string name = key("attention.sliding_window_pattern");
  const std::vector<int64_t>* listed = nullptr;
  if (const GgufValue* value = metadata_.find(name)) {
    if (std::holds_alternative<int64_t>(value->value))
      full_every = *metadata_.find_int(name, {.min = 1, .max = 9999});
    else
      listed = metadata_.find_ints(name);
  }
  if (listed && static_cast<int64_t>(listed->size()) < layers_)
    metadata_.fail(
        name, "lists " + std::to_string(listed->size()) + " layers of " + std::to_string(layers_));
  json::array types;
  for (int64_t i = 0; i < layers_; ++i) {
    const bool slides = listed ? (*listed)[static_cast<size_t>(i)] != 0 : (i + 1) % full_every != 0;
    types.push_back(slides ? "sliding_attention" : "full_attention");
  }
  config["layer_types"] = std::move(types);
}

void GgufTranslator::add_plain_rope_of_windows(double base) {
  const json::object full = config["rope_parameters"].as_object();
  json::object plain{{"rope_type", "default"}};
  plain["rope_theta"] = find_double("rope.freq_base_swa", kFrequencyBase).value_or(base);
  plain["partial_rotary_factor"] = full.at("partial_rotary_factor");
  config["rope_parameters"] =
      json::object{{"full_attention", full}, {"sliding_attention", std::move(plain)}};
}

bool GgufTranslator::is_further_layer(std::string_view layer) const {
  int64_t index = 0;
  const auto [end, error] = std::from_chars(layer.data(), layer.data() + layer.size(), index);
  return error == std::errc() && end == layer.data() + layer.size() && index >= layers_;
}

std::string GgufTranslator::new_name(const std::string& name) const {
  if (auto known = names_.hugging_face(name)) return *std::move(known);
  // A layer that predicts further tokens has parts of its own; families ignore it by its number.
  const auto block = gguf_block_name(name);
  if (block && is_further_layer(block->layer))
    return "model.layers." + std::string(block->layer) + "." + std::string(block->part) +
           std::string(block->ending);
  // Kept, so that the message about a tensor that no layer uses names what is in the file.
  return name;
}

// Views of the rows: each a tensor of its own, where it lies in the file.
void GgufTranslator::cut_qkv(const RawTensor& tensor, int64_t q_rows, int64_t kv_rows) {
  const auto block = gguf_block_name(tensor.name);
  const std::pair<std::string_view, int64_t> kParts[] = {
      {"attn_q", q_rows}, {"attn_k", kv_rows}, {"attn_v", kv_rows}};
  const int64_t rows = tensor.shape.empty() ? 0 : tensor.shape.front();
  if (rows == 0 || rows != q_rows + 2 * kv_rows)
    throw LoadError(tensor.file() + ": tensor " + quote_name(tensor.name) + " has " +
                    std::to_string(rows) + " rows, not " + std::to_string(q_rows) +
                    " of queries and twice " + std::to_string(kv_rows) + " of keys and values");
  const uint64_t row_bytes = tensor.size / static_cast<uint64_t>(rows);
  uint64_t at = tensor.begin;
  for (const auto& [part, count] : kParts) {
    RawTensor piece = tensor;
    piece.name =
        "blk." + std::string(block->layer) + "." + std::string(part) + std::string(block->ending);
    piece.shape.front() = count;
    piece.begin = at;
    piece.size = row_bytes * static_cast<uint64_t>(count);
    at += piece.size;
    add_piece(tensor, std::move(piece));
  }
}

void GgufTranslator::add_piece(const RawTensor& of, RawTensor piece) {
  piece.stored_name = of.name;
  if (!tensors_.emplace(piece.name, piece).second)
    throw LoadError(of.file() + ": there are both " + quote_name(of.name) + " and " +
                    quote_name(piece.name));
}

void GgufTranslator::cut_qkv(int64_t layer, int64_t q_rows, int64_t kv_rows) {
  const std::string block = "blk." + std::to_string(layer) + ".";
  for (const char* ending : {".weight", ".bias"}) {
    const auto fused = tensors_.find(block + "attn_qkv" + ending);
    if (fused == tensors_.end()) continue;
    cut_qkv(fused->second, q_rows, kv_rows);
    tensors_.erase(fused);
  }
  // Numbers that go for all rows of the weight.
  for (const std::string_view scale : kScales) {
    const std::string ending(scale);
    const auto fused = tensors_.find(block + "attn_qkv" + ending);
    if (fused == tensors_.end()) continue;
    for (const char* part : {"attn_q", "attn_k", "attn_v"}) {
      RawTensor piece = fused->second;
      piece.name = block + part + ending;
      add_piece(fused->second, std::move(piece));
    }
    tensors_.erase(fused);
  }
}

void GgufTranslator::order_rows(RawTensor& tensor, const GgufBlockName& name) const {
  if (!has_alternating_heads_ || (name.part != "attn_q" && name.part != "attn_k")) return;
  if (is_scale(name.ending)) return;
  const int64_t rows = tensor.shape.front();
  if (rows % head_dim_ != 0 || head_dim_ % 2 != 0)
    throw LoadError(tensor.file() + ": tensor " + quote_name(tensor.name) + " has " +
                    std::to_string(rows) + " rows, not whole heads of " +
                    std::to_string(head_dim_));
  tensor.alternating_rows = head_dim_;
}

std::vector<RawTensor> GgufTranslator::finish() {
  for (const std::string& key : metadata_.unread(architecture_ + ".")) {
    const std::string_view name = std::string_view(key).substr(architecture_.size() + 1);
    if (std::ranges::find(kHarmless, name) != kHarmless.end()) continue;
    metadata_.fail(key, "is not understood for " + architecture_ +
                            " models, and may change what they compute; take a file without it, "
                            "or the model's folder in Hugging Face's format");
  }
  for (int64_t i = 0; i < layers_ && !names_.has_part("attn_qkv"); ++i)
    cut_qkv(i, heads_ * head_dim_, kv_heads_ * head_dim_);
  std::vector<RawTensor> out;
  for (auto& [name, tensor] : tensors_) {
    if (const auto block = gguf_block_name(name)) {
      refuse_fused_scale(tensor, *block);
      order_rows(tensor, *block);
    }
    RawTensor renamed = tensor;
    renamed.name = new_name(name);
    if (renamed.stored_name.empty() && renamed.name != name) renamed.stored_name = name;
    // A matrix of one row, and taps of a convolution, which files store without their dim of 1.
    if (name.ends_with(".ffn_gate_inp_shexp.weight") && tensor.shape.size() == 1)
      renamed.shape.insert(renamed.shape.begin(), 1);
    if (name.ends_with(".ssm_conv1d.weight") && tensor.shape.size() == 2)
      renamed.shape.insert(renamed.shape.begin() + 1, 1);
    out.push_back(std::move(renamed));
  }
  return out;
}

}  // namespace quire::formats
