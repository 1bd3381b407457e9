#include "engine/pooler.h"

#include <utility>

#include "base/check.h"

namespace quire::engine {

void Pooler::add_state(int64_t position, std::span<const float> state) {
  if (kind_ == Pooling::Kind::kLast) {
    values_.assign(state.begin(), state.end());
    return;
  }
  if (position < num_summed_) return;
  QUIRE_CHECK(position == num_summed_) << "state " << position << " after " << num_summed_;
  ++num_summed_;
  sums_.resize(state.size());
  for (size_t i = 0; i < state.size(); ++i) sums_[i] += double{state[i]};
}

std::vector<float> Pooler::take() {
  if (kind_ == Pooling::Kind::kMean) {
    const auto count = static_cast<double>(num_summed_);
    for (const double sum : sums_) values_.push_back(static_cast<float>(sum / count));
  }
  return std::move(values_);
}

}  // namespace quire::engine
