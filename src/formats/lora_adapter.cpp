#include "formats/lora_adapter.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <string_view>

#include "base/error.h"
#include "base/json.h"
#include "formats/config_reader.h"
#include "formats/content_digest.h"

namespace quire::formats {
namespace {

constexpr std::string_view kPrefix = "base_model.model.", kA = ".lora_A.weight",
                           kB = ".lora_B.weight";
constexpr IntRange kRank = {.min = 1, .max = 1 << 16};

// Keys that are read, and those that say nothing about the outputs of an adapter that is trained.
constexpr std::string_view kKnownKeys[] = {
    "peft_type", "r", "lora_alpha", "use_rslora", "bias", "init_lora_weights",
    // Which modules were chosen: the tensors say it.
    "target_modules", "exclude_modules", "layers_to_transform", "layers_pattern",
    // Of training, and where it came from.
    "task_type", "auto_mapping", "peft_version", "base_model_name_or_path", "revision",
    "inference_mode", "lora_dropout", "megatron_core", "loftq_config", "eva_config",
    "qalora_group_size", "ensure_weight_tying", "runtime_config"};

// Ways to begin that leave the base as it is. The others take from its weights what they put into
// the adapter.
constexpr std::string_view kPlainInits[] = {"gaussian", "orthogonal", "eva"};

bool is_known(std::string_view key) {
  return std::ranges::find(kKnownKeys, key) != std::end(kKnownKeys);
}

// Null, false, 0, "", [] or {}.
bool says_nothing(const json::value& value) {
  if (const auto* flag = value.if_bool()) return !*flag;
  if (const auto* number = value.if_int64()) return *number == 0;
  if (const auto* text = value.if_string()) return text->empty();
  if (const auto* list = value.if_array()) return list->empty();
  if (const auto* object = value.if_object()) return object->empty();
  return value.is_null();
}

// Why a key's value cannot be honoured.
std::string reason_for(std::string_view key) {
  if (key == "use_dora") return "is set: DoRA is not supported, only plain LoRA";
  if (key == "modules_to_save")
    return "names modules that were trained as a whole: not supported, only what LoRA adds";
  if (key == "rank_pattern" || key == "alpha_pattern")
    return "gives single modules another rank or factor: not supported; train with one r and "
           "lora_alpha for all";
  if (key == "lora_bias") return "is set: biases of LoRA's own are not supported";
  if (key == "fan_in_fan_out") return "is set: layers that store [in, out] are not supported";
  return "changes what an adapter does in a way that is not supported";
}

void check_init(const ConfigReader& config) {
  const json::value* init = config.find("init_lora_weights");
  if (!init || init->is_bool()) return;
  const std::string name = config.find_string("init_lora_weights").value_or("");
  if (std::ranges::find(kPlainInits, name) != std::end(kPlainInits)) return;
  config.fail("init_lora_weights",
              "is " + quote_name(name) +
                  ", which changes the base model's weights as well; convert the adapter to plain "
                  "LoRA when you save it (PEFT's path_initial_model_for_weight_conversion)");
}

// The module and which of its two matrices; nothing for any other tensor.
struct Place {
  std::string module;
  bool is_a = false;
};
std::optional<Place> place_of(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  const bool is_a = name.ends_with(kA);
  if (!is_a && !name.ends_with(kB)) return std::nullopt;
  name.remove_suffix(kA.size());
  return Place{std::string(name), is_a};
}

std::string file_and_name(const RawTensor& tensor) {
  return tensor.file() + ": tensor " + quote_name(tensor.name);
}

void check_matrix(const RawTensor& tensor, bool is_a, int64_t rank) {
  if (tensor.dtype != DType::kF32 && tensor.dtype != DType::kF16 && tensor.dtype != DType::kBF16)
    throw LoadError(file_and_name(tensor) + " has dtype " + std::string(dtype_name(tensor.dtype)) +
                    "; supported are F32, F16 and BF16");
  const bool is_matrix = tensor.shape.size() == 2;
  const int64_t own = is_matrix ? tensor.shape[is_a ? 0 : 1] : 0;
  if (is_matrix && own == rank) return;
  if (!is_matrix)
    throw LoadError(file_and_name(tensor) +
                    " is no matrix: LoRA of linear layers alone is supported");
  throw LoadError(file_and_name(tensor) + " has rank " + std::to_string(own) +
                  ", but r in adapter_config.json is " + std::to_string(rank) +
                  "; take both files from one adapter");
}

}  // namespace

LoraAdapter LoraAdapter::open(const std::string& dir, int64_t max_rank) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const std::string file = dir + "/adapter_model.safetensors";
  if (!fs::exists(dir + "/adapter_config.json", ignored))
    throw LoadError(dir +
                    ": there is no adapter_config.json; a LoRA adapter is a folder as PEFT's "
                    "save_pretrained writes it");
  if (!fs::exists(file, ignored) && fs::exists(dir + "/adapter_model.bin", ignored))
    throw LoadError(dir +
                    "/adapter_model.bin: pickled weights are not read; save the adapter "
                    "anew with safe_serialization=True (adapter_model.safetensors)");
  LoraAdapter adapter(SafetensorsFile::open(file));
  adapter.dir_ = dir;
  adapter.read_config(max_rank);
  adapter.take_tensors();
  return adapter;
}

void LoraAdapter::read_config(int64_t max_rank) {
  const std::string file = dir_ + "/adapter_config.json";
  const json::value raw = read_json_object(file);
  const ConfigReader config(file, raw.get_object());
  const std::string type = config.find_string("peft_type").value_or("");
  if (type != "LORA") config.fail("peft_type", "is " + quote_name(type) + "; supported is LORA");
  for (const auto& entry : raw.get_object()) {
    const std::string_view key(entry.key().data(), entry.key().size());
    if (!is_known(key) && !says_nothing(entry.value())) config.fail(key, reason_for(key));
  }
  const std::string bias = config.find_string("bias").value_or("none");
  if (bias != "none")
    config.fail("bias", "is " + quote_name(bias) + ": trained biases are not supported");
  check_init(config);
  rank_ = config.require_int("r", kRank);
  if (max_rank > 0 && rank_ > max_rank)
    config.fail(
        "r", "is " + std::to_string(rank_) + ", over --max-lora-rank " + std::to_string(max_rank));
  const double alpha = config.require_double("lora_alpha");
  const auto rank = static_cast<double>(rank_);
  const bool by_root = config.find_bool("use_rslora").value_or(false);
  const double scaling = alpha / (by_root ? std::sqrt(rank) : rank);
  if (!(std::abs(scaling) <= std::numeric_limits<float>::max()))
    config.fail("lora_alpha", "is " + dump_json(alpha) + ", too large for a factor");
  scaling_ = static_cast<float>(scaling);
}

void LoraAdapter::take_tensors() {
  for (const RawTensor& tensor : file_.tensors()) {
    const auto place = place_of(tensor.name);
    if (!place)
      throw LoadError(file_and_name(tensor) +
                      " is no lora_A or lora_B of a linear layer; nothing else is supported");
    check_matrix(tensor, place->is_a, rank_);
    Module& module = modules_[place->module];
    (place->is_a ? module.a : module.b) = &tensor;
  }
  if (modules_.empty()) throw LoadError(dir_ + "/adapter_model.safetensors: there is no tensor");
  for (const auto& [name, module] : modules_)
    if (!module.a || !module.b)
      throw LoadError(file_and_name(module.a ? *module.a : *module.b) + ": its " +
                      (module.a ? "lora_B" : "lora_A") + " is missing; the file is incomplete");
}

std::string LoraAdapter::digest() const {
  std::string all = "scaling=" + dump_json(scaling_) + "\n";
  for (const auto& [name, module] : modules_)
    for (const RawTensor* tensor : {module.a, module.b}) {
      const std::vector<std::byte> bytes = tensor->read_all();
      all += tensor->name + " " + std::string(dtype_name(tensor->dtype));
      for (const int64_t dim : tensor->shape) all += " " + std::to_string(dim);
      all += " " + hex_digest({reinterpret_cast<const char*>(bytes.data()), bytes.size()}) + "\n";
    }
  check_unchanged();
  return hex_digest(all);
}

}  // namespace quire::formats
