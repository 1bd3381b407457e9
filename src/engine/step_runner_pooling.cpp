// What requests that pool want of a step.
#include <algorithm>
#include <cmath>

#include "engine/step_runner.h"

namespace quire::engine {

// The sampler's outputs take the place of the forward pass's.
void StepRunner::read_states_early(InFlight& step) {
  if (step.kernels) {
    step.states = step.kernels->wait()[0];
  } else {
    mx::eval(*step.states);
  }
  step.states_read = true;
}

void StepRunner::collect_states(const InFlight& step) {
  const mx::array& states = *step.states;
  std::vector<float> state(static_cast<size_t>(states.shape(1)));
  const auto read = [&](const auto* all, size_t row) {
    const auto* from = all + row * state.size();
    for (size_t i = 0; i < state.size(); ++i) state[i] = static_cast<float>(from[i]);
  };
  for (size_t row = 0; row < step.batch.states.size(); ++row) {
    const StateInfo& info = step.batch.states[row];
    Generation* generation = step.plan.items[info.item].sequence->generation;
    if (!generation) continue;
    if (states.dtype() == mx::float32) read(states.data<float>(), row);
    if (states.dtype() == mx::float16) read(states.data<mx::float16_t>(), row);
    if (states.dtype() == mx::bfloat16) read(states.data<mx::bfloat16_t>(), row);
    generation->pooler->add_state(info.position, state);
  }
}

void StepRunner::give_pooled(Pooler& pooler, TokenEvent& event) {
  event.pooled = pooler.take();
  if (std::ranges::all_of(event.pooled, [](float value) { return std::isfinite(value); })) return;
  event.pooled.clear();
  event.finish = FinishReason::kError;
  event.error = "the states are not finite";
}

}  // namespace quire::engine
