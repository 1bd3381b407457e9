#include "bench/engine/scheduler.h"
#include "cli/bench.h"

namespace quire::cli {
namespace {

struct SchedulerFlags {
  double min_time = 0.5;
  std::string output_json;
};

int bench_scheduler(const SchedulerFlags& flags) {
  const json::array figures = bench::measure_scheduler(flags.min_time);
  if (!flags.output_json.empty())
    write_text(flags.output_json, dump_json(figures), "--output-json");
  return 0;
}

}  // namespace

void add_bench_scheduler(CLI::App& bench, int& status) {
  auto flags = std::make_shared<SchedulerFlags>();
  CLI::App* command = bench.add_subcommand(
      "scheduler", "Host time of planning and committing a decode step, without a model");
  command->add_option("--min-time", flags->min_time, "Seconds for each case")
      ->check(CLI::Range(0.0, 60.0))
      ->capture_default_str();
  command->add_option("--output-json", flags->output_json, "Also write the figures to this file");
  command->callback([flags, &status] { status = bench_scheduler(*flags); });
}

}  // namespace quire::cli
