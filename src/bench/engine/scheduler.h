#pragma once
#include "base/json.h"

namespace quire::bench {

// Host time of the scheduler, without a model: one step's plan() and commit() with lookahead while
// all sequences decode, and the admission of a prompt that is cached. A sequence that ends is
// replaced, so admissions and evictions are in the steps. Prints a line for each case and returns
// the figures. Each case takes `seconds`, and what its pools need to fill.
json::array measure_scheduler(double seconds);

}  // namespace quire::bench
