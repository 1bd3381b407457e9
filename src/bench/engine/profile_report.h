#pragma once
#include <cstdio>
#include <map>

#include "base/json.h"
#include "ops/runtime/profile.h"

namespace quire::bench {

using StepProfiles = std::map<ops::StepKind, ops::StepProfile>;

// Prints to `out` where the time of each kind of step went: the engine thread by phase, kernels by
// op, and what is left over when no kernel ran. The kinds that took longest, at most 8.
void print_profile(FILE* out, const StepProfiles& profiles);

// The same figures, all kinds: [{kind, sequences, steps, tokens, wall_seconds, phases: {name:
// {wall_seconds, cpu_seconds}}, kernels: [{name, width, k, count, seconds, bytes}]}].
json::array profile_json(const StepProfiles& profiles);

}  // namespace quire::bench
