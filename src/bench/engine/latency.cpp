#include "bench/engine/latency.h"

#include <cstdio>

#include "bench/engine/profile_report.h"
#include "bench/stats.h"

namespace quire::bench {
namespace {

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

}  // namespace

json::object measure_latency(const BenchEngine& model, const LatencyOptions& options) {
  const auto requests = random_requests(options.batch_size, options.input_len, options.output_len,
                                        model.engine.vocab_size(), options.seed);
  check_lengths(model.engine, requests);
  for (int64_t i = 0; i < options.num_iters_warmup; ++i) run_offline(model.engine, requests);
  if (model.profile) model.profile->take();
  std::vector<double> latencies;
  for (int64_t i = 0; i < options.num_iters; ++i)
    latencies.push_back(run_offline(model.engine, requests).seconds);
  json::object result = report(latencies);
  add_device(model.engine, result);
  if (model.profile) {
    const StepProfiles profiles = model.profile->take();
    print_profile(stdout, profiles);
    result["profile"] = profile_json(profiles);
  }
  return result;
}

}  // namespace quire::bench
