#pragma once
#include "base/clock.h"
#include "engine/scheduler.h"
#include "ops/runtime/profile.h"

namespace quire::engine {

// A stop-watch for the phases of a step on the engine thread: each lap is told to the profile under
// the kind of step that was chosen last. Without a profile it does nothing.
class StepTimer {
 public:
  explicit StepTimer(ops::Profile* profile) : profile_(profile) {}

  // `idle`: no step is in flight, so the next one's wall time begins now.
  void start(bool idle) {
    if (!profile_) return;
    last_ = Clock::now();
    last_cpu_ = thread_cpu_seconds();
    if (idle) step_start_ = last_;
  }

  void choose(ops::StepKind kind) {
    if (!profile_) return;
    kind_ = kind;
    profile_->begin(kind);
  }

  void lap(ops::Phase phase) {
    if (!profile_) return;
    const TimePoint now = Clock::now();
    const double cpu = thread_cpu_seconds();
    profile_->add_phase(kind_, phase,
                        {.wall = seconds_between(last_, now), .cpu = cpu - last_cpu_});
    last_ = now;
    last_cpu_ = cpu;
  }

  // The step of the kind chosen last has ended; with lookahead the next one has run since.
  void step_done(int64_t tokens) {
    if (!profile_) return;
    const TimePoint now = Clock::now();
    profile_->add_step(kind_, tokens, seconds_between(step_start_, now));
    step_start_ = now;
  }

  static ops::StepKind kind_of(const StepPlan& plan) {
    using Type = ops::StepKind::Type;
    int64_t decodes = 0;
    for (const StepItem& item : plan.items) decodes += item.num_tokens == 1;
    const auto items = static_cast<int64_t>(plan.items.size());
    if (decodes == items) return {.type = Type::kDecode, .sequences = items};
    return {.type = decodes == 0 ? Type::kPrefill : Type::kMixed};
  }

 private:
  ops::Profile* profile_;
  ops::StepKind kind_;
  TimePoint last_, step_start_;
  double last_cpu_ = 0;
};

}  // namespace quire::engine
