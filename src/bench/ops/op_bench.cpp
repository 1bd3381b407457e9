#include "bench/ops/op_bench.h"

#include <mlx/allocator.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <limits>
#include <set>

#include "base/check.h"
#include "base/clock.h"
#include "base/error.h"
#include "bench/random.h"
#include "bench/stats.h"
#include "ops/cpu/parallel_blocks.h"
#include "ops/runtime/array_memory.h"
#include "ops/runtime/profile.h"

namespace quire::bench {
namespace {

constexpr int kInPlaceFloats = 1 << 28;  // 1 GiB: no cache holds it

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

bool OpBench::wants(const std::string& name) {
  names_.push_back(name);
  return regexec(filter_.get(), name.c_str(), 0, nullptr, 0) == 0;
}

void OpBench::run(const OpCases& cases) {
  op_ = cases.op;
  cases.run(*this);
}

double OpBench::in_place_rate() {
  if (in_place_rate_ > 0) return in_place_rate_;
  using Four = float __attribute__((vector_size(16)));
  // In parts, each cold when its turn comes: a neighbour disturbs few of many short runs.
  constexpr int kRuns = 3, kParts = 32;
  mx::array memory = ops::make_lazy_array({kInPlaceFloats}, mx::float32);  // as states lie
  std::memset(memory.data<char>(), 0, memory.nbytes());
  auto* data = reinterpret_cast<Four*>(memory.data<float>());
  double best = std::numeric_limits<double>::infinity();
  constexpr int64_t kSize = kInPlaceFloats / 4 / kParts;
  for (int run = 0; run < kRuns * kParts; ++run) {
    Four* part = data + run % kParts * kSize;
    const TimePoint start = Clock::now();
    ops::parallel_blocks(*context_.pool, kSize, int64_t{1} << 14, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) part[i] *= 0.99f;
    });
    best = std::min(best, seconds_since(start));
  }
  in_place_rate_ = 2.0 * sizeof(Four) * kSize / best;
  std::printf("  memory scaled in place: %.1f GB/s, read and written\n", in_place_rate_ / 1e9);
  return in_place_rate_;
}

void OpBench::measure_step(const std::string& name, const OpWork& work, const Step& step) {
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
  for (const std::string& kernel : kernels)
    QUIRE_CHECK(kernel.starts_with(std::string(op_) + "/")) << name << " ran " << kernel;
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
    Random random(1, 0);
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

}  // namespace quire::bench
