#pragma once
#include <string>

#include "engine/memory_budget.h"
#include "engine/scheduler.h"
#include "models/model_size.h"

namespace quire::engine {

// Says before any weight is read that a model cannot be served in the memory there is: its weights,
// the activations of a step, and the least KV cache: one block, or one request of the length that
// was asked for. (plan_memory checks the pools when the rest is there.) Throws LoadError with what
// is needed, what is free and the remedy; `model` is the folder. Returns the longest sequence that
// all of `available` could cache, at least 1, for LoadOptions::most_positions; 0: length costs
// nothing. `is_gpu`: it is a GPU's memory.
int64_t check_fits(const std::string& model, const models::ModelSize& size,
                   const SchedulerOptions& options, const MemoryRequest& request, int64_t available,
                   bool is_gpu = false);

}  // namespace quire::engine
