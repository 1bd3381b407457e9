#pragma once
#include <CLI/CLI.hpp>
#include <cstdio>

#include "base/json.h"
#include "ops/runtime/profile.h"

namespace quire::cli {

using StepProfiles = std::map<ops::StepKind, ops::StepProfile>;

// --profile, with one meaning for every command that runs a model.
void add_profile_flag(CLI::App& app, bool& profile);

// Prints to `out` where the time of each kind of step went: the engine thread by phase, kernels by
// op, and what is left over when no kernel ran. The kinds that took longest, at most 8.
void print_profile(FILE* out, const StepProfiles& profiles);

// The same figures, all kinds: [{kind, sequences, steps, tokens, wall_seconds, phases: {name:
// {wall_seconds, cpu_seconds}}, kernels: [{name, width, k, count, seconds, bytes}]}].
json::array profile_json(const StepProfiles& profiles);

}  // namespace quire::cli
