#include "hub/needed_files.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "base/printable.h"
#include "formats/config_reader.h"

namespace quire::hub {
namespace {

constexpr const char* kTokenizers[] = {"tokenizer.json", "tekken.json"};
// What goes with either of them.
constexpr const char* kTextFiles[] = {"tokenizer_config.json", "special_tokens_map.json",
                                      "chat_template.jinja", "chat_template.json"};
constexpr const char* kConfigs[] = {"config.json",          "generation_config.json",
                                    "hf_quant_config.json", "quantize_config.json",
                                    "quant_config.json",    "1_Pooling/config.json"};

bool has(const std::vector<std::string>& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

bool any_ends(const std::vector<std::string>& names, std::string_view suffix) {
  return std::ranges::any_of(names,
                             [&](const std::string& name) { return name.ends_with(suffix); });
}

// Says what a repository without the weights that we read has instead.
[[noreturn]] void throw_unreadable(const ModelId& id, const std::vector<std::string>& names) {
  const std::string begin = id.text() + " cannot be read: ";
  if (has(names, "adapter_config.json"))
    throw LoadError(begin +
                    "it is an adapter, a change to another model, not a model; its "
                    "adapter_config.json names that model, and PEFT's merge_and_unload() makes "
                    "one model of both");
  if (any_ends(names, ".gguf"))
    throw LoadError(begin +
                    "its weights are GGUF files, which are not fetched by name: fetch one of "
                    "them and give the file, or take the repository that they were made from and "
                    "`quire quantize` it");
  const bool are_pickles = std::ranges::any_of(
      names, [](const std::string& name) { return name.starts_with("pytorch_model"); });
  if (!are_pickles && (any_ends(names, "consolidated.safetensors") || any_ends(names, ".pth")))
    throw LoadError(begin +
                    "its weights are in their authors' own layout (consolidated.*); take "
                    "the repository for transformers, often called -hf or -HF");
  if (any_ends(names, ".bin") || any_ends(names, ".pt"))
    throw LoadError(
        begin +
        "its weights are PyTorch pickles, which can hold programs; "
        "https://huggingface.co/spaces/safetensors/convert makes *.safetensors of them");
  if (any_ends(names, ".onnx") || any_ends(names, ".msgpack") || any_ends(names, ".h5") ||
      any_ends(names, ".tflite"))
    throw LoadError(begin +
                    "its weights are of another framework (ONNX, Flax or TensorFlow); take "
                    "the repository that they were made from");
  if (any_ends(names, ".safetensors"))
    throw LoadError(begin + "it has neither " + kSingleFile + " nor " + kIndexFile +
                    "; it may be no language model");
  throw LoadError(begin + "it has no weights");
}

std::set<std::string> shard_names(const std::string& index_path) {
  const json::value raw = formats::read_json_object(index_path, {.max_bytes = 256u << 20});
  const formats::ConfigReader index(index_path, raw.get_object());
  const json::object* map = index.find_object("weight_map");
  if (map == nullptr || map->empty()) index.fail("weight_map", "is missing or empty");
  std::set<std::string> shards;
  for (const auto& entry : *map) {
    if (!entry.value().is_string()) index.fail("weight_map", "has a shard that is no file name");
    shards.emplace(entry.value().get_string());
  }
  return shards;
}

}  // namespace

std::vector<std::string> tokenizer_files(const ModelId& id, const std::vector<std::string>& names) {
  std::vector<std::string> files;
  for (const char* name : kTokenizers)
    if (files.empty() && has(names, name)) files.emplace_back(name);
  if (files.empty())
    throw LoadError(id.text() + " cannot be read: it has no tokenizer.json" +
                    (has(names, "tokenizer.model")
                         ? std::string(", only a tokenizer.model; transformers makes one of it: "
                                       "AutoTokenizer.from_pretrained(NAME).save_pretrained(DIR)")
                         : std::string(" and no tekken.json")));
  for (const char* name : kTextFiles)
    if (has(names, name)) files.emplace_back(name);
  return files;
}

NeededFiles choose_files(const ModelId& id, const std::vector<std::string>& names) {
  NeededFiles needed;
  if (has(names, kSingleFile)) {
    needed.weights = {kSingleFile};
  } else if (has(names, kIndexFile)) {
    needed.has_index = true;
    needed.small.emplace_back(kIndexFile);
  } else {
    throw_unreadable(id, names);
  }
  if (!has(names, "config.json"))
    throw LoadError(id.text() + " cannot be read: it has no config.json");
  for (const char* name : kConfigs)
    if (has(names, name)) needed.small.emplace_back(name);
  for (std::string& name : tokenizer_files(id, names)) needed.small.push_back(std::move(name));
  return needed;
}

std::vector<std::string> shards_of(const std::string& index_path,
                                   const std::vector<std::string>& names) {
  const std::set<std::string> shards = shard_names(index_path);
  for (const std::string& shard : shards) {
    if (!is_safe_path(shard) || shard.find('/') != std::string::npos)
      throw LoadError(index_path + ": the shard '" + printable(shard) +
                      "' is no plain file name; nothing was written");
    if (!has(names, shard))
      throw LoadError(index_path + ": the repository does not have the shard '" + printable(shard) +
                      "'");
  }
  return {shards.begin(), shards.end()};
}

std::string missing_file(const std::string& folder) {
  const auto exists = [&](const std::string& name) {
    std::error_code ignored;
    return std::filesystem::is_regular_file(std::filesystem::path(folder) / name, ignored);
  };
  if (!exists("config.json")) return "config.json";
  if (std::ranges::none_of(kTokenizers, exists)) return kTokenizers[0];
  if (exists(kSingleFile)) return "";
  if (!exists(kIndexFile)) return kSingleFile;
  for (const std::string& shard : shard_names(folder + "/" + kIndexFile))
    if (!exists(shard)) return shard;
  return "";
}

}  // namespace quire::hub
