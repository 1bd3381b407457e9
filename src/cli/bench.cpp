#include <algorithm>
#include <cstdio>
#include <random>

#include "base/error.h"
#include "base/json.h"
#include "cli/commands.h"
#include "cli/profile_report.h"
#include "cli/start_engine.h"
#include "cli/token_queue.h"

namespace quire::cli {
namespace {

struct ThroughputFlags {
  ModelFlags model;
  int64_t input_len = 512, output_len = 128;
  std::vector<int64_t> concurrency = {1, 8, 32};
  std::string output_json;
};

struct ThroughputResult {
  int64_t concurrency = 0;
  double seconds = 0;       // of the whole run
  double prefill_rate = 0;  // prompt tokens per second until every request has its first token
  double decode_rate = 0;   // produced tokens per second after that
  double output_rate = 0;   // produced tokens per second of the whole run
};

// `concurrency` random prompts at once; each produces output_len tokens whatever they are.
ThroughputResult measure(engine::Engine& engine, const ThroughputFlags& flags, int64_t concurrency,
                         uint64_t seed) {
  std::mt19937_64 random(seed);
  TokenQueue queue;
  std::vector<engine::Request> requests(static_cast<size_t>(concurrency));
  for (auto& request : requests) {
    for (int64_t i = 0; i < flags.input_len; ++i)
      request.prompt.push_back(
          static_cast<int32_t>(random() % static_cast<uint64_t>(engine.vocab_size())));
    request.sampling.temperature = 0.0f;
    request.sampling.max_tokens = flags.output_len;
    request.sampling.ignore_eos = true;
    request.sink = queue.sink();
  }
  const TimePoint start = Clock::now();
  const auto ids = engine.submit_all(std::move(requests));
  if (!ids) throw LoadError("bench: " + ids.error().message);
  TimePoint all_started = start;
  int64_t produced = 0, produced_before = 0, finished = 0, begun = 0;
  while (finished < concurrency) {
    const engine::TokenEvent event = queue.wait();
    produced += static_cast<int64_t>(event.tokens.size());
    if (!event.error.empty()) throw LoadError("bench: a request failed: " + event.error);
    if (event.stats.output_tokens == 1 && ++begun == concurrency) {
      all_started = Clock::now();
      produced_before = produced;
    }
    if (event.finish) ++finished;
  }
  const TimePoint end = Clock::now();
  ThroughputResult result{.concurrency = concurrency};
  result.seconds = seconds_between(start, end);
  result.prefill_rate =
      static_cast<double>(concurrency * flags.input_len) / seconds_between(start, all_started);
  result.decode_rate =
      static_cast<double>(produced - produced_before) / seconds_between(all_started, end);
  result.output_rate = static_cast<double>(produced) / result.seconds;
  return result;
}

int throughput(ThroughputFlags flags) {
  flags.model.prefix_caching = false;
  flags.model.max_num_seqs =
      std::max(flags.model.max_num_seqs,
               *std::max_element(flags.concurrency.begin(), flags.concurrency.end()));
  RunningModel model = start_engine(flags.model);
  const int64_t length = flags.input_len + flags.output_len;
  if (length > model.engine->max_model_len())
    throw LoadError("--input-len + --output-len is " + std::to_string(length) +
                    ", over the model's " + std::to_string(model.engine->max_model_len()));
  ThroughputFlags warm_up = flags;
  warm_up.output_len = std::min<int64_t>(flags.output_len, 8);
  measure(*model.engine, warm_up, 1, 0);
  if (model.profile) model.profile->take();
  std::printf("%11s %9s %15s %14s %17s\n", "concurrency", "seconds", "prefill tok/s",
              "decode tok/s", "output tok/s");
  json::array rows;
  for (const int64_t concurrency : flags.concurrency) {
    const ThroughputResult r =
        measure(*model.engine, flags, concurrency, static_cast<uint64_t>(concurrency));
    std::printf("%11lld %9.2f %15.1f %14.1f %17.1f\n", static_cast<long long>(r.concurrency),
                r.seconds, r.prefill_rate, r.decode_rate, r.output_rate);
    std::fflush(stdout);
    if (model.profile) print_profile(stdout, model.profile->take());
    rows.emplace_back(json::object{{"concurrency", r.concurrency},
                                   {"input_len", flags.input_len},
                                   {"output_len", flags.output_len},
                                   {"elapsed_time", r.seconds},
                                   {"prefill_tokens_per_second", r.prefill_rate},
                                   {"decode_tokens_per_second", r.decode_rate},
                                   {"output_tokens_per_second", r.output_rate}});
  }
  if (!flags.output_json.empty()) {
    FILE* file = std::fopen(flags.output_json.c_str(), "w");
    if (!file) throw LoadError("--output-json: cannot write " + flags.output_json);
    std::fprintf(file, "%s\n", dump_json(rows).c_str());
    std::fclose(file);
  }
  return 0;
}

}  // namespace

void add_bench(CLI::App& app, int& status) {
  CLI::App* bench = app.add_subcommand("bench", "Measure this machine")->require_subcommand(1);
  auto flags = std::make_shared<ThroughputFlags>();
  CLI::App* command = bench->add_subcommand(
      "throughput", "Offline: random prompts straight into the engine, prefill and decode apart");
  add_model_flags(*command, flags->model);
  add_profile_flag(*command, flags->model.profile);
  command->add_option("--input-len", flags->input_len, "Tokens in a prompt")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command->add_option("--output-len", flags->output_len, "Tokens to produce")
      ->check(CLI::Range(2, 1 << 20))
      ->capture_default_str();
  command->add_option("--concurrency", flags->concurrency, "Requests at once, one run each")
      ->delimiter(',')
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command->add_option("--output-json", flags->output_json, "Also write the figures to this file");
  command->callback([flags, &status] { status = throughput(*flags); });
}

}  // namespace quire::cli
