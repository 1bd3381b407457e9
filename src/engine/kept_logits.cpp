#include "engine/kept_logits.h"

#include <numeric>
#include <stdexcept>

namespace quire::engine {

KeptLogits::KeptLogits(int64_t rows, int64_t vocab)
    : rows_(rows),
      vocab_(vocab),
      free_(std::make_shared<std::vector<int32_t>>(static_cast<size_t>(rows))) {
  std::iota(free_->rbegin(), free_->rend(), 0);
}

void KeptLogits::allocate(ops::Device& device) {
  if (!memory_)
    memory_ = device.make_pool({static_cast<int>(rows_), static_cast<int>(vocab_)}, mx::float32);
}

KeptLogits::Place KeptLogits::take_place() {
  if (free_->empty()) throw std::logic_error("more rows wait for masks than sequences run");
  const int32_t index = free_->back();
  free_->pop_back();
  return {free_, index};
}

mx::array KeptLogits::put(const ops::Context& context, const mx::array& logits,
                          const std::vector<size_t>& rows, const std::vector<Place>& places) {
  allocate(*context.device);
  const auto from = std::make_shared<std::vector<int32_t>>(rows.begin(), rows.end());
  const auto to = std::make_shared<std::vector<int32_t>>();
  for (const Place& place : places) to->push_back(place.index());
  return ops::put_rows(context, logits, from, *memory_, to);
}

mx::array KeptLogits::get(const ops::Context& context, const std::vector<int32_t>& places) const {
  return ops::take_rows(context, *memory_, std::make_shared<const std::vector<int32_t>>(places));
}

}  // namespace quire::engine
