#include <cstdio>
#include <ctime>
#include <filesystem>

#include "base/error.h"
#include "base/printable.h"
#include "cli/commands.h"
#include "cli/model_facts.h"
#include "cli/model_name.h"
#include "cli/show_gguf.h"
#include "dialects/dialect.h"
#include "formats/checkpoint.h"
#include "formats/folder_quantization.h"
#include "formats/gguf/gguf.h"
#include "formats/openai_mxfp4.h"
#include "formats/quantization.h"
#include "hub/explain.h"
#include "models/model.h"
#include "models/model_size.h"
#include "text/chat_template.h"

namespace quire::cli {
namespace {

void row(const char* title, const std::string& text) {
  std::printf("%-13s %s\n", title, printable(text, 2000).c_str());
}

// How the weights are stored: "bfloat16", "4-bit affine in groups of 64".
std::string storage_text(const formats::Checkpoint& checkpoint) {
  if (const auto quantization = formats::read_quantization_config(checkpoint.config())) {
    const formats::QuantisedFormat& format = quantization->defaults;
    return std::to_string(format.bits) + "-bit " + formats::mode_name(format.mode) +
           " in groups of " + std::to_string(format.group_size);
  }
  const auto folder = formats::read_folder_quantization(checkpoint.config());
  if (folder && !folder->groups.empty()) return folder->title();
  for (const std::string& name : checkpoint.names()) {
    const formats::RawTensor& tensor = *checkpoint.find(name);
    if (formats::is_openai_codes(name)) return "4-bit mxfp4 in groups of 32";
    if (tensor.shape.size() >= 2) return std::string(formats::dtype_name(tensor.dtype));
  }
  return "none";
}

void show_config(const formats::HfConfig& config) {
  row("architecture", (config.architectures.empty() ? "none" : config.architectures.front()) +
                          ", " + std::to_string(config.num_hidden_layers) +
                          " layers, hidden size " + std::to_string(config.hidden_size));
  row("context", std::to_string(config.max_position_embeddings) + " tokens");
}

void show_chat(const text::ChatTemplate* chat_template) {
  if (!chat_template) return row("chat", "no template: it continues texts");
  const dialects::DialectChoice choice = dialects::detect_dialect(chat_template->source());
  const auto name = [](const dialects::Dialect* dialect) {
    return dialect ? std::string(dialect->name) : "none";
  };
  row("chat",
      "a template; tool calls: " + name(choice.calls) + ", reasoning: " + name(choice.reasoning));
}

// Whether it can be served; says what there is to say of a model whose weights are there.
void show_weights(const std::string& place, const std::string& shown) {
  const formats::Checkpoint checkpoint = formats::Checkpoint::open(place);
  show_config(checkpoint.config());
  const models::ModelSize size = models::measure_model(checkpoint, {});
  row("parameters", count_text(size.parameters));
  row("weights", storage_text(checkpoint) + ", " +
                     hub::bytes_text(static_cast<double>(checkpoint.total_bytes())));
  row("memory", memory_text(size));
  show_chat(check_readable(checkpoint.config(), checkpoint.text_files()).get());
  models::check_tensors(checkpoint);
  check_fits_here(shown, size);
}

int show(const std::string& name) {
  const ModelPreview model = preview_model(name);
  if (formats::is_gguf_file(model.folder)) return show_gguf(model.folder) ? 0 : 1;
  row("model",
      model.name.empty() ? std::filesystem::path(model.folder).filename().string() : model.name);
  row("place", model.folder);
  try {
    if (model.is_whole) {
      show_weights(model.folder, name);
    } else {
      show_config(formats::read_hf_config(model.folder + "/config.json"));
      row("weights", hub::bytes_text(static_cast<double>(model.weight_bytes)) +
                         ", not fetched: `quire pull` does");
      show_chat(check_readable_folder(model.folder).get());
    }
  } catch (const LoadError& error) {
    row("supported", std::string("no: ") + error.what());
    return 1;
  }
  row("supported", "yes");
  return 0;
}

}  // namespace

void add_show(CLI::App& app, int& status) {
  auto name = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand(
      "show", "Say what a model is, what it needs, and whether it can be served");
  command
      ->add_option("model", *name,
                   "A folder, a GGUF file, or ORG/NAME[@REV] of a hub: nothing but its "
                   "configs and tokenizer is fetched")
      ->required()
      ->type_name("DIR|FILE|NAME");
  command->callback([name, &status] { status = show(*name); });
}

}  // namespace quire::cli
