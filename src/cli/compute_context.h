#pragma once
#include <string>
#include <vector>

#include "cli/flags.h"
#include "ops/runtime/context.h"

namespace quire::cli {

// Takes the instruction set that QUIRE_CPU_ISA names, if it is set. Throws LoadError if this CPU
// lacks it.
void limit_instruction_set();

// What the flags and the debugging switches ask for: device, threads, profile. Says on stderr why a
// GPU that is there is not used; `beyond_gpus`, what of the model no GPU runs, makes --device auto
// take the CPU. Throws LoadError, with the reason, if a device cannot be had or cannot do what was
// asked for.
ops::Context make_compute_context(const ModelFlags& flags,
                                  const std::vector<std::string>& beyond_gpus);

// Whether it computes in memory of the device's own.
inline bool is_gpu(const ops::Context& context) { return !context.device->host_memory(); }

// The start-up line of what computes.
void print_device(const ops::Context& context);

}  // namespace quire::cli
