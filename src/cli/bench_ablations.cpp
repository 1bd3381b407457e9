#include <string_view>

#include "base/error.h"
#include "bench/engine/ablations.h"
#include "bench/ops/comparisons.h"
#include "cli/bench.h"
#include "cli/compute_context.h"
#include "cli/start_engine.h"

namespace quire::cli {
namespace {

struct AblationFlags {
  ModelFlags model;
  bench::AblationOptions measure;
  bool kernels = true;
  std::string output_json;
};

// One design decision switched off, and on which devices it is one: on an NVIDIA GPU MLX launches
// nothing, and only such a GPU records steps.
struct Variant {
  const char* name;
  const char* meaning;
  void (*apply)(ModelFlags& flags);
  std::string_view devices = "cpu cuda metal";

  bool is_on(const std::string& device) const { return devices.find(device) != devices.npos; }
};

constexpr Variant kVariants[] = {
    {"usual", "nothing is switched off", [](ModelFlags&) {}},
    {"node by node", "MLX launches each kernel, not one node for all kernels of a step",
     [](ModelFlags& flags) { flags.join_kernels = false; }, "cpu"},
    {"eval per layer", "each layer is waited for instead of one graph for the whole step",
     [](ModelFlags& flags) { flags.ablation.eval_per_layer = true; }, "cpu metal"},
    {"kernel by kernel", "decode steps are launched anew, not replayed as they were recorded",
     [](ModelFlags& flags) { flags.replay_decodes = false; }, "cuda"},
    {"no lookahead", "a step is launched after the tokens of the one before were read",
     [](ModelFlags& flags) { flags.lookahead = false; }},
    {"project all rows", "every token meets the vocabulary, not only sampled ones",
     [](ModelFlags& flags) { flags.ablation.project_all_rows = true; }},
    {"gathered pages", "MLX attends to keys and values copied from their pages, no paged kernel",
     [](ModelFlags& flags) { flags.metal_ways.gathers_pages = true; }, "metal"},
    {"delta rule in turn", "the gated delta rule takes a node for each request, not one for all",
     [](ModelFlags& flags) { flags.metal_ways.delta_rule_in_turn = true; }, "metal"},
};

json::array compare_engines(AblationFlags flags) {
  find_model_folder(flags.model);
  flags.model.least_num_seqs = flags.measure.concurrency;
  flags.measure.seed = flags.model.seed;
  // All variants are in memory at once, so that they can take turns.
  if (flags.model.kv_cache_memory.empty() && flags.model.num_blocks == 0)
    flags.model.kv_cache_memory = "1GiB";
  std::vector<RunningModel> models;
  std::vector<bench::AblationVariant> variants;
  for (const Variant& variant : kVariants) {
    ModelFlags model = flags.model;
    if (!models.empty()) model.device = models.front().engine->stats().device;  // all on the same
    if (!models.empty() && !variant.is_on(model.device)) continue;
    variant.apply(model);
    models.push_back(start_engine(model));
    variants.push_back({variant.name, variant.meaning, *models.back().engine});
  }
  return run_ablations(variants, flags.measure);
}

int ablations(const AblationFlags& flags) {
  json::object figures;
  if (flags.kernels) {
    limit_instruction_set();
    figures["kernels"] =
        bench::compare_ways({.threads = flags.model.threads, .rounds = flags.measure.rounds});
  }
  if (!flags.model.model.empty()) figures["engine"] = compare_engines(flags);
  if (figures.empty()) throw LoadError("--no-kernels: without a model there is nothing to compare");
  if (!flags.output_json.empty())
    write_text(flags.output_json, dump_json(figures), "--output-json");
  return 0;
}

}  // namespace

void add_bench_ablations(CLI::App& bench, int& status) {
  auto flags = std::make_shared<AblationFlags>();
  flags->model.prefix_caching = false;
  CLI::App* command = bench.add_subcommand(
      "ablations",
      "What single design decisions gain. First the CPU's kernels, called otherwise; then, if a "
      "model is given, the engine with one decision switched off beside the usual engine, in "
      "turns. The tokens stay the same. Loads the model several times");
  add_model_flags(*command, flags->model);
  add_queue_flags(*command, flags->model);
  command->get_option("model")->required(false);
  command->add_flag("!--no-kernels", flags->kernels, "The engine alone");
  const auto count = [&](const char* name, int64_t& value, int low, const char* help) {
    command->add_option(name, value, help)->check(CLI::Range(low, 1 << 20))->capture_default_str();
  };
  count("--input-len", flags->measure.input_len, 1, "Tokens in a prompt");
  count("--output-len", flags->measure.output_len, 2, "Tokens to produce");
  count("--concurrency", flags->measure.concurrency, 1, "Requests at once, beside one alone");
  count("--rounds", flags->measure.rounds, 1, "Turns of each; medians are printed");
  command->add_option("--output-json", flags->output_json, "Also write the figures to this file");
  command->callback([flags, &status] { status = ablations(*flags); });
}

}  // namespace quire::cli
