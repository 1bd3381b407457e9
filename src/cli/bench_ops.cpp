#include "cli/bench_ops.h"

#include <mlx/allocator.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <set>

#include "base/clock.h"
#include "base/cores.h"
#include "base/error.h"
#include "cli/bench.h"
#include "cli/bench_random.h"
#include "cli/bench_stats.h"
#include "cli/flags.h"
#include "ops/cpu/cpu_isa.h"
#include "ops/runtime/profile.h"

namespace quire::cli {
namespace {

struct OpsFlags {
  OpBenchOptions options;
  int threads = 0;
  bool full = false;
  std::string output_json;
};

constexpr int64_t kReadBuffer = int64_t{2} << 30;

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "unknown CPU";
}

void print_roofline(const ops::Roofline& r) {
  const auto line = [](const char* name, double rate, const char* unit, const std::string& note) {
    if (rate > 0)
      std::printf("  %-26s %10.2f %s%s\n", name, rate, unit, note.c_str());
    else
      std::printf("  %-26s %10s\n", name, "absent");
  };
  std::printf("roofline of this machine\n");
  line("memory read", r.read_bytes_per_second / 1e9, "GB/s", "  (" + r.read_way + ")");
  line("L2 read", r.l2_read_bytes_per_second / 1e9, "GB/s", "");
  line("float32 multiply-add", r.float_flops_per_second / 1e12, "TFLOP/s", "");
  line("vdpbf16ps", r.bf16_flops_per_second / 1e12, "TFLOP/s", "");
  line("vpdpbusd (int8)", r.int8_ops_per_second / 1e12, "TOP/s", "");
  line("AMX bfloat16", r.amx_bf16_flops_per_second / 1e12, "TFLOP/s", "  (random data from L1)");
  line("AMX int8", r.amx_int8_ops_per_second / 1e12, "TOP/s", "  (random data from L1)");
}

json::object roofline_json(const ops::Roofline& r) {
  return {{"read_bytes_per_second", r.read_bytes_per_second},
          {"read_way", r.read_way},
          {"l2_read_bytes_per_second", r.l2_read_bytes_per_second},
          {"float_flops_per_second", r.float_flops_per_second},
          {"vdpbf16ps_flops_per_second", r.bf16_flops_per_second},
          {"vpdpbusd_ops_per_second", r.int8_ops_per_second},
          {"amx_bf16_flops_per_second", r.amx_bf16_flops_per_second},
          {"amx_int8_ops_per_second", r.amx_int8_ops_per_second}};
}

int bench_ops(const OpsFlags& flags) {
  if (const char* isa = std::getenv("QUIRE_CPU_ISA")) ops::force_cpu_isa(isa);
  mx::set_default_device(mx::Device::cpu);
  mx::set_cache_limit(size_t{256} << 20);  // as the engine does
  ops::Context context =
      ops::make_context(flags.threads > 0 ? flags.threads : usable_physical_cores());
  context.require_kernels = true;
  context.profile = std::make_shared<ops::Profile>();
  const int threads = context.pool->num_threads();
  std::printf("%s, %s kernels, %d threads\n\n", cpu_model().c_str(), ops::cpu_isa_name().c_str(),
              threads);
  const ops::Roofline roofline =
      ops::measure_roofline(*context.pool, {.buffer_bytes = kReadBuffer, .seconds_per_probe = 0.2});
  print_roofline(roofline);
  std::printf("\n%-44s %10s %10s %8s %8s %6s %7s  %s\n", "kernel", "median us", "best us", "GB/s",
              "TFLOP/s", "bound", "share", "ran");
  const ThreadPool::Busy busy(*context.pool);  // as while the engine has work
  OpBench bench(flags.options, context, roofline);
  bench_linear(bench);
  bench_attention(bench, flags.full);
  bench_moe(bench);
  bench_gdn(bench);
  bench_rows(bench);
  json::array results = bench.take_results();
  if (results.empty()) throw LoadError("--filter " + flags.options.filter + ": no case matches");
  if (flags.output_json.empty()) return 0;
  write_text(flags.output_json,
             dump_json(json::object{{"cpu", cpu_model()},
                                    {"isa", ops::cpu_isa_name()},
                                    {"threads", threads},
                                    {"roofline", roofline_json(roofline)},
                                    {"kernels", std::move(results)}}),
             "--output-json");
  return 0;
}

// An empty filter matches everything.
std::shared_ptr<const regex_t> parse_filter(const std::string& text) {
  auto* compiled = new regex_t;
  const int status =
      regcomp(compiled, text.empty() ? ".*" : text.c_str(), REG_EXTENDED | REG_NOSUB);
  if (status == 0)
    return {compiled, [](regex_t* filter) {
              regfree(filter);
              delete filter;
            }};
  char reason[256];
  regerror(status, compiled, reason, sizeof reason);
  delete compiled;
  throw LoadError("--filter " + text + ": " + reason);
}

}  // namespace

OpBench::OpBench(const OpBenchOptions& options, ops::Context context, const ops::Roofline& roofline)
    : options_(options),
      filter_(parse_filter(options.filter)),
      context_(std::move(context)),
      roofline_(roofline) {}

bool OpBench::wants(const std::string& name) const {
  return regexec(filter_.get(), name.c_str(), 0, nullptr, 0) == 0;
}

void OpBench::measure(const std::string& name, const OpWork& work, const Step& step) {
  constexpr int kFewestRuns = 3, kMostRuns = 10000;
  std::vector<double> seconds;
  std::set<std::string> kernels;
  mx::eval(step(0));  // memory is touched, threads run
  context_.profile->take();
  const TimePoint begin = Clock::now();
  for (int64_t run = 1; run <= kMostRuns; ++run) {
    mx::eval(step(run));
    double sum = 0;
    for (const auto& [kind, profile] : context_.profile->take()) {
      sum += profile.kernel_seconds();
      for (const auto& [key, time] : profile.kernels) kernels.insert(key.name);
    }
    seconds.push_back(sum);
    if (run >= kFewestRuns && seconds_since(begin) > options_.min_time) break;
  }
  std::string names;
  for (const std::string& kernel : kernels) names += (names.empty() ? "" : " ") + kernel;
  print(name, names, work, std::move(seconds));
}

void OpBench::print(const std::string& name, const std::string& kernels, const OpWork& work,
                    std::vector<double> seconds) {
  const double median = percentile(seconds, 50), best = percentile(seconds, 0);
  const double read_rate = work.bytes_per_second > 0 ? work.bytes_per_second
                           : work.in_cache           ? roofline_.l2_read_bytes_per_second
                                                     : roofline_.read_bytes_per_second;
  const double reading = work.bytes / read_rate;
  const double peak =
      work.in_float32 ? roofline_.float_flops_per_second : roofline_.best_bf16_flops();
  const double computing = work.flops / peak;
  const char* bound = computing > reading ? "math" : work.in_cache ? "L2" : "memory";
  const double share = std::max(reading, computing) / best;
  std::printf("%-44s %10.1f %10.1f %8.1f %8.3f %6s %5.0f %%  %s\n", name.c_str(), 1e6 * median,
              1e6 * best, work.bytes / best / 1e9, work.flops / best / 1e12, bound, 100 * share,
              kernels.c_str());
  std::fflush(stdout);
  results_.emplace_back(json::object{{"name", name},
                                     {"ran", kernels},
                                     {"runs", seconds.size()},
                                     {"median_seconds", median},
                                     {"best_seconds", best},
                                     {"bytes", work.bytes},
                                     {"flops", work.flops},
                                     {"bound", bound},
                                     {"share_of_roofline", share}});
}

mx::array random_bf16(const mx::Shape& shape) {
  static const std::vector<uint16_t> tile = [] {
    std::vector<uint16_t> values(1 << 16);
    BenchRandom random(1, 0);
    for (uint16_t& value : values) {
      const auto number = static_cast<float>(2 * random.uniform() - 1);
      uint32_t bits;
      std::memcpy(&bits, &number, sizeof bits);
      value = static_cast<uint16_t>(bits >> 16);
    }
    return values;
  }();
  size_t bytes = sizeof(uint16_t);
  for (const auto length : shape) bytes *= static_cast<size_t>(length);
  auto data = mx::allocator::malloc(bytes);
  auto* to = static_cast<char*>(data.buffer().raw_ptr());
  const size_t tile_bytes = tile.size() * sizeof(uint16_t);
  for (size_t at = 0; at < bytes; at += tile_bytes)
    std::memcpy(to + at, tile.data(), std::min(tile_bytes, bytes - at));
  return mx::array(std::move(data), shape, mx::bfloat16);
}

void add_bench_ops(CLI::App& bench, int& status) {
  auto flags = std::make_shared<OpsFlags>();
  CLI::App* command = bench.add_subcommand(
      "ops", "This machine's roofline, and each kernel's share of it, with Qwen3-0.6B's shapes");
  command->add_option("--filter", flags->options.filter,
                      "Only cases whose name matches this regular expression");
  command->add_option("--threads", flags->threads, "Compute threads; 0: one per physical core")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  command->add_option("--min-time", flags->options.min_time, "Seconds for each case, at least")
      ->check(CLI::Range(0.0, 60.0))
      ->capture_default_str();
  command->add_flag("--full", flags->full,
                    "Every combination of heads, batch, context, block size and order");
  command->add_option("--output-json", flags->output_json, "Also write the figures to this file");
  command->callback([flags, &status] { status = bench_ops(*flags); });
}

}  // namespace quire::cli
