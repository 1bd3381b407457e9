#include "bench/serve/replay_report.h"

#include <cstdio>

#include "base/printable.h"
#include "bench/stats.h"

namespace quire::bench {
namespace {

// What differs from the answer of a server that had nothing in its cache; empty if nothing does.
std::string difference(const LoadRecord& warm, const LoadRecord& cold) {
  if (!warm.ok) return "failed: " + warm.error;
  if (!cold.ok) return "failed when it was cold: " + cold.error;
  if (cold.cached_len > 0) {
    return "the cold run found " + std::to_string(cold.cached_len) +
           " tokens in a cache: this server does not keep prompts apart by `cache_salt`; give the "
           "address of one without a prefix cache (--cold-url)";
  }
  if (warm.answer == cold.answer && warm.output_len == cold.output_len) return "";
  if (warm.answer.logprobs != cold.answer.logprobs && warm.answer.content == cold.answer.content)
    return "other log-probabilities than cold";
  const auto shown = [](const StreamedAnswer& answer) {
    return "\"" + (answer.reasoning + answer.content + answer.calls).substr(0, 200) + "\" (" +
           answer.finish + ")";
  };
  return "the answer is " + shown(warm.answer) + ", cold it is " + shown(cold.answer);
}

}  // namespace

void print_turn_head() {
  std::printf("%5s  %-12s %-21s %11s %9s %9s %8s\n", "turn", "agent", "endpoint", "TTFT (ms)",
              "prompt", "cached", "output");
}

void print_turn(size_t index, const ReplayTurn& turn, const LoadRecord& record) {
  std::printf("%5zu  %-12s %-21s ", index + 1, printable(turn.agent, 12).c_str(),
              turn.path.c_str());
  if (record.ok) {
    std::printf(
        "%11.1f %9lld %9lld %8lld\n", record.ttft * 1e3, static_cast<long long>(record.prompt_len),
        static_cast<long long>(record.cached_len), static_cast<long long>(record.output_len));
  } else {
    std::printf("failed: %s\n", printable(record.error, 300).c_str());
  }
  std::fflush(stdout);
}

json::object summarise(const std::vector<LoadRecord>& records, double seconds) {
  int64_t prompt = 0, cached = 0, output = 0, failed = 0;
  std::vector<double> first;
  for (const LoadRecord& record : records) {
    failed += record.ok ? 0 : 1;
    if (!record.ok) continue;
    prompt += record.prompt_len;
    cached += record.cached_len;
    output += record.output_len;
    first.push_back(record.ttft * 1e3);
  }
  return {{"turns", records.size()},
          {"failed", failed},
          {"duration", seconds},
          {"prompt_tokens", prompt},
          {"cached_tokens", cached},
          {"output_tokens", output},
          {"cache_hit_rate",
           prompt > 0 ? static_cast<double>(cached) / static_cast<double>(prompt) : 0.0},
          {"mean_ttft_ms", mean(first)},
          {"median_ttft_ms", percentile(first, 50)},
          {"p99_ttft_ms", percentile(first, 99)}};
}

void print_summary(const json::object& figures) {
  const auto integer = [&](const char* title, const char* key) {
    std::printf("%-30s %12lld\n", title, figures.at(key).to_number<long long>());
  };
  const auto real = [&](const char* title, const char* key, double scale) {
    std::printf("%-30s %12.2f\n", title, figures.at(key).to_number<double>() * scale);
  };
  std::printf("\n");
  integer("Turns:", "turns");
  integer("Failed turns:", "failed");
  real("Duration (s):", "duration", 1);
  integer("Prompt tokens:", "prompt_tokens");
  integer("Prompt tokens from the cache:", "cached_tokens");
  real("Cache hit rate (%):", "cache_hit_rate", 100);
  integer("Generated tokens:", "output_tokens");
  real("Mean TTFT (ms):", "mean_ttft_ms", 1);
  real("Median TTFT (ms):", "median_ttft_ms", 1);
  real("P99 TTFT (ms):", "p99_ttft_ms", 1);
}

int64_t compare_runs(const Turns& turns, const std::vector<LoadRecord>& warm,
                     const std::vector<LoadRecord>& cold) {
  int64_t different = 0;
  for (size_t i = 0; i < turns.size(); ++i) {
    const std::string what = difference(warm[i], cold[i]);
    if (what.empty()) continue;
    ++different;
    std::fprintf(stderr, "quire: turn %zu (%s): %s\n", i + 1, printable(turns[i].agent, 40).c_str(),
                 printable(what, 1000).c_str());
  }
  std::printf("%-30s %8zu of %zu\n", "Turns equal to a cold run:", turns.size() - different,
              turns.size());
  return different;
}

json::array turn_details(const Turns& turns, const std::vector<LoadRecord>& records) {
  json::array list;
  for (size_t i = 0; i < turns.size(); ++i) {
    const LoadRecord& record = records[i];
    list.push_back(json::object{{"agent", turns[i].agent},
                                {"path", turns[i].path},
                                {"ttft_ms", record.ttft * 1e3},
                                {"latency_ms", record.latency * 1e3},
                                {"prompt_tokens", record.prompt_len},
                                {"cached_tokens", record.cached_len},
                                {"output_tokens", record.output_len},
                                {"error", record.error}});
  }
  return list;
}

}  // namespace quire::bench
