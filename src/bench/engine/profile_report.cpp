#include "bench/engine/profile_report.h"

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

namespace quire::bench {
namespace {

constexpr size_t kMostKinds = 8;
constexpr const char* kPhaseNames[ops::kNumPhases] = {
    "plan", "build batch", "build graph", "sampling rows", "launch", "wait for tokens", "commit"};

std::string name_of(const ops::StepKind& kind) {
  switch (kind.type) {
    case ops::StepKind::Type::kDecode:
      return "decode";
    case ops::StepKind::Type::kPrefill:
      return "prefill";
    case ops::StepKind::Type::kMixed:
      return "mixed";
  }
  return "";
}

std::string name_of(const ops::KernelKey& key) {
  if (key.width == 0) return key.name;
  return key.name + " " + std::to_string(key.width) + "x" + std::to_string(key.k);
}

// Times of one kind of step as milliseconds and shares of a step.
class StepTable {
 public:
  StepTable(FILE* out, const ops::StepProfile& step) : out_(out), step_(step) {}

  void line(const std::string& name, double seconds, const std::string& more = "") const {
    std::fprintf(out_, "  %-38s %10.3f %8.1f %%%s\n", name.c_str(),
                 1e3 * seconds / static_cast<double>(std::max<int64_t>(1, step_.steps)),
                 step_.wall > 0 ? 100 * seconds / step_.wall : 0.0, more.c_str());
  }

  void phase(const char* name, const ops::PhaseTime& time) const {
    char more[32];
    std::snprintf(more, sizeof more, " %10.3f",
                  1e3 * time.cpu / static_cast<double>(std::max<int64_t>(1, step_.steps)));
    line(name, time.wall, more);
  }

  void kernel(const std::string& name, const ops::KernelTime& time) const {
    char more[64];
    std::snprintf(
        more, sizeof more, " %10.1f %9.1f",
        static_cast<double>(time.count) / static_cast<double>(std::max<int64_t>(1, step_.steps)),
        time.seconds > 0 ? time.bytes / time.seconds / 1e9 : 0.0);
    line(name, time.seconds, more);
  }

 private:
  FILE* out_;
  const ops::StepProfile& step_;
};

void print_step(FILE* out, const ops::StepKind& kind, const ops::StepProfile& step) {
  const double steps = static_cast<double>(std::max<int64_t>(1, step.steps));
  std::string title = name_of(kind);
  if (kind.sequences > 0) title += ", batch " + std::to_string(kind.sequences);
  std::fprintf(out, "\n%s: %lld steps of %.1f tokens, %.3f ms each\n", title.c_str(),
               static_cast<long long>(step.steps), static_cast<double>(step.tokens) / steps,
               1e3 * step.wall / steps);
  const StepTable table(out, step);
  std::fprintf(out, "  %-38s %10s %10s %10s\n", "engine thread", "ms/step", "of step", "CPU ms");
  for (int i = 0; i < ops::kNumPhases; ++i) table.phase(kPhaseNames[i], step.phases[i]);
  table.line("host work (CPU time of the above)", step.host_seconds());
  std::fprintf(out, "  %-38s %10s %10s %10s %9s\n", "kernels", "ms/step", "of step", "runs/step",
               "GB/s");
  std::vector<std::pair<ops::KernelKey, ops::KernelTime>> kernels(step.kernels.begin(),
                                                                  step.kernels.end());
  std::sort(kernels.begin(), kernels.end(),
            [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  ops::KernelTime total;
  for (const auto& [key, time] : kernels) {
    table.kernel(name_of(key), time);
    total.count += time.count;
    total.seconds += time.seconds;
    total.bytes += time.bytes;
  }
  table.kernel("all kernels", total);
  table.line("no kernel running", std::max(0.0, step.wall - total.seconds));
}

}  // namespace

void print_profile(FILE* out, const StepProfiles& profiles) {
  std::vector<std::pair<ops::StepKind, ops::StepProfile>> kinds;
  for (const auto& entry : profiles)  // the end of a step's commit may fall into the next profile
    if (entry.second.steps > 0) kinds.push_back(entry);
  std::stable_sort(kinds.begin(), kinds.end(),
                   [](const auto& a, const auto& b) { return a.second.wall > b.second.wall; });
  double rest = 0;
  for (size_t i = 0; i < kinds.size(); ++i) {
    if (i < kMostKinds) {
      print_step(out, kinds[i].first, kinds[i].second);
    } else {
      rest += kinds[i].second.wall;
    }
  }
  if (kinds.size() > kMostKinds)
    std::fprintf(out, "\n%zu other kinds of step: %.3f s\n", kinds.size() - kMostKinds, rest);
  std::fflush(out);
}

json::array profile_json(const StepProfiles& profiles) {
  json::array result;
  for (const auto& [kind, step] : profiles) {
    if (step.steps == 0) continue;
    json::object phases;
    for (int i = 0; i < ops::kNumPhases; ++i)
      phases[kPhaseNames[i]] =
          json::object{{"wall_seconds", step.phases[i].wall}, {"cpu_seconds", step.phases[i].cpu}};
    json::array kernels;
    for (const auto& [key, time] : step.kernels) {
      kernels.emplace_back(json::object{{"name", key.name},
                                        {"width", key.width},
                                        {"k", key.k},
                                        {"count", time.count},
                                        {"seconds", time.seconds},
                                        {"bytes", time.bytes}});
    }
    result.emplace_back(json::object{{"kind", name_of(kind)},
                                     {"sequences", kind.sequences},
                                     {"steps", step.steps},
                                     {"tokens", step.tokens},
                                     {"wall_seconds", step.wall},
                                     {"phases", std::move(phases)},
                                     {"kernels", std::move(kernels)}});
  }
  return result;
}

}  // namespace quire::bench
