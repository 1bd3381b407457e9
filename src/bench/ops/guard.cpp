#include "bench/ops/guard.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <limits>
#include <map>
#include <memory>

#include "base/clock.h"
#include "base/cores.h"
#include "base/error.h"
#include "bench/ops/machine.h"
#include "bench/ops/run_ops.h"
#include "bench/ops/shapes.h"
#include "bench/ops/weight_formats.h"
#include "bench/stats.h"
#include "ops/cpu/cpu_isa.h"
#include "ops/linear/linear_format.h"
#include "ops/runtime/profile.h"

namespace quire::bench {
namespace {

constexpr const char* kTables[] = {"shares", "times_bf16"};

// A few of each kind: bound by memory and by arithmetic, few rows and many. None whose data an L3
// cache may hold: its share would follow the probe of memory.
constexpr const char* kCases =
    "^(linear/(bf16|affine8|affine4|affine4_int8)/gate_up/M=(1|32|512)|"
    "paged_attention/(decode/H=16/8/B=(1|8)/context=4096|prefill/H=16/8/T=2048)/block=16(/int8)?|"
    "moe_experts/(bf16|affine4|mxfp4)/E=64,k=8/M=(1|32)|"
    "gated_delta_rule/H=16/D=128/(B=8|T=512)|causal_conv1d/H=16/D=128/T=512|"
    "head_linear/keys/M=32)$";

constexpr size_t kWeightBytes = size_t{512} << 20;  // beyond every cache
// Below this quantised weights count as slower than bfloat16; the rest is for the clock.
constexpr double kLeastTimes = 0.95;

// One row through a matrix, with weights that are read from memory.
class OneRow {
 public:
  OneRow(const ops::Context& context, const WeightFormat& format)
      : context_(context), format_(format), x_(random_bf16({1, kHidden})) {}

  // One more copy of the weight.
  void add(const mx::array& rows) {
    weights_.push_back(format_.make(context_, rows, /*interleave=*/false));
    bytes_ += weights_.back().weight.nbytes();
  }
  size_t bytes() const { return bytes_; }

  // Whether the weights lie as the instruction set in force wants them.
  bool fits() const {
    return ops::find_linear_kernel(ops::linear_format(weights_.front().weight, mx::bfloat16));
  }

  // Seconds of a run on the instruction set in force: the mean over the copies of the weights, each
  // by its fastest run. The fastest of all would be of a copy that happens to lie in fast memory,
  // which makes bfloat16 faster but not a format that arithmetic bounds. Where all copies lie in
  // memory of one speed, the ratio still depends on that speed.
  double seconds(double min_time) {
    std::vector<double> best(weights_.size(), std::numeric_limits<double>::infinity());
    const TimePoint begin = Clock::now();
    for (size_t i = 0; i < best.size() || seconds_since(begin) < min_time; ++i) {
      const size_t copy = i % best.size();
      const mx::array y = ops::linear(context_, x_, weights_[copy]);
      mx::eval(y);
      double kernel = 0;  // without what is around it
      for (const auto& [kind, profile] : context_.profile->take())
        kernel += profile.kernel_seconds();
      best[copy] = std::min(best[copy], kernel);
    }
    return mean(best);
  }

 private:
  const ops::Context& context_;
  const WeightFormat& format_;
  mx::array x_;
  std::vector<ops::LinearWeight> weights_;
  size_t bytes_ = 0;
};

// A format beside bfloat16. Their weights lie side by side: memory that the host of a virtual
// machine has on another node is slower, and it should be so for both.
struct Beside {
  OneRow dense, quantised;

  Beside(const ops::Context& context, const WeightFormat& format)
      : dense(context, weight_formats().front()), quantised(context, format) {
    const mx::array rows = random_bf16({2 * kIntermediate, kHidden});
    while (dense.bytes() < kWeightBytes || quantised.bytes() < kWeightBytes)
      (dense.bytes() < quantised.bytes() ? dense : quantised).add(rows);
  }
};

json::array figure_of(const std::vector<double>& values) {
  return {percentile(values, 0), percentile(values, 50), percentile(values, 100)};
}

// Runs of the formats take turns on each instruction set, so that all meet the same neighbours.
json::object measure_formats(const GuardOptions& options) {
  ops::Context context =
      ops::make_context(options.threads > 0 ? options.threads : usable_physical_cores());
  context.profile = std::make_shared<ops::Profile>();
  const ThreadPool::Busy busy(*context.pool);
  const std::string usual = ops::cpu_isa_name();
  json::object ratios;
  std::printf("\none row of a %d x %d matrix, times as fast as in bfloat16\n", 2 * kIntermediate,
              kHidden);
  for (const WeightFormat& format : weight_formats().subspan(1)) {
    std::unique_ptr<Beside> weights;
    for (const std::string& isa : ops::available_cpu_isas()) {
      ops::force_cpu_isa(isa);
      if (!weights || !weights->quantised.fits()) {
        weights.reset();  // before the new ones, or both need memory
        weights = std::make_unique<Beside>(context, format);
      }
      std::vector<double> times;
      for (int round = 0; round < 2 * options.passes; ++round) {
        const double bf16 = weights->dense.seconds(options.min_time / 3);
        times.push_back(bf16 / weights->quantised.seconds(options.min_time / 3));
      }
      const std::string name = isa + "/" + format.name;
      ratios[name] = figure_of(times);
      std::printf("  %-28s %6.2f\n", name.c_str(), percentile(times, 50));
      std::fflush(stdout);
    }
  }
  ops::force_cpu_isa(usual);
  return ratios;
}

const json::object& table_of(const json::object& figures, const char* name) {
  const json::value* table = figures.if_contains(name);
  if (!table || !table->is_object())
    throw LoadError(std::string("the baseline has no table \"") + name + "\"");
  return table->get_object();
}

GuardFigure read_figure(const json::value& value, std::string_view name) {
  const auto* three = value.if_array();
  if (!three || three->size() != 3 || !std::ranges::all_of(*three, &json::value::is_number))
    throw LoadError("the baseline's \"" + std::string(name) + "\" is not three numbers");
  return {.least = three->at(0).to_number<double>(),
          .median = three->at(1).to_number<double>(),
          .most = three->at(2).to_number<double>()};
}

double median_of(const json::value& value, std::string_view name) {
  return read_figure(value, name).median;
}

void check_same_kind(const json::object& baseline, const json::object& now) {
  for (const char* key : {"cpu", "isa", "threads"}) {
    const json::value* value = baseline.if_contains(key);
    // Through text: a number that was read is signed, one that was written may not be.
    if (!value || json::serialize(*value) != json::serialize(now.at(key)))
      throw LoadError(std::string("the baseline is of another ") + key + ": " +
                      (value ? json::serialize(*value) : "none") + ", here " +
                      json::serialize(now.at(key)));
  }
}

}  // namespace

json::object measure_guard(const GuardOptions& options) {
  json::object run, shares;
  std::map<std::string, std::vector<double>> passes;
  for (int pass = 0; pass < options.passes; ++pass) {
    run = run_ops(
        {.bench = {.filter = kCases, .min_time = options.min_time}, .threads = options.threads});
    for (const json::value& row : run.at("kernels").as_array())
      passes[std::string(row.at("name").as_string())].push_back(
          row.at("share_of_roofline").as_double());
    std::printf("\n");
  }
  for (const auto& [name, own] : passes) shares[name] = figure_of(own);
  return {{"cpu", cpu_kind()},
          {"isa", run.at("isa")},
          {"threads", run.at("threads")},
          {"shares", std::move(shares)},
          {"times_bf16", measure_formats(options)}};
}

std::string guard_text(const json::object& figures) {
  std::string text = "{";
  for (const char* key : {"cpu", "isa", "threads"})
    text += "\"" + std::string(key) + "\": " + json::serialize(figures.at(key)) + ",\n ";
  for (const char* table : kTables) {
    text += "\"" + std::string(table) + "\": {";
    const char* between = "\n";
    for (const auto& [key, value] : table_of(figures, table)) {
      const GuardFigure figure = read_figure(value, key);
      char numbers[96];
      std::snprintf(numbers, sizeof numbers, "[%.3f, %.3f, %.3f]", figure.least, figure.median,
                    figure.most);
      text += between + ("  " + json::serialize(json::string(key))) + ": " + numbers;
      between = ",\n";
    }
    text += table == kTables[0] ? "},\n " : "}}";
  }
  return text;
}

std::string guard_file_name(const json::object& figures) {
  std::string name = std::string(figures.at("cpu").as_string()) + " " +
                     std::string(figures.at("isa").as_string()) + " " +
                     json::serialize(figures.at("threads")) + " threads";
  std::string slug;
  for (const char c : name) {
    const bool keep = std::isalnum(static_cast<unsigned char>(c)) || c == '_';
    if (keep)
      slug += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    else if (!slug.empty() && slug.back() != '-')
      slug += '-';
  }
  return slug + ".json";
}

GuardComparison compare_guard(const json::object& baseline, const json::object& now,
                              double tolerance) {
  check_same_kind(baseline, now);
  GuardComparison result;
  for (const char* table : kTables) {
    const json::object& before = table_of(baseline, table);
    const json::object& after = table_of(now, table);
    for (const auto& [key, value] : before) {
      const std::string name(key);
      const json::value* own = after.if_contains(key);
      if (!own) {
        result.only_before.push_back(name);
        continue;
      }
      const GuardChange change{name, read_figure(value, key), read_figure(*own, key)};
      if (change.now.most < (1 - tolerance) * change.before.least ||
          change.now.least > (1 + tolerance) * change.before.most)
        result.moved.push_back(change);
    }
    for (const auto& entry : after)
      if (!before.contains(entry.key())) result.only_now.emplace_back(entry.key());
  }
  return result;
}

std::vector<std::string> slower_than_bf16(const json::object& figures) {
  std::vector<std::string> names;
  for (const auto& [key, value] : table_of(figures, "times_bf16"))
    if (median_of(value, key) < kLeastTimes) names.emplace_back(key);
  return names;
}

std::vector<std::string> newly_slower_than_bf16(const json::object& figures,
                                                const json::object* baseline, double tolerance) {
  const std::string isa(figures.at("isa").as_string());
  std::vector<std::string> names;
  for (const std::string& name : slower_than_bf16(figures)) {
    const json::value* before =
        baseline ? table_of(*baseline, "times_bf16").if_contains(name) : nullptr;
    const double now = median_of(table_of(figures, "times_bf16").at(name), name);
    const bool is_new = before ? now < (1 - tolerance) * read_figure(*before, name).least
                               : name.starts_with(isa + "/");
    if (is_new) names.push_back(name);
  }
  return names;
}

}  // namespace quire::bench
