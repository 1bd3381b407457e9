#include "ops/runtime/profile.h"

#include <utility>

namespace quire::ops {

double StepProfile::kernel_seconds() const {
  double sum = 0;
  for (const auto& [key, time] : kernels) sum += time.seconds;
  return sum;
}

double StepProfile::host_seconds() const {
  double sum = 0;
  for (const PhaseTime& time : phases) sum += time.cpu;
  return sum;
}

void Profile::begin(StepKind kind) { kind_ = kind; }

void Profile::add_kernel(StepKind kind, const KernelKey& key, double seconds, double bytes) {
  const std::lock_guard lock(mutex_);
  KernelTime& time = steps_[kind].kernels[key];
  ++time.count;
  time.seconds += seconds;
  time.bytes += bytes;
}

void Profile::add_phase(StepKind kind, Phase phase, PhaseTime time) {
  const std::lock_guard lock(mutex_);
  PhaseTime& sum = steps_[kind].phases[static_cast<size_t>(phase)];
  sum.wall += time.wall;
  sum.cpu += time.cpu;
}

void Profile::add_step(StepKind kind, int64_t tokens, double seconds) {
  const std::lock_guard lock(mutex_);
  StepProfile& step = steps_[kind];
  ++step.steps;
  step.tokens += tokens;
  step.wall += seconds;
}

std::map<StepKind, StepProfile> Profile::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(steps_, {});
}

}  // namespace quire::ops
