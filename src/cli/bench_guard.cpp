#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include "base/error.h"
#include "bench/ops/guard.h"
#include "cli/bench.h"
#include "cli/compute_context.h"

namespace quire::cli {
namespace {

constexpr double kTolerance = 0.15;
constexpr int kPassesToKeep = 9;  // of a baseline: memory of a virtual machine differs by the place

struct GuardFlags {
  bench::GuardOptions measure;
  std::string baselines = "bench/baselines", write;
};

void print(const bench::GuardComparison& comparison) {
  for (const bench::GuardChange& change : comparison.moved)
    std::printf("  %-60s %6.3f to %.3f, was %.3f to %.3f  (%+.0f %%)\n", change.name.c_str(),
                change.now.least, change.now.most, change.before.least, change.before.most,
                100 * (change.now.median / change.before.median - 1));
  for (const std::string& name : comparison.only_before)
    std::printf("  %-60s is in the baseline and was not measured\n", name.c_str());
  for (const std::string& name : comparison.only_now)
    std::printf("  %-60s is not in the baseline\n", name.c_str());
}

// The baseline of this kind of CPU; none: there is no file of it.
std::optional<json::object> read_baseline(const std::string& path) {
  std::ifstream file(path);
  if (!file) {
    std::printf("\nno baseline of this kind of CPU: --write %s makes one\n", path.c_str());
    return std::nullopt;
  }
  std::ostringstream text;
  text << file.rdbuf();
  const auto baseline = parse_json(text.str());
  if (!baseline) throw LoadError(path + ": " + baseline.error());
  if (!baseline->is_object()) throw LoadError(path + ": it is no JSON object");
  return baseline->get_object();
}

// Returns whether none is slower than it was.
bool print_slower(const json::object& figures, const json::object* baseline) {
  const auto newly = bench::newly_slower_than_bf16(figures, baseline, kTolerance);
  for (const std::string& name : bench::slower_than_bf16(figures)) {
    const bool is_new = std::ranges::find(newly, name) != newly.end();
    const char* since = !is_new    ? ""
                        : baseline ? ": this is new"
                                   : ": no baseline tells since when";
    std::printf("%s is slower than bfloat16%s\n", name.c_str(), since);
  }
  return newly.empty();
}

int guard(GuardFlags flags) {
  limit_instruction_set();
  if (!flags.write.empty()) flags.measure.passes = kPassesToKeep;
  const json::object figures = measure_guard(flags.measure);
  if (!flags.write.empty()) {
    write_text(flags.write, bench::guard_text(figures), "--write");
    print_slower(figures, nullptr);
    return 0;
  }
  const std::string path =
      (std::filesystem::path(flags.baselines) / bench::guard_file_name(figures)).string();
  const auto baseline = read_baseline(path);
  if (baseline) {
    const auto comparison = bench::compare_guard(*baseline, figures, kTolerance);
    std::printf("\n%s: %zu figures lie more than %.0f %% outside its range\n", path.c_str(),
                comparison.moved.size(), 100 * kTolerance);
    print(comparison);
  }
  return print_slower(figures, baseline ? &*baseline : nullptr) ? 0 : 1;
}

}  // namespace

void add_bench_guard(CLI::App& bench, int& status) {
  auto flags = std::make_shared<GuardFlags>();
  CLI::App* command = bench.add_subcommand(
      "guard",
      "Shares of the roofline beside those of a stored baseline of this kind of CPU: prints what "
      "lies more than 15 % outside its range. Fails only if quantised weights are slower than "
      "bfloat16 on an "
      "instruction set that can be forced here, and were not in the baseline");
  command->add_option("--baselines", flags->baselines, "The folder of baselines, one file a kind")
      ->capture_default_str();
  command->add_option("--write", flags->write, "Write a baseline to this file instead");
  command->add_option("--threads", flags->measure.threads, "Compute threads; 0: one per core")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  command->add_option("--min-time", flags->measure.min_time, "Seconds for each case, at least")
      ->check(CLI::Range(0.0, 60.0))
      ->capture_default_str();
  command->callback([flags, &status] { status = guard(*flags); });
}

}  // namespace quire::cli
