#include <mlx/backend/metal/device.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace mlx::core::metal {

using quire::emulator::Constant;
using quire::emulator::Fault;

MTL::Library* Device::get_library(const std::string& name,
                                  const std::function<std::string()>& builder) {
  const auto [entry, is_new] = libraries_.emplace(name, MTL::Library{});
  if (is_new) entry->second.text = builder();
  return &entry->second;
}

MTL::ComputePipelineState* Device::get_kernel(const std::string& name, MTL::Library* library,
                                              const std::string& key, const MTLFCList& constants) {
  MTL::ComputePipelineState asked = {.kernel = name, .constants = {}};
  for (const auto& [value, type, index] : constants) {
    Constant& constant = asked.constants[static_cast<int>(index)];
    constant.size = type == MTL::DataTypeBool ? 1 : 4;
    std::memcpy(constant.bytes, value, constant.size);
  }
  const auto [entry, is_new] = pipelines_.emplace(std::pair(library, key), asked);
  const auto same = [](const auto& a, const auto& b) {
    return a.first == b.first && a.second.size == b.second.size &&
           std::memcmp(a.second.bytes, b.second.bytes, a.second.size) == 0;
  };
  const MTL::ComputePipelineState& made = entry->second;
  if (!is_new &&
      (made.kernel != name || !std::ranges::equal(made.constants, asked.constants, same)))
    throw Fault("two pipelines of " + name + " have the key " + key);
  return &entry->second;
}

void CommandEncoder::begin_node(const std::vector<array>& inputs,
                                const std::vector<array>& outputs) {
  kept_.clear();
  for (const auto* arrays : {&inputs, &outputs})
    for (const array& a : *arrays) kept_.insert(a.buffer().ptr());
}

// Metal keeps what was bound for an earlier kernel. A kernel that relied on it would depend on
// which one that was: here it finds nothing.
void CommandEncoder::set_compute_pipeline_state(MTL::ComputePipelineState* pipeline) {
  current_ = {.pipeline = pipeline};
}

void CommandEncoder::set_input_array(const array& a, int index, int64_t offset) {
  const std::string what = current_.pipeline->kernel + ": buffer " + std::to_string(index);
  if (offset != 0) throw Fault(what + " has an offset beside the array's");
  if (a.nbytes() == 0) throw Fault(what + " is empty, which Metal has not");
  if (!kept_.contains(a.buffer().ptr()))
    throw Fault(what + " is of an array that may go before the GPU is done");
  inputs_.insert(a.buffer().ptr());
  current_.arguments.insert_or_assign(index, Bound{array::unsafe_weak_copy(a), false, ""});
  use(a, false);
}

void CommandEncoder::register_output_array(const array& a) {
  outputs_.insert(a.buffer().ptr());
  for (auto& [index, bound] : current_.arguments)
    if (bound.memory.buffer().ptr() == a.buffer().ptr()) bound.is_written = true;
  use(a, true);
}

void CommandEncoder::set_numbers(std::string bytes, int index) {
  if (bytes.size() > 4096) throw Fault("more than 4096 bytes of numbers");
  current_.arguments.insert_or_assign(index, Bound{array(0), false, std::move(bytes)});
}

void CommandEncoder::set_threadgroup_memory_length(size_t bytes, int index) {
  current_.threadgroup_bytes[index] = bytes;
}

void CommandEncoder::dispatch_threadgroups(MTL::Size groups, MTL::Size threads) {
  current_.groups = groups;
  current_.threads = threads;
  commands_.dispatches.push_back(current_);
}

void CommandEncoder::add_temporary(array a) {
  kept_.insert(a.buffer().ptr());
  commands_.temporaries.push_back(std::move(a));
}

void CommandEncoder::use(const array& a, bool is_written) {
  Use& use = uses_[a.buffer().ptr()];
  use.memory = a.data_shared_ptr();
  use.is_written |= is_written;
  use.kernel = current_.pipeline->kernel;
}

bool CommandEncoder::waits_for(int later, int earlier) const {
  if (later == earlier) return true;
  return std::ranges::any_of(waits_[static_cast<size_t>(later)], [&](int between) {
    return between >= earlier && waits_for(between, earlier);
  });
}

void CommandEncoder::check_order(const void* buffer, const Use& use) {
  History& history = histories_[buffer];
  if (history.memory.lock() != use.memory.lock()) history = {.memory = use.memory};
  const auto check = [&](const std::pair<int, std::string>& other, const char* did) {
    if (other.first >= 0 && !waits_for(number_, other.first))
      throw Fault(use.kernel + (use.is_written ? " writes" : " reads") + " memory that " +
                  other.second + did +
                  " in an earlier command buffer, which may run at the same "
                  "time");
  };
  check(history.writer, " writes");
  if (!use.is_written) return history.readers.emplace_back(number_, use.kernel), void();
  for (const auto& reader : history.readers) check(reader, " reads");
  history.writer = {number_, use.kernel};
  history.readers.clear();
}

CommandEncoder::Commands CommandEncoder::end_encoding() {
  for (const array& temporary : commands_.temporaries) {
    inputs_.erase(temporary.buffer().ptr());
    outputs_.erase(temporary.buffer().ptr());
  }
  std::vector<int>& waits = waits_.emplace_back();
  for (const void* input : inputs_)
    if (const auto last = last_outputs_.find(input); last != last_outputs_.end())
      waits.push_back(last->second);
  for (const auto& [buffer, use] : uses_) check_order(buffer, use);
  for (const void* output : outputs_) last_outputs_[output] = number_;
  ++number_;
  inputs_.clear();
  outputs_.clear();
  uses_.clear();
  return std::exchange(commands_, {});
}

}  // namespace mlx::core::metal
