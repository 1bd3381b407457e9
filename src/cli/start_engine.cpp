#include "cli/start_engine.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <set>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/freed_memory.h"
#include "base/json.h"
#include "base/printable.h"
#include "cli/compute_context.h"
#include "cli/fingerprint.h"
#include "cli/model_name.h"
#include "engine/memory_fit.h"
#include "formats/data_file.h"
#include "formats/folder_quantization.h"
#include "formats/lora_adapter.h"
#include "formats/quantization.h"
#include "models/device_limits.h"

namespace quire::cli {
namespace {

std::optional<mlx::core::Dtype> dtype_of(const std::string& name) {
  if (name == "bfloat16") return mlx::core::bfloat16;
  if (name == "float16" || name == "half") return mlx::core::float16;
  if (name == "float32" || name == "float") return mlx::core::float32;
  return std::nullopt;
}

const char* dtype_name(mlx::core::Dtype dtype) {
  return dtype == mlx::core::bfloat16  ? "bfloat16"
         : dtype == mlx::core::float16 ? "float16"
                                       : "float32";
}

// "loading 42 %", overwritten in place; only for people.
std::function<void(double)> progress_printer() {
  if (!isatty(STDERR_FILENO)) return {};
  return [last = -1](double fraction) mutable {
    const int percent = static_cast<int>(fraction * 100.0);
    if (percent == last) return;
    last = percent;
    std::fprintf(stderr, "\rloading %3d %%%s", percent, percent >= 100 ? "\r              \r" : "");
    std::fflush(stderr);
  };
}

using ModelText =
    std::tuple<std::shared_ptr<const text::Tokenizer>, std::shared_ptr<const text::ChatTemplate>,
               std::shared_ptr<const text::GrammarFactory>>;

ModelText load_text(const ModelFlags& flags, const formats::ModelFiles& files,
                    const std::vector<int32_t>& eos_token_ids) {
  auto tokenizer = text::Tokenizer::load(files);
  auto chat_template =
      flags.chat_template.empty()
          ? text::ChatTemplate::load(files)
          : parse_template_flag("--chat-template", flags.chat_template, *tokenizer);
  std::shared_ptr<const text::GrammarFactory> grammars;
  const auto whitespace = flags.json_whitespace == "flexible" ? text::JsonWhitespace::kFlexible
                                                              : text::JsonWhitespace::kBounded;
  if (!eos_token_ids.empty())
    grammars = text::GrammarFactory::create(tokenizer, eos_token_ids, whitespace);
  give_back_freed_memory();  // parsing a large vocabulary leaves tens of MB
  return {std::move(tokenizer), std::move(chat_template), std::move(grammars)};
}

// The weights, and the text files beside them: a vocabulary of 151k tokens takes longer to read
// than the weights of a small model to pack. If it cannot be used, that is said before the weights
// of a large model have all been read.
std::pair<std::unique_ptr<models::Model>, ModelText> load_both(
    const ops::Context& context, const formats::Checkpoint& checkpoint, models::LoadOptions load,
    const std::function<ModelText()>& load_text) {
  std::atomic<bool> text_failed = false;
  std::future<ModelText> text = std::async(std::launch::async, [&] {
    try {
      return load_text();
    } catch (...) {
      text_failed = true;
      throw;
    }
  });
  load.progress = [&text, &text_failed, print = std::move(load.progress)](double fraction) {
    if (text_failed) text.get();  // throws
    if (print) print(fraction);
  };
  auto weights = models::load_model(context, checkpoint, load);
  return {std::move(weights), text.get()};
}

// ", at most 402 MiB in memory": the process's peak so far, where the system tells it.
std::string peak_memory() {
  std::ifstream status("/proc/self/status");
  std::string word;
  int64_t kib = 0;
  while (status >> word)
    if (word == "VmHWM:" && status >> kib)
      return ", at most " + std::to_string(kib / 1024) + " MiB in memory";
  return "";
}

void check_length(const formats::HfConfig& config, const engine::MemoryRequest& request) {
  const int64_t longest = config.max_position_embeddings;
  if (request.max_model_len <= longest) return;
  throw LoadError("--max-model-len " + std::to_string(request.max_model_len) +
                  " is over the model's " + std::to_string(longest) +
                  " (max_position_embeddings in config.json); lower it, or add the " +
                  "model's rope scaling to config.json");
}

models::LoadOptions load_options(const ModelFlags& flags, const engine::MemoryRequest& request) {
  return {.dtype = dtype_of(flags.dtype),
          .max_positions = request.max_model_len,
          .progress = progress_printer(),
          .ablation = flags.ablation,
          .int8_activations = flags.quant_activations == "auto"
                                  ? std::nullopt
                                  : std::optional(flags.quant_activations == "int8"),
          .head_optional = flags.head_optional};
}

engine::EngineOptions engine_options(const ModelFlags& flags, const engine::MemoryBudget& budget,
                                     const engine::SchedulerOptions& scheduler) {
  engine::EngineOptions options;
  options.scheduler = scheduler;
  options.scheduler.num_blocks = budget.num_blocks;
  options.scheduler.num_state_slots = budget.state_slots;
  options.scheduler.num_state_checkpoints = budget.state_checkpoints;
  options.scheduler.max_model_len = budget.max_model_len;
  options.lookahead = flags.lookahead;
  options.join_kernels = flags.join_kernels;
  options.replay_decodes = flags.replay_decodes;
  options.seed = flags.seed;
  options.max_waiting = flags.max_waiting;
  options.max_waiting_tokens = flags.max_waiting_tokens;
  options.kv_storage = memory_request(flags).kv_storage;
  options.ready_kv_bytes = budget.ready_kv;
  return options;
}

// The folder's name, or the file's without its ending.
std::string name_of_model(const std::string& path) {
  const std::filesystem::path name = std::filesystem::weakly_canonical(path).filename();
  return name.extension() == ".gguf" ? name.stem().string() : name.string();
}

// Whether weights are used where their files are mapped.
void print_mapped(const models::MappedWeights& mapped, size_t weights) {
  constexpr double kMiB = 1 << 20;
  if (mapped.reason.empty()) {
    std::fprintf(stderr, "files   mapped: %.1f MiB of the weights' %.1f MiB are used there\n",
                 static_cast<double>(mapped.bytes) / kMiB, static_cast<double>(weights) / kMiB);
  } else {
    std::fprintf(stderr, "files   read: the weights are a copy%s. %s\n",
                 mapped.bytes > 0 ? ", but for those of other files" : "",
                 printable(mapped.reason).c_str());
  }
}

// --quant-activations, with "auto" only where it is not "none".
std::string activations_of(const formats::HfConfig& config, const ModelFlags& flags) {
  if (flags.quant_activations != "auto") return flags.quant_activations;
  const auto folder = formats::read_folder_quantization(config);
  return folder && folder->rounds_per_token() ? "auto" : "none";
}

// What a folder's config asks for beside the weights, and what becomes of it.
void print_folder(const formats::FolderQuantization& folder, const ModelFlags& flags) {
  if (!folder.note.empty())
    std::fprintf(stderr, "weights %s: %s\n", folder.title().c_str(), folder.note.c_str());
  if (folder.rounds_per_token())
    std::fprintf(stderr, "weights %s: activations %s\n", folder.title().c_str(),
                 flags.quant_activations == "none"
                     ? "stay as they are, where the config asks for rounding them to 8 bits"
                     : "are rounded to 8 bits with a scale for each token, as the config asks");
}

// What became of a checkpoint's tensors that nobody would expect.
void print_weights(const formats::HfConfig& config, const ModelFlags& flags,
                   const models::Model& model) {
  if (const auto folder = formats::read_folder_quantization(config)) print_folder(*folder, flags);
  if (const auto mapped = model.mapped_weights()) print_mapped(*mapped, model.weight_bytes());
  if (const std::string skipped = model.skipped_tensors(); !skipped.empty())
    std::fprintf(stderr, "skipped %s: not part of text generation\n", printable(skipped).c_str());
  if (const std::string unpacked = model.unpacked_weights(); !unpacked.empty())
    std::fprintf(stderr,
                 "slower  %s: kept as dense %s, since %sq, k and v (or gate and up) are of formats "
                 "that do not go together, columns are out of order (GPTQ's desc_act), or values "
                 "are 8-bit floats with scales of their own\n",
                 printable(unpacked).c_str(), dtype_name(model.dtype()),
                 is_gpu(model.context()) ? "a GPU has no kernels for small floats, or " : "");
  if (const std::string whole = model.whole_activations(); !whole.empty())
    std::fprintf(stderr,
                 "activations stay %s where weights are neither whole numbers nor 4-bit floats, "
                 "%s; elsewhere they are rounded to 8 bits\n",
                 dtype_name(model.dtype()), whole.c_str());
}

// The bits of whole numbers that are neither 4 nor 8, "2 and 3", or nothing.
std::string other_bits(const formats::HfConfig& config) {
  std::set<int> bits;
  if (const auto mlx = formats::read_quantization_config(config)) {
    const auto add = [&](const formats::QuantisedFormat& format) {
      if (format.mode == formats::QuantMode::kAffine) bits.insert(format.bits);
    };
    add(mlx->defaults);
    for (const auto& [layer, format] : mlx->layers)
      if (format) add(*format);
  }
  if (const auto folder = formats::read_folder_quantization(config))
    for (const auto& group : folder->groups) bits.insert(group.scheme.bits);
  std::string text;
  for (const int one : bits)
    if (one != 4 && one != 8) text += (text.empty() ? "" : " and ") + std::to_string(one);
  return text;
}

// Kernels of an NVIDIA GPU and of activations of 8 bits have 4 and 8 bits only.
void print_wider_codes(const formats::HfConfig& config, const ModelFlags& flags,
                       const ops::Context& context) {
  if (!context.device->cuda() && flags.quant_activations != "int8") return;
  if (const std::string bits = other_bits(config); !bits.empty())
    std::fprintf(
        stderr, "weights of %s bits take the memory of 4 or 8: %s has no kernels for fewer\n",
        bits.c_str(), context.device->cuda() ? "an NVIDIA GPU" : "--quant-activations int8");
}

std::vector<formats::LoraAdapter> open_adapters(const ModelFlags& flags) {
  std::vector<formats::LoraAdapter> adapters;
  for (const NamedAdapter& adapter : flags.adapters)
    adapters.push_back(formats::LoraAdapter::open(adapter.path, flags.lora.max_rank));
  return adapters;
}

// PEFT's training scripts often leave these beside an adapter.
bool has_text_files(const std::string& folder) {
  std::error_code ignored;
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"})
    if (std::filesystem::exists(folder + "/" + name, ignored)) return true;
  return false;
}

std::vector<RunningAdapter> running_adapters(const ModelFlags& flags,
                                             std::span<const formats::LoraAdapter> adapters,
                                             const std::string& fingerprint_of_base) {
  std::vector<RunningAdapter> running;
  for (size_t i = 0; i < adapters.size(); ++i) {
    const NamedAdapter& named = flags.adapters[i];
    running.push_back({.name = named.name,
                       .path = named.path,
                       .fingerprint = fingerprint(fingerprint_of_base, adapters[i])});
    std::fprintf(stderr, "adapter %s (%s): rank %lld, %zu layers\n", printable(named.name).c_str(),
                 printable(named.path).c_str(), static_cast<long long>(adapters[i].rank()),
                 adapters[i].modules().size());
    if (has_text_files(named.path))
      std::fprintf(stderr,
                   "        its tokenizer and chat template are left out: the model's are used\n");
  }
  return running;
}

}  // namespace

std::shared_ptr<const text::ChatTemplate> parse_template_flag(const std::string& flag,
                                                              const std::string& value,
                                                              const text::Tokenizer& tokenizer) {
  std::string source = value;
  std::error_code ignored;
  if (std::filesystem::is_regular_file(source, ignored)) {
    source = formats::read_text_file(source, size_t{1} << 20);
  } else if (source.find('{') == std::string::npos) {
    throw LoadError(flag + ": there is no file " + source + ", and it is no template");
  }
  json::object special;
  for (const char* name : {"bos_token", "eos_token", "pad_token", "unk_token"})
    if (const auto token = tokenizer.special_token(name)) special[name] = *token;
  auto parsed = text::ChatTemplate::parse(source, dump_json(special));
  if (!parsed) throw LoadError(flag + ": " + parsed.error());
  return *parsed;
}

RunningModel start_engine(const ModelFlags& flags) {
  RunningModel model;
  const auto started = Clock::now();
  formats::Checkpoint checkpoint = formats::Checkpoint::open(flags.model);
  checkpoint.record_contents();
  engine::MemoryRequest request = memory_request(flags);
  check_length(checkpoint.config(), request);
  models::LoadOptions load = load_options(flags, request);
  const std::vector<formats::LoraAdapter> adapters = open_adapters(flags);
  load.adapters = adapters;
  const ops::Context context =
      make_compute_context(flags, models::beyond_limits(checkpoint, load, ops::cuda_limits()));
  model.profile = context.profile;
  if (!context.device->metal()) mlx::core::set_default_device(mlx::core::Device::cpu);
  model.generation_config = checkpoint.generation_config();
  model.pooling = checkpoint.pooling();
  for (const int64_t id : checkpoint.eos_token_ids())
    model.eos_token_ids.push_back(static_cast<int32_t>(id));
  request.kept_free = engine::memory_for_others(*context.device, request);
  const engine::SchedulerOptions scheduler =
      scheduler_options(flags, is_gpu(context) ? kGpuStep : kCpuStep);
  load.most_positions = engine::check_fits(
      flags.model, models::measure_model(checkpoint, load, is_gpu(context)), scheduler, request,
      engine::available_memory(*context.device) - request.kept_free, is_gpu(context));
  model.name = flags.name.empty() ? name_of_model(flags.model) : flags.name;

  auto [decoder, text] = load_both(context, checkpoint, load, [&] {
    return load_text(flags, checkpoint.text_files(), model.eos_token_ids);
  });
  model.fingerprint = fingerprint({.checkpoint = checkpoint,
                                   .context = context,
                                   .dtype = dtype_name(decoder->dtype()),
                                   .activations = activations_of(checkpoint.config(), flags),
                                   .kv_storage = request.kv_storage,
                                   .max_positions = request.max_model_len});
  std::tie(model.tokenizer, model.chat_template, model.grammars) = std::move(text);
  check_vocabulary(flags.model, model.tokenizer->vocab_size(), decoder->vocab_size());
  model.has_head = decoder->has_head();
  const engine::MemoryBudget budget = engine::plan_memory(*decoder, scheduler, request);
  engine::EngineOptions options = engine_options(flags, budget, scheduler);
  options.scheduler.eos_token_ids = model.eos_token_ids;

  std::fprintf(stderr, "model   %s (%s, %s), loaded in %.2f s%s\n", printable(model.name).c_str(),
               printable(checkpoint.config().architectures.front()).c_str(),
               dtype_name(decoder->dtype()), seconds_since(started), peak_memory().c_str());
  print_weights(checkpoint.config(), flags, *decoder);
  print_wider_codes(checkpoint.config(), flags, context);
  print_device(context);
  std::fprintf(stderr, "bits    %s%s\n", model.fingerprint.c_str(),
               context.device->metal() ? "; on Metal they depend on what else is in a step" : "");
  model.adapters = running_adapters(flags, adapters, model.fingerprint);
  std::fprintf(stderr, "memory  %s\n", budget.summary().c_str());
  model.engine = std::make_unique<engine::Engine>(std::move(decoder), std::move(options));
  return model;
}

}  // namespace quire::cli
