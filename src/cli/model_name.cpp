#include "cli/model_name.h"

#include <unistd.h>

#include <filesystem>

#include "base/error.h"
#include "base/printable.h"
#include "formats/hf_config.h"
#include "formats/quantization.h"
#include "hub/pull.h"
#include "models/registry.h"
#include "text/tokenizer.h"

namespace quire::cli {
namespace {

hub::PullOptions pull_options(ModelParts parts) {
  hub::PullOptions options;
  options.weights = parts == ModelParts::kAll;
  options.check = check_readable_folder;
  options.output = STDERR_FILENO;
  return options;
}

std::string pull(const hub::ModelId& id, const hub::PullOptions& options) {
  return hub::pull(id, hub::read_settings("quire/" QUIRE_VERSION), options);
}

}  // namespace

void check_vocabulary(const std::string& model, int64_t tokens, int64_t vocabulary) {
  if (tokens <= vocabulary) return;
  throw LoadError(model + ": the tokenizer has " + std::to_string(tokens) +
                  " tokens, but the model's vocabulary is " + std::to_string(vocabulary) +
                  "; the tokenizer is of another model");
}

std::shared_ptr<const text::ChatTemplate> check_readable(const formats::HfConfig& config,
                                                         const formats::ModelFiles& files) {
  const models::ModelSpec spec = models::make_model_spec(config, config.max_position_embeddings);
  (void)formats::read_quantization_config(config);
  check_vocabulary(files.origin, text::Tokenizer::load(files)->vocab_size(), spec.vocab);
  return text::ChatTemplate::load(files);
}

std::shared_ptr<const text::ChatTemplate> check_readable_folder(const std::string& folder) {
  return check_readable(formats::read_hf_config(folder + "/config.json"), {.origin = folder});
}

ModelPlace find_model(const std::string& text, ModelParts parts) {
  std::error_code ignored;
  if (std::filesystem::exists(text, ignored)) return {.folder = text, .name = {}};
  const auto id = hub::parse_model_id(text);
  if (!id) return {.folder = text, .name = {}};  // whoever opens it says what is expected
  hub::PullOptions options = pull_options(parts);
  options.cache_will_do = true;
  try {
    return {.folder = pull(*id, options), .name = id->repo()};
  } catch (const LoadError& error) {
    throw LoadError(std::string(error.what()) + " (there is no folder " + printable(text) +
                    " either)");
  }
}

ModelPreview preview_model(const std::string& text) {
  std::error_code ignored;
  const auto id = hub::parse_model_id(text);
  if (std::filesystem::exists(text, ignored) || !id) return {.folder = text, .name = {}};
  const hub::Preview preview =
      hub::preview(*id, hub::read_settings("quire/" QUIRE_VERSION), STDERR_FILENO);
  return {.folder = preview.folder,
          .name = id->text(),
          .is_whole = preview.is_whole,
          .weight_bytes = preview.weight_bytes};
}

std::string pull_model(const std::string& text) {
  const auto id = hub::parse_model_id(text);
  if (!id)
    throw LoadError("'" + printable(text) +
                    "' is no model's name; write ORG/NAME, or ORG/NAME@REV for a branch, tag or "
                    "commit");
  return pull(*id, pull_options(ModelParts::kAll));
}

}  // namespace quire::cli
