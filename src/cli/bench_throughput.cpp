#include <algorithm>

#include "bench/engine/throughput.h"
#include "cli/bench.h"
#include "cli/start_engine.h"

namespace quire::cli {
namespace {

struct ThroughputFlags {
  ModelFlags model;
  bench::DatasetOptions dataset;
  bench::SweepOptions sweep;  // lengths and seed are those above
  std::string output_json;
  bool whole_dataset = false;  // --num-prompts: all requests at once, one figure
};

json::value measure(ThroughputFlags& flags, const RunningModel& model) {
  if (flags.whole_dataset) {
    flags.dataset.seed = flags.model.seed;
    return run_dataset(model.measured(), make_dataset(*model.tokenizer, flags.dataset),
                       flags.model.seed);
  }
  flags.sweep.input_len = flags.dataset.random_input_len;
  flags.sweep.output_len = flags.dataset.random_output_len;
  flags.sweep.seed = flags.model.seed;
  return sweep_concurrency(model.measured(), flags.sweep);
}

int throughput(ThroughputFlags flags) {
  if (flags.whole_dataset) {
    flags.model.max_waiting = std::max(flags.model.max_waiting, flags.dataset.num_prompts);
  } else {
    flags.model.least_num_seqs =
        *std::max_element(flags.sweep.concurrency.begin(), flags.sweep.concurrency.end());
  }
  find_model_folder(flags.model);
  const RunningModel model = start_engine(flags.model);
  const json::value figures = measure(flags, model);
  if (!flags.output_json.empty())
    write_text(flags.output_json, dump_json(figures), "--output-json");
  return 0;
}

// Each switches one design decision off, to measure what it gains. The tokens stay the same.
void add_ablation_flags(CLI::App& command, ModelFlags& flags) {
  models::AblationOptions& ablation = flags.ablation;
  const char* group = "Ablations (slower ways to the same tokens)";
  command
      .add_flag("--eval-per-layer", ablation.eval_per_layer,
                "Wait for each layer instead of building one graph for the whole step")
      ->group(group);
  command
      .add_flag("--project-all-rows", ablation.project_all_rows,
                "Project every token to the vocabulary, not only sampled ones")
      ->group(group);
  command
      .add_flag("--gather-pages", flags.metal_ways.gathers_pages,
                "Metal: MLX's attention over keys and values gathered from their pages")
      ->group(group);
  command
      .add_flag("--delta-rule-in-turn", flags.metal_ways.delta_rule_in_turn,
                "Metal: the gated delta rule for one request after the other")
      ->group(group);
}

}  // namespace

void add_bench_throughput(CLI::App& bench, int& status) {
  auto flags = std::make_shared<ThroughputFlags>();
  flags->model.prefix_caching = false;
  flags->dataset.random_input_len = 512;
  CLI::App* command = bench.add_subcommand(
      "throughput",
      "Offline: prompts straight into the engine. Without --num-prompts random ones, for each "
      "--concurrency, prefill and decode apart; with it a data set, all requests at once. The "
      "prefix cache is off unless --enable-prefix-caching is given");
  add_model_flags(*command, flags->model);
  add_queue_flags(*command, flags->model);
  add_profile_flag(*command, flags->model.profile);
  add_dataset_flags(*command, flags->dataset);
  CLI::Option* num_prompts = command->get_option("--num-prompts");
  for (const char* name : {"--dataset-name", "--dataset-path", "--random-prefix-len",
                           "--random-range-ratio", "--prefix-repetition-prefix-len",
                           "--prefix-repetition-suffix-len", "--prefix-repetition-num-prefixes",
                           "--prefix-repetition-output-len", "--sharegpt-output-len"})
    command->get_option(name)->needs(num_prompts);
  command->add_option("--concurrency", flags->sweep.concurrency, "Requests at once, one run each")
      ->delimiter(',')
      ->check(CLI::Range(1, 4096))
      ->excludes(num_prompts)
      ->capture_default_str();
  command->add_option("--output-json", flags->output_json, "Also write the figures to this file");
  add_ablation_flags(*command, flags->model);
  command->callback([flags, command, &status] {
    flags->whole_dataset = command->count("--num-prompts") > 0;
    status = throughput(*flags);
  });
}

}  // namespace quire::cli
