#include <cstdio>

#include "base/clock.h"
#include "base/json.h"
#include "cli/bench.h"
#include "cli/bench_offline.h"
#include "cli/bench_stats.h"
#include "cli/profile_report.h"

namespace quire::cli {
namespace {

// vLLM's names and defaults.
struct LatencyFlags {
  ModelFlags model;
  int64_t input_len = 32, output_len = 128, batch_size = 8;
  int64_t num_iters = 30, num_iters_warmup = 10;
  std::string output_json;
};

constexpr int kPercents[] = {10, 25, 50, 75, 90, 99};

json::object report(const std::vector<double>& latencies) {
  std::printf("Avg latency: %.6f seconds\n", mean(latencies));
  json::object percentiles;
  for (const int percent : kPercents) {
    const double value = percentile(latencies, percent);
    std::printf("%d%% percentile latency: %.6f seconds\n", percent, value);
    percentiles[std::to_string(percent)] = value;
  }
  std::fflush(stdout);
  return {{"avg_latency", mean(latencies)},
          {"latencies", json::value_from(latencies)},
          {"percentiles", std::move(percentiles)}};
}

int latency(LatencyFlags flags) {
  flags.model.least_num_seqs = flags.batch_size;
  RunningModel model = start_engine(flags.model);
  const auto requests = random_requests(flags.batch_size, flags.input_len, flags.output_len,
                                        model.engine->vocab_size(), flags.model.seed);
  check_lengths(*model.engine, requests);
  for (int64_t i = 0; i < flags.num_iters_warmup; ++i) run_offline(*model.engine, requests);
  if (model.profile) model.profile->take();
  std::vector<double> latencies;
  for (int64_t i = 0; i < flags.num_iters; ++i)
    latencies.push_back(run_offline(*model.engine, requests).seconds);
  json::object result = report(latencies);
  add_device(model, result);
  if (model.profile) {
    const StepProfiles profiles = model.profile->take();
    print_profile(stdout, profiles);
    result["profile"] = profile_json(profiles);
  }
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
  count("--input-len", flags->input_len, 1, "Tokens in a prompt");
  count("--output-len", flags->output_len, 1, "Tokens to produce");
  count("--batch-size", flags->batch_size, 1, "Requests at once");
  count("--num-iters", flags->num_iters, 1, "Batches that count");
  count("--num-iters-warmup", flags->num_iters_warmup, 0, "Batches before them");
  command->add_option("--output-json", flags->output_json, "Also write the figures to this file");
  command->callback([flags, &status] { status = latency(*flags); });
}

}  // namespace quire::cli
