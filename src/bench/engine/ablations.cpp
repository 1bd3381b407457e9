#include "bench/engine/ablations.h"

#include <cstdio>

#include "bench/engine/offline.h"
#include "bench/stats.h"

namespace quire::bench {
namespace {

// Tokens per second; none where a run was too short to tell.
struct Rates {
  std::optional<double> prefill, decode, decode_many;
};

struct Measured {
  AblationVariant variant;
  std::vector<Rates> rounds = {};
};

Rates measure(const AblationOptions& options, engine::Engine& engine, uint64_t seed) {
  const auto run = [&](int64_t count) {
    return run_offline(engine, random_requests(count, options.input_len, options.output_len,
                                               engine.vocab_size(), seed++));
  };
  const OfflineResult one = run(1), many = run(options.concurrency);
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

json::array report(const AblationOptions& options, const std::vector<Measured>& all) {
  const std::string many = std::to_string(options.concurrency) + " streams";
  std::printf("%-17s %12s %6s %12s %6s %12s %6s\n", "tokens a second", "prefill", "ratio",
              "1 stream", "ratio", many.c_str(), "ratio");
  json::array rows;
  for (const Measured& one : all) {
    json::object row{{"variant", one.variant.name}, {"meaning", one.variant.meaning}};
    add_device(one.variant.engine, row);
    std::printf("%-17s", one.variant.name);
    print_figure(all, one, &Rates::prefill, row, "prefill");
    print_figure(all, one, &Rates::decode, row, "decode");
    print_figure(all, one, &Rates::decode_many, row, "decode_many");
    std::printf("\n");
    rows.emplace_back(std::move(row));
  }
  if (is_too_short(all)) std::printf("%s\n", kTooShortMeans);
  for (const Measured& one : all) std::printf("%s: %s\n", one.variant.name, one.variant.meaning);
  return rows;
}

}  // namespace

json::array run_ablations(const std::vector<AblationVariant>& variants,
                          const AblationOptions& options) {
  std::vector<Measured> all;
  for (const AblationVariant& variant : variants) all.push_back({variant});
  check_lengths(all.front().variant.engine,
                random_requests(1, options.input_len, options.output_len, 1, 0));
  for (Measured& one : all)
    measure(options, one.variant.engine, ~options.seed);  // memory is touched
  for (int64_t r = 0; r < options.rounds; ++r)
    for (const size_t turn : turn_order(all.size(), r))
      all[turn].rounds.push_back(
          measure(options, all[turn].variant.engine, options.seed + 2 * static_cast<uint64_t>(r)));
  return report(options, all);
}

}  // namespace quire::bench
