#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "cli/bench.h"
#include "cli/bench_offline.h"
#include "cli/bench_stats.h"

namespace quire::cli {
namespace {

struct AblationFlags {
  ModelFlags model;
  int64_t input_len = 512, output_len = 129;
  int64_t concurrency = 8, rounds = 3;
  std::string output_json;
};

// One design decision switched off, and where it is one: on a GPU MLX launches nothing, and only a
// GPU records steps.
enum class On { kAll, kCpu, kGpu };
struct Variant {
  const char* name;
  const char* meaning;
  void (*apply)(ModelFlags& flags);
  On on = On::kAll;
};

constexpr Variant kVariants[] = {
    {"usual", "nothing is switched off", [](ModelFlags&) {}},
    {"node by node", "MLX launches each kernel, not one node for all kernels of a step",
     [](ModelFlags& flags) { flags.join_kernels = false; }, On::kCpu},
    {"eval per layer", "each layer is waited for instead of one graph for the whole step",
     [](ModelFlags& flags) { flags.ablation.eval_per_layer = true; }, On::kCpu},
    {"kernel by kernel", "decode steps are launched anew, not replayed as they were recorded",
     [](ModelFlags& flags) { flags.replay_decodes = false; }, On::kGpu},
    {"no lookahead", "a step is launched after the tokens of the one before were read",
     [](ModelFlags& flags) { flags.lookahead = false; }},
    {"project all rows", "every token meets the vocabulary, not only sampled ones",
     [](ModelFlags& flags) { flags.ablation.project_all_rows = true; }},
};

// Tokens per second; none where a run was too short to tell.
struct Rates {
  std::optional<double> prefill, decode, decode_many;
};

struct Measured {
  const Variant* variant;
  RunningModel model;
  std::vector<Rates> rounds;
};

Rates measure(const AblationFlags& flags, RunningModel& model, uint64_t seed) {
  const auto run = [&](int64_t count) {
    return run_offline(*model.engine, random_requests(count, flags.input_len, flags.output_len,
                                                      model.engine->vocab_size(), seed++));
  };
  const OfflineResult one = run(1), many = run(flags.concurrency);
  return {.prefill = static_cast<double>(one.prompt_tokens) / one.all_started,
          .decode = one.decode_rate,
          .decode_many = many.decode_rate};
}

// The median rate, and the median of what each round says beside the usual way; none if any round
// was too short.
void print_figure(const std::vector<Measured>& all, const Measured& one,
                  std::optional<double> Rates::* rate, json::object& row, const char* key) {
  std::vector<double> rates, ratios;
  for (size_t r = 0; r < one.rounds.size(); ++r) {
    const auto &own = one.rounds[r].*rate, &usual = all.front().rounds[r].*rate;
    if (!own || !usual) break;
    rates.push_back(*own);
    ratios.push_back(*own / *usual);
  }
  std::optional<double> median, ratio;
  if (rates.size() == one.rounds.size()) {
    median = percentile(rates, 50);
    ratio = percentile(ratios, 50);
  }
  std::printf(" %12s", rate_text(median).c_str());
  ratio ? std::printf(" %6.3f", *ratio) : std::printf(" %6s", "");
  row[std::string(key) + "_tokens_per_second"] = json::value_from(median);
  row[std::string(key) + "_ratio"] = json::value_from(ratio);
}

bool is_too_short(const std::vector<Measured>& all) {
  for (const Measured& one : all)
    for (const Rates& rates : one.rounds)
      if (!rates.decode || !rates.decode_many) return true;
  return false;
}

json::array report(const AblationFlags& flags, const std::vector<Measured>& all) {
  const std::string many = std::to_string(flags.concurrency) + " streams";
  std::printf("%-17s %12s %6s %12s %6s %12s %6s\n", "tokens a second", "prefill", "ratio",
              "1 stream", "ratio", many.c_str(), "ratio");
  json::array rows;
  for (const Measured& one : all) {
    json::object row{{"variant", one.variant->name}, {"meaning", one.variant->meaning}};
    add_device(one.model, row);
    std::printf("%-17s", one.variant->name);
    print_figure(all, one, &Rates::prefill, row, "prefill");
    print_figure(all, one, &Rates::decode, row, "decode");
    print_figure(all, one, &Rates::decode_many, row, "decode_many");
    std::printf("\n");
    rows.emplace_back(std::move(row));
  }
  if (is_too_short(all)) std::printf("%s\n", kTooShortMeans);
  for (const Measured& one : all) std::printf("%s: %s\n", one.variant->name, one.variant->meaning);
  return rows;
}

int ablations(AblationFlags flags) {
  flags.model.least_num_seqs = flags.concurrency;
  // All variants are in memory at once, so that they can take turns.
  if (flags.model.kv_cache_memory.empty() && flags.model.num_blocks == 0)
    flags.model.kv_cache_memory = "1GiB";
  std::vector<Measured> all;
  for (const Variant& variant : kVariants) {
    ModelFlags model = flags.model;
    if (!all.empty()) model.device = all.front().model.engine->stats().device;  // all on the same
    if (!all.empty() && variant.on == (model.device == "cpu" ? On::kGpu : On::kCpu)) continue;
    variant.apply(model);
    all.push_back({.variant = &variant, .model = start_engine(model), .rounds = {}});
  }
  check_lengths(*all.front().model.engine,
                random_requests(1, flags.input_len, flags.output_len, 1, 0));
  for (Measured& one : all) measure(flags, one.model, ~flags.model.seed);  // memory is touched
  for (int64_t r = 0; r < flags.rounds; ++r)
    for (Measured& one : all)
      one.rounds.push_back(
          measure(flags, one.model, flags.model.seed + 2 * static_cast<uint64_t>(r)));
  const json::array rows = report(flags, all);
  if (!flags.output_json.empty()) write_text(flags.output_json, dump_json(rows), "--output-json");
  return 0;
}

}  // namespace

void add_bench_ablations(CLI::App& bench, int& status) {
  auto flags = std::make_shared<AblationFlags>();
  flags->model.prefix_caching = false;
  CLI::App* command = bench.add_subcommand(
      "ablations",
      "What single design decisions gain: the engine with one of them switched off beside the "
      "usual engine, in turns. The tokens stay the same. Loads the model several times");
  add_model_flags(*command, flags->model);
  add_queue_flags(*command, flags->model);
  const auto count = [&](const char* name, int64_t& value, int low, const char* help) {
    command->add_option(name, value, help)->check(CLI::Range(low, 1 << 20))->capture_default_str();
  };
  count("--input-len", flags->input_len, 1, "Tokens in a prompt");
  count("--output-len", flags->output_len, 2, "Tokens to produce");
  count("--concurrency", flags->concurrency, 1, "Requests at once, beside one alone");
  count("--rounds", flags->rounds, 1, "Turns of each; medians are printed");
  command->add_option("--output-json", flags->output_json, "Also write the figures to this file");
  command->callback([flags, &status] { status = ablations(*flags); });
}

}  // namespace quire::cli
