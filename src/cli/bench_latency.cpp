#include "bench/engine/latency.h"
#include "cli/bench.h"
#include "cli/start_engine.h"

namespace quire::cli {
namespace {

struct LatencyFlags {
  ModelFlags model;
  bench::LatencyOptions measure;
  std::string output_json;
};

int latency(LatencyFlags flags) {
  find_model_folder(flags.model);
  flags.model.least_num_seqs = flags.measure.batch_size;
  flags.measure.seed = flags.model.seed;
  const RunningModel model = start_engine(flags.model);
  const json::object result = measure_latency(model.measured(), flags.measure);
  if (!flags.output_json.empty()) write_text(flags.output_json, dump_json(result), "--output-json");
  return 0;
}

}  // namespace

void add_bench_latency(CLI::App& bench, int& status) {
  auto flags = std::make_shared<LatencyFlags>();
  // The same prompts come again each time: a cache would hide their prefill.
  flags->model.prefix_caching = false;
  CLI::App* command = bench.add_subcommand(
      "latency", "Offline: how long one batch takes, from its submission to its last token");
  add_model_flags(*command, flags->model);
  add_queue_flags(*command, flags->model);
  add_profile_flag(*command, flags->model.profile);
  const auto count = [&](const char* name, int64_t& value, int low, const char* help) {
    command->add_option(name, value, help)->check(CLI::Range(low, 1 << 20))->capture_default_str();
  };
  count("--input-len", flags->measure.input_len, 1, "Tokens in a prompt");
  count("--output-len", flags->measure.output_len, 1, "Tokens to produce");
  count("--batch-size", flags->measure.batch_size, 1, "Requests at once");
  count("--num-iters", flags->measure.num_iters, 1, "Batches that count");
  count("--num-iters-warmup", flags->measure.num_iters_warmup, 0, "Batches before them");
  command->add_option("--output-json", flags->output_json, "Also write the figures to this file");
  command->callback([flags, &status] { status = latency(*flags); });
}

}  // namespace quire::cli
