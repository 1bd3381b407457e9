// The part of Checkpoint that opens GGUF files.
#include <utility>

#include "base/error.h"
#include "formats/checkpoint.h"
#include "formats/gguf/architectures.h"
#include "formats/gguf/config_keys.h"
#include "formats/gguf/text_files.h"
#include "formats/gguf/translator.h"

namespace quire::formats {
namespace {

// Samplings that files recommend, and tokens that are never to be produced, in
// generation_config.json's words.
GenerationConfig read_sampling(const GgufMetadata& metadata) {
  const std::string prefix = "general.sampling.";
  GenerationConfig out;
  out.temperature = metadata.find_double(prefix + "temp", {.min = 0});
  out.top_k = metadata.find_int(prefix + "top_k", {.min = -1, .max = INT32_MAX});
  out.top_p = metadata.find_double(prefix + "top_p", {.min = 0, .max = 1});
  out.min_p = metadata.find_double(prefix + "min_p", {.min = 0, .max = 1});
  if (const auto* ids = metadata.find_ints("tokenizer.ggml.suppress_tokens"))
    out.suppress_tokens = *ids;
  return out;
}

// How vectors for embeddings are made, by the numbers of llama.cpp's enum llama_pooling_type.
std::optional<PoolingMode> read_pooling(const GgufTranslator& translator) {
  constexpr const char* kName = "pooling_type";
  const auto type = translator.find_int(kName);
  if (!type || *type == 0) return std::nullopt;
  if (*type == 1) return PoolingMode::kMean;
  if (*type == 3) return PoolingMode::kLast;
  const char* meaning = *type == 2   ? " (the first token's state)"
                        : *type == 4 ? " (a head that ranks)"
                                     : "";
  translator.fail(kName, "is " + std::to_string(*type) + meaning +
                             ", which is not supported; supported are 0 (not said), 1 (mean) and "
                             "3 (last)");
}

}  // namespace

Checkpoint Checkpoint::open_gguf(const std::string& path) {
  Checkpoint out;
  out.dir_ = path;
  out.gguf_ = GgufModel::open(path);
  const GgufMetadata metadata(path, out.gguf_->metadata());
  GgufTranslator translator(metadata, out.gguf_->tensors());
  translate_architecture(translator);
  json::array end_tokens;
  for (const int64_t id : find_end_tokens(metadata)) end_tokens.push_back(id);
  translator.config["eos_token_id"] = std::move(end_tokens);
  out.pooling_ = read_pooling(translator);
  out.translated_ = translator.finish();
  out.gguf_names_ = translator.names();
  out.norms_are_complete_ = translator.norms_are_complete;
  out.config_ =
      parse_hf_config(std::move(translator.config), path,
                      gguf_keys_of_config(metadata.require_string("general.architecture")));
  out.generation_config_ = read_sampling(metadata);
  for (const RawTensor& tensor : out.translated_) {
    if (!out.tensors_.emplace(tensor.name, &tensor).second)
      throw LoadError(path + ": two tensors stand for " + quote_name(tensor.name));
    out.total_bytes_ += tensor.size;
  }
  return out;
}

std::string Checkpoint::name_in_file(const std::string& name) const {
  const auto stored = gguf_names_ ? gguf_names_->gguf(name) : std::nullopt;
  return stored ? *stored + " (" + name + ")" : name;
}

ModelFiles Checkpoint::text_files() const {
  if (!gguf_) return {.origin = dir_};
  return make_text_files(GgufMetadata(dir_, gguf_->metadata()));
}

}  // namespace quire::formats
