#include "bench/engine/throughput.h"

#include <algorithm>
#include <cstdio>

#include "bench/engine/profile_report.h"

namespace quire::bench {
namespace {

// Prints what --profile measured, and adds it to the figures.
void report_profile(const BenchEngine& model, json::object& figures) {
  if (!model.profile) return;
  const StepProfiles profiles = model.profile->take();
  print_profile(stdout, profiles);
  figures["profile"] = profile_json(profiles);
}

// What the device says about the decode steps that it had recorded, since `before`.
void report_replays(const engine::EngineStats& before, const engine::EngineStats& after,
                    json::object& figures) {
  const int64_t steps = after.replayed_steps - before.replayed_steps;
  const ops::DeviceCounters &then = before.device_counters, &now = after.device_counters;
  const auto each = [](double seconds, int64_t count) {
    return count > 0 ? 1e6 * seconds / static_cast<double>(count) : 0.0;
  };
  if (steps == 0) return;
  const double busy = each(now.busy_seconds - then.busy_seconds, now.replays - then.replays);
  const double idle = each(now.idle_seconds - then.idle_seconds, now.successors - then.successors);
  const double host = each(after.replay_host_seconds - before.replay_host_seconds,
                           after.steady_replays - before.steady_replays);
  const double host_cpu = each(after.replay_host_cpu_seconds - before.replay_host_cpu_seconds,
                               after.steady_replays - before.steady_replays);
  const int64_t allocations = now.allocations - then.allocations;
  std::printf(
      "%11s %lld recorded steps, us each: device %.1f, idle before it %.1f, host %.1f (CPU %.1f); "
      "%lld allocations\n",
      "", static_cast<long long>(steps), busy, idle, host, host_cpu,
      static_cast<long long>(allocations));
  figures["recorded_steps"] =
      json::object{{"steps", steps},  {"device_us", busy},       {"idle_us", idle},
                   {"host_us", host}, {"host_cpu_us", host_cpu}, {"allocations", allocations}};
}

}  // namespace

json::value sweep_concurrency(const BenchEngine& model, const SweepOptions& options) {
  std::printf("%11s %9s %15s %14s %17s\n", "concurrency", "seconds", "prefill tok/s",
              "decode tok/s", "output tok/s");
  json::array rows;
  bool too_short = false;
  const int64_t input_len = options.input_len, output_len = options.output_len;
  check_lengths(model.engine, random_requests(1, input_len, output_len, 1, 0));
  for (const int64_t concurrency : options.concurrency) {
    const uint64_t seed = options.seed + static_cast<uint64_t>(concurrency);
    // First the same shape with other tokens: the memory that it takes is then touched.
    run_offline(model.engine,
                random_requests(concurrency, input_len, std::min<int64_t>(output_len, 4),
                                model.engine.vocab_size(), ~seed));
    if (model.profile) model.profile->take();
    const auto requests =
        random_requests(concurrency, input_len, output_len, model.engine.vocab_size(), seed);
    const engine::EngineStats before = model.engine.stats();
    const OfflineResult result = run_offline(model.engine, requests);
    // Of prompts, until every request has its first token; while all decode; over the whole run.
    const double prefill = static_cast<double>(result.prompt_tokens) / result.all_started;
    const std::string decode = rate_text(result.decode_rate);
    const double output = static_cast<double>(result.output_tokens) / result.seconds;
    std::printf("%11lld %9.2f %15.1f %14s %17.1f\n", static_cast<long long>(concurrency),
                result.seconds, prefill, decode.c_str(), output);
    too_short = too_short || !result.decode_rate;
    std::fflush(stdout);
    json::object row{{"concurrency", concurrency},
                     {"input_len", input_len},
                     {"output_len", output_len},
                     {"elapsed_time", result.seconds},
                     {"prefill_tokens_per_second", prefill},
                     {"decode_tokens_per_second", json::value_from(result.decode_rate)},
                     {"output_tokens_per_second", output}};
    add_device(model.engine, row);
    report_replays(before, model.engine.stats(), row);
    report_profile(model, row);
    rows.emplace_back(std::move(row));
  }
  if (too_short) std::printf("%s\n", kTooShortMeans);
  return rows;
}

json::value run_dataset(const BenchEngine& model, std::vector<Prompt> prompts,
                        uint64_t warmup_seed) {
  std::vector<OfflineRequest> requests;
  for (Prompt& prompt : prompts)
    requests.push_back({.prompt = std::move(prompt.ids), .output_len = prompt.output_len});
  check_lengths(model.engine, requests);
  run_offline(model.engine,  // warm-up: memory is touched, threads run
              random_requests(1, std::min<int64_t>(512, model.engine.max_model_len() - 8), 8,
                              model.engine.vocab_size(), warmup_seed));
  if (model.profile) model.profile->take();
  const OfflineResult r = run_offline(model.engine, requests);
  const auto count = static_cast<double>(requests.size());
  const int64_t total = r.prompt_tokens + r.output_tokens;
  const double total_rate = static_cast<double>(total) / r.seconds;
  std::printf(
      "Throughput: %.2f requests/s, %.2f total tokens/s, %.2f output tokens/s\n"
      "Total num prompt tokens:  %lld\nTotal num output tokens:  %lld\n",
      count / r.seconds, total_rate, static_cast<double>(r.output_tokens) / r.seconds,
      static_cast<long long>(r.prompt_tokens), static_cast<long long>(r.output_tokens));
  std::fflush(stdout);
  json::object figures{{"elapsed_time", r.seconds},
                       {"num_requests", requests.size()},
                       {"total_num_tokens", total},
                       {"requests_per_second", count / r.seconds},
                       {"tokens_per_second", total_rate},
                       {"total_input_tokens", r.prompt_tokens},
                       {"total_output_tokens", r.output_tokens}};
  add_device(model.engine, figures);
  report_profile(model, figures);
  return figures;
}

}  // namespace quire::bench
