#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

namespace quire::ops {

// A kernel as the profile tells them apart.
struct KernelKey {
  std::string name;  // "linear/cpu_avx512"
  int64_t width = 0, k = 0;
  auto operator<=>(const KernelKey&) const = default;
};

struct KernelTime {
  int64_t count = 0;
  double seconds = 0;  // wall time on the stream's thread, its helpers included
  double bytes = 0;
};

// Time on the engine thread. MLX lets few kernels queue: a launch waits, using no CPU, until most
// of them have run. CPU time tells work from waiting.
struct PhaseTime {
  double wall = 0, cpu = 0;  // seconds
};

// Steps that are comparable.
struct StepKind {
  enum class Type { kDecode, kPrefill, kMixed };
  Type type = Type::kDecode;
  int64_t sequences = 0;  // of a decode step; 0 for the others, which vary
  auto operator<=>(const StepKind&) const = default;
};

// What the engine thread does in a step.
enum class Phase { kPlan, kBatch, kGraph, kSampling, kLaunch, kWait, kCommit };
inline constexpr int kNumPhases = 7;

struct StepProfile {
  int64_t steps = 0, tokens = 0;
  double wall = 0;  // from the end of the step before, or from its own start
  std::array<PhaseTime, kNumPhases> phases{};  // by Phase
  std::map<KernelKey, KernelTime> kernels;

  double kernel_seconds() const;
  double host_seconds() const;  // CPU time of all phases
};

// Where the time of steps goes. Kernels add from the stream's thread, phases from the engine's; any
// thread may take. A Context without one (the default) measures nothing: no clock is read.
class Profile {
 public:
  // Kernels that are launched from now on belong to this kind of step. Launching thread only.
  void begin(StepKind kind);
  StepKind kind() const { return kind_; }

  void add_kernel(StepKind kind, const KernelKey& key, double seconds, double bytes);
  void add_phase(StepKind kind, Phase phase, PhaseTime time);
  void add_step(StepKind kind, int64_t tokens, double seconds);

  // What was measured since the last call.
  std::map<StepKind, StepProfile> take();

 private:
  StepKind kind_;  // launching thread only
  std::mutex mutex_;
  std::map<StepKind, StepProfile> steps_;
};

}  // namespace quire::ops
