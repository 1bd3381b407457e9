
#include "bench/ops/run_ops.h"
#include "cli/bench.h"
#include "cli/compute_context.h"

namespace quire::cli {
namespace {

struct OpsFlags {
  bench::RunOpsOptions run;
  std::string output_json;
};

int bench_ops(const OpsFlags& flags, bool roofline_only) {
  limit_instruction_set();
  const json::object figures =
      roofline_only ? bench::run_roofline(flags.run.threads) : run_ops(flags.run);
  if (!flags.output_json.empty())
    write_text(flags.output_json, dump_json(figures), "--output-json");
  return 0;
}

void add_common_flags(CLI::App& command, OpsFlags& flags) {
  command.add_option("--threads", flags.run.threads, "Compute threads; 0: one per physical core")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  command.add_option("--output-json", flags.output_json, "Also write the figures to this file");
}

}  // namespace

void add_bench_ops(CLI::App& bench, int& status) {
  auto flags = std::make_shared<OpsFlags>();
  CLI::App* command = bench.add_subcommand(
      "ops", "This machine's roofline, and each kernel's share of it, with Qwen3-0.6B's shapes");
  command->add_option("--filter", flags->run.bench.filter,
                      "Only cases whose name matches this regular expression");
  add_common_flags(*command, *flags);
  command->add_option("--min-time", flags->run.bench.min_time, "Seconds for each case, at least")
      ->check(CLI::Range(0.0, 60.0))
      ->capture_default_str();
  command->add_flag("--full", flags->run.bench.full,
                    "Every combination of heads, batch, context, block size and order");
  command->callback([flags, &status] { status = bench_ops(*flags, /*roofline_only=*/false); });
}

void add_bench_roofline(CLI::App& bench, int& status) {
  auto flags = std::make_shared<OpsFlags>();
  CLI::App* command = bench.add_subcommand(
      "roofline", "What this machine can do at best: memory, caches, units of multiplication");
  add_common_flags(*command, *flags);
  command->callback([flags, &status] { status = bench_ops(*flags, /*roofline_only=*/true); });
}

}  // namespace quire::cli
