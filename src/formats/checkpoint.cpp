#include "formats/checkpoint.h"

#include <filesystem>
#include <set>
#include <utility>

#include "base/error.h"
#include "formats/folder_quantization.h"
#include "formats/nf4_state.h"

namespace quire::formats {
namespace {

namespace fs = std::filesystem;

constexpr const char* kExpected =
    "expected a Hugging Face model folder with config.json and *.safetensors, or a GGUF file";

bool exists(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// Shards must lie in the folder itself: an index from the net must not reach other files.
void check_shard_name(const std::string& index_path, const std::string& tensor,
                      const std::string& shard) {
  if (!shard.empty() && shard != "." && shard != ".." &&
      shard.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos)
    return;
  throw LoadError(index_path + ": tensor " + quote_name(tensor) + " is mapped to " +
                  quote_name(shard) + "; a shard must be a plain file name in the model folder");
}

// tensor name -> shard file name
using WeightMap = std::map<std::string, std::string>;

WeightMap read_weight_map(const std::string& index_path) {
  const json::value raw = read_json_object(index_path, {.max_bytes = 256u << 20});
  const ConfigReader index(index_path, raw.get_object());
  const json::object* entries = index.find_object("weight_map");
  if (!entries || entries->empty()) index.fail("weight_map", "is missing or empty");
  WeightMap out;
  for (const auto& entry : *entries) {
    const std::string tensor(entry.key().data(), entry.key().size());
    if (!entry.value().is_string()) {
      throw LoadError(index_path + ": the shard of tensor " + quote_name(tensor) +
                      " must be a file name");
    }
    const std::string shard(entry.value().get_string().c_str(), entry.value().get_string().size());
    check_shard_name(index_path, tensor, shard);
    out.emplace(tensor, shard);
  }
  return out;
}

// The GGUF file that a folder without config.json holds: the only one, or the first part of the
// only one. Files beside it that are no model by themselves do not count: a vision tower (mmproj),
// and what llama.cpp drafts with (mtp-*). Nothing if there is none; throws LoadError if there are
// several.
std::optional<std::string> find_gguf(const std::string& dir) {
  std::vector<std::string> found;
  for (const auto& entry : fs::directory_iterator(dir)) {
    const std::string name = entry.path().filename().string();
    const size_t part = name.rfind("-of-");
    const bool is_later_part = part != std::string::npos && part >= 6 &&
                               name.substr(part - 6, 6) != "-00001" && name[part - 6] == '-';
    const bool is_beside_a_model =
        name.find("mmproj") != std::string::npos || name.starts_with("mtp-");
    if (name.ends_with(".gguf") && !is_later_part && !is_beside_a_model)
      found.push_back(entry.path().string());
  }
  if (found.size() > 1)
    throw LoadError(dir + ": has " + std::to_string(found.size()) +
                    " models in GGUF; give the file that is meant");
  return found.empty() ? std::nullopt : std::optional(found.front());
}

}  // namespace

void Checkpoint::add_shard(const std::string& path) {
  files_.push_back(SafetensorsFile::open(path));
  for (const RawTensor& tensor : files_.back().tensors()) {
    const auto [other, is_new] = tensors_.emplace(tensor.name, &tensor);
    if (!is_new) {
      throw LoadError("tensor " + quote_name(tensor.name) + " is in two shards, " +
                      other->second->file() + " and " + path + "; download the model again");
    }
    total_bytes_ += tensor.size;
  }
}

void Checkpoint::add_indexed_shards(const std::string& index_path) {
  const WeightMap weights = read_weight_map(index_path);
  std::map<std::string, std::string> shards;  // shard -> one tensor of it, for messages
  for (const auto& [tensor, shard] : weights) shards.emplace(shard, tensor);
  for (const auto& [shard, tensor] : shards) {
    const std::string path = dir_ + "/" + shard;
    if (!exists(path)) {
      throw LoadError(path + ": the shard is missing, but " + index_path + " maps tensor " +
                      quote_name(tensor) + " to it; download the model again");
    }
    add_shard(path);
  }
  for (const auto& [tensor, shard] : weights) {
    const RawTensor* found = find(tensor);
    if (found && found->file() == dir_ + "/" + shard) continue;
    throw LoadError(dir_ + "/" + shard + ": tensor " + quote_name(tensor) + " is missing, but " +
                    index_path + " maps it to this shard; download the model again");
  }
}

// bitsandbytes may store the codes of a weight as elements of another dtype, which its config
// names.
void Checkpoint::see_codes_as_bytes() {
  const std::optional<DType> storage = nf4_storage(config_);
  if (!storage) return;
  for (const auto& [name, tensor] : tensors_) {
    if (tensor->dtype != *storage || tensor->size > kMaxDim || !find(name + kNf4State)) continue;
    translated_.push_back(*tensor);
    translated_.back().dtype = DType::kU8;
    translated_.back().shape = {static_cast<int64_t>(tensor->size), 1};
  }
  for (const RawTensor& tensor : translated_) tensors_.at(tensor.name) = &tensor;
}

Checkpoint Checkpoint::open(const std::string& path) {
  std::error_code ignored;
  const std::string& dir = path;
  if (is_gguf_file(path)) return open_gguf(path);
  if (!fs::is_directory(dir, ignored))
    throw LoadError(dir + (exists(dir) ? ": not a folder; " : ": does not exist; ") + kExpected);
  Checkpoint out;
  out.dir_ = dir;
  while (out.dir_.size() > 1 && out.dir_.back() == '/') out.dir_.pop_back();
  if (!exists(out.dir_ + "/config.json")) {
    if (const auto gguf = find_gguf(out.dir_)) return open_gguf(*gguf);
    throw LoadError(dir + ": has no config.json; " + kExpected);
  }
  out.config_ = read_hf_config(out.dir_ + "/config.json");
  out.generation_config_ = read_generation_config(out.dir_ + "/generation_config.json");
  const std::string single = out.dir_ + "/model.safetensors";
  const std::string index = single + ".index.json";
  if (exists(single)) {  // transformers prefers it too; some writers add an index beside it
    out.add_shard(single);
  } else if (exists(index)) {
    out.add_indexed_shards(index);
  } else {
    throw LoadError(dir + ": has neither model.safetensors nor model.safetensors.index.json; " +
                    kExpected);
  }
  out.forget_old_quantization();
  out.see_codes_as_bytes();
  return out;
}

void Checkpoint::forget_old_quantization() {
  const auto is_quantised = [](const auto& tensor) { return tensor.first.ends_with(".qweight"); };
  if (!config_.quantization_may_be_old || std::ranges::any_of(tensors_, is_quantised)) return;
  config_.quantization = nullptr;
  config_.quantization_file.clear();
}

std::vector<int64_t> Checkpoint::eos_token_ids() const {
  std::set<int64_t> ids(config_.eos_token_ids.begin(), config_.eos_token_ids.end());
  ids.insert(generation_config_.eos_token_ids.begin(), generation_config_.eos_token_ids.end());
  return {ids.begin(), ids.end()};
}

void Checkpoint::check_unchanged() const {
  for (const SafetensorsFile& file : files_) file.check_unchanged();
  if (!gguf_) return;
  for (const auto& file : gguf_->files()) file->check_unchanged();
}

void Checkpoint::record_contents() {
  for (SafetensorsFile& file : files_) file.record_contents();
  for (RawTensor& tensor : translated_) tensor.record_contents();
}

std::string Checkpoint::contents_digest() const {
  std::string all;
  for (const auto& [name, tensor] : tensors_) {
    if (!tensor->digest || !tensor->digest->is_begun()) continue;
    tensor->digest->complete(
        [&](uint64_t offset, std::span<std::byte> out) { tensor->fetch(offset, out); });
    all += quote_name(name) + " " + std::string(dtype_name(tensor->dtype));
    for (const int64_t dim : tensor->shape) all += " " + std::to_string(dim);
    all += " " + hex_digest(tensor->digest->blocks()) + "\n";
  }
  return hex_digest(all);
}

std::vector<std::string> Checkpoint::names() const {
  std::vector<std::string> out;
  out.reserve(tensors_.size());
  for (const auto& [name, tensor] : tensors_) out.push_back(name);
  return out;
}

const RawTensor* Checkpoint::find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : found->second;
}

}  // namespace quire::formats
