#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "engine/request.h"

namespace quire::engine {

// Gathers what a request with `pooling` asks for, as steps yield it. The order of sums is that of
// the positions, so it does not depend on how the prompt was cut.
class Pooler {
 public:
  explicit Pooler(Pooling::Kind kind) : kind_(kind) {}

  // The state of the token at `position`. A mean wants all from 0 on; one that it has had, because
  // a preempted prompt is computed again, is left out.
  void add_state(int64_t position, std::span<const float> state);
  void add_score(float logprob) { values_.push_back(logprob); }
  // All that was added. Nothing after it.
  std::vector<float> take();

 private:
  Pooling::Kind kind_;
  std::vector<float> values_;
  std::vector<double> sums_;
  int64_t num_summed_ = 0;
};

}  // namespace quire::engine
