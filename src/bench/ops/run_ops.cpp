#include "bench/ops/run_ops.h"

#include <cstdio>

#include "base/cores.h"
#include "base/error.h"
#include "bench/ops/cases.h"
#include "bench/ops/machine.h"
#include "ops/cpu/cpu_isa.h"
#include "ops/runtime/profile.h"

namespace quire::bench {
namespace {

constexpr int64_t kReadBuffer = int64_t{2} << 30;

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

ops::Context make_cpu_context(int threads) {
  mx::set_default_device(mx::Device::cpu);
  mx::set_cache_limit(size_t{256} << 20);  // as the engine does
  ops::Context context = ops::make_context(threads > 0 ? threads : usable_physical_cores());
  context.profile = std::make_shared<ops::Profile>();
  return context;
}

ops::Roofline measure_and_print(const ops::Context& context) {
  std::printf("%s, %s kernels, %d threads\n\n", cpu_model().c_str(), ops::cpu_isa_name().c_str(),
              context.pool->num_threads());
  const ops::Roofline roofline =
      ops::measure_roofline(*context.pool, {.buffer_bytes = kReadBuffer, .seconds_per_probe = 0.2});
  print_roofline(roofline);
  return roofline;
}

json::object figures_of(const ops::Context& context, const ops::Roofline& roofline) {
  return {{"cpu", cpu_model()},
          {"isa", ops::cpu_isa_name()},
          {"threads", context.pool->num_threads()},
          {"roofline", roofline_json(roofline)}};
}

}  // namespace

json::object run_roofline(int threads) {
  const ops::Context context = make_cpu_context(threads);
  return figures_of(context, measure_and_print(context));
}

json::object run_ops(const RunOpsOptions& options) {
  const ops::Context context = make_cpu_context(options.threads);
  const ops::Roofline roofline = measure_and_print(context);
  std::printf("\n%-44s %10s %10s %8s %8s %6s %7s  %s\n", "kernel", "median us", "best us", "GB/s",
              "TFLOP/s", "bound", "share", "ran");
  const ThreadPool::Busy busy(*context.pool);  // as while the engine has work
  OpBench bench(options.bench, context, roofline);
  for (const OpCases& cases : op_cases()) bench.run(cases);
  json::array results = bench.take_results();
  if (results.empty()) throw LoadError("--filter " + options.bench.filter + ": no case matches");
  json::object figures = figures_of(context, roofline);
  figures["kernels"] = std::move(results);
  return figures;
}

}  // namespace quire::bench
