#include "cli/show_gguf.h"

#include <cstdio>
#include <map>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/printable.h"
#include "cli/model_facts.h"
#include "cli/model_name.h"
#include "cli/terminal_text.h"
#include "formats/checkpoint.h"
#include "formats/gguf/gguf.h"
#include "formats/gguf/metadata.h"
#include "formats/gguf/text_files.h"
#include "models/model.h"
#include "models/model_size.h"

namespace quire::cli {
namespace {

using formats::GgufMetadata;

void row(const std::string& name, const std::string& value) {
  std::printf("%-16s %s\n", printable(name).c_str(), printable(value, 10'000).c_str());
}

std::string mebibytes(uint64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

// "Q4_K: 217, 2101 MiB"
void show_types(const std::vector<formats::RawTensor>& tensors) {
  struct Sum {
    int64_t tensors = 0;
    uint64_t bytes = 0;
  };
  std::map<formats::DType, Sum> sums;
  for (const auto& tensor : tensors) {
    ++sums[tensor.dtype].tensors;
    sums[tensor.dtype].bytes += tensor.size;
  }
  for (const auto& [dtype, sum] : sums)
    row("tensors", std::string(formats::dtype_name(dtype)) + ": " + std::to_string(sum.tensors) +
                       ", " + mebibytes(sum.bytes));
}

void show_tokenizer(const GgufMetadata& metadata) {
  const std::string prefix = "tokenizer.ggml.";
  row("tokenizer", metadata.find_string(prefix + "model").value_or("none") + " " +
                       metadata.find_string(prefix + "pre").value_or(""));
  const auto* tokens = metadata.find_strings(prefix + "tokens");
  if (!tokens) return;
  row("tokens", std::to_string(tokens->size()));
  const auto named = [&](int64_t id) {
    const bool known = id >= 0 && id < static_cast<int64_t>(tokens->size());
    return std::to_string(id) + (known ? " " + (*tokens)[static_cast<size_t>(id)] : "");
  };
  for (const char* name : {"bos", "eos", "eot", "unknown", "padding"})
    if (const auto id = metadata.find_int(prefix + name + "_token_id")) row(name, named(*id));
  std::string ends;
  for (const int64_t id : formats::find_end_tokens(metadata))
    ends += (ends.empty() ? "" : ", ") + named(id);
  row("answers end", ends);
  for (const char* name : {"add_bos_token", "add_eos_token", "add_space_prefix"})
    if (const auto on = metadata.find_bool(prefix + name)) row(name, *on ? "yes" : "no");
}

void show_templates(const GgufMetadata& metadata) {
  const std::string key = "tokenizer.chat_template";
  bool any = false;
  for (const std::string& name : metadata.keys(key)) {
    const formats::GgufValue* value = metadata.find(name);
    const auto* source = std::get_if<std::string>(&value->value);
    if (!source || (name != key && !name.starts_with(key + "."))) continue;
    std::printf("\n%s:\n%s\n", printable(name).c_str(), terminal_text(*source).c_str());
    any = true;
  }
  if (!any) row("chat template", "none");
}

// What Quire takes the model for, or why it does not take it.
bool show_model(const std::string& path) {
  try {
    const auto checkpoint = formats::Checkpoint::open(path);
    check_readable(checkpoint.config(), checkpoint.text_files());
    row("architecture", checkpoint.config().architectures.front());
    row("config", dump_json(checkpoint.config().raw));
    const models::ModelSize size = models::measure_model(checkpoint, {});
    row("parameters", count_text(size.parameters));
    row("memory", memory_text(size));
    models::check_tensors(checkpoint);
    check_fits_here(path, size);
    row("supported", "yes");
    return true;
  } catch (const LoadError& error) {
    row("supported", std::string("no: ") + error.what());
    return false;
  }
}

}  // namespace

bool show_gguf(const std::string& path) {
  const formats::GgufModel model = formats::GgufModel::open(path);
  const GgufMetadata metadata(path, model.metadata());
  uint64_t bytes = 0;
  for (const auto& file : model.files()) bytes += file->size();
  row("file",
      path + " (" + mebibytes(bytes) + ", parts: " + std::to_string(model.files().size()) + ")");
  for (const char* key : {"name", "architecture", "quantized_by"})
    if (const auto text = metadata.find_string(std::string("general.") + key))
      row("general." + std::string(key), *text);
  const bool is_supported = show_model(path);
  show_types(model.tensors());
  show_tokenizer(metadata);
  show_templates(metadata);
  return is_supported;
}

}  // namespace quire::cli
