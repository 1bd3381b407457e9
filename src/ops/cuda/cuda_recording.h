#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "ops/cuda/cuda_layout.h"
#include "ops/runtime/memory_plan.h"

namespace quire::ops {

struct StepValues;

// Where a recorded step finds its values on the device: pieces of known sizes, then a tail of lists
// whose lengths differ from step to step.
struct StepBlockRange {
  std::byte* device = nullptr;
  size_t tail = 0, capacity = 0;  // where the tail begins, and the block ends
};

// Pinned memory for the values of a step: one of a few pieces, which steps take in turn.
struct StepHostMemory {
  static constexpr int kPieces = 3;
  std::byte* memory = nullptr;
  int piece = 0;
  bool is_kept = false;  // what the same recording wrote there last is still there
};

// Writes the values of one step, on the host, as the device will have them.
class StepWriter {
 public:
  StepWriter(const StepHostMemory& host, const StepBlockRange& range)
      : host_(host.memory), piece_(host.piece), is_kept_(host.is_kept), range_(range) {}

  // See StepHostMemory.
  int piece() const { return piece_; }
  bool is_kept() const { return is_kept_; }

  // Where to write what the device will have at `there`.
  template <class T>
  T* at(const T* there) const {
    return reinterpret_cast<T*>(host_ +
                                (reinterpret_cast<const std::byte*>(there) - range_.device));
  }
  template <class T>
  void copy(const T* there, const std::vector<T>& values) const {
    if (!values.empty()) std::memcpy(at(there), values.data(), values.size() * sizeof(T));
  }
  // Appends to the tail: the index of the first value, counted in Ts from where the tail begins.
  template <class T>
  int64_t append(const std::vector<T>& values) {
    const size_t index = (tail_ + sizeof(T) - 1) / sizeof(T);
    const size_t begin = range_.tail + index * sizeof(T), bytes = values.size() * sizeof(T);
    fits_ = fits_ && begin + bytes <= range_.capacity;
    if (!fits_) return 0;
    if (bytes > 0) std::memcpy(host_ + begin, values.data(), bytes);
    tail_ = begin + bytes - range_.tail;
    return static_cast<int64_t>(index);
  }
  // The tail, before anything was appended, for `bytes` of which the caller answers.
  template <class T>
  std::span<T> whole_tail() const {
    return {reinterpret_cast<T*>(host_ + range_.tail), (range_.capacity - range_.tail) / sizeof(T)};
  }
  void begin_tail(size_t bytes) { tail_ = bytes; }
  void give_up() { fits_ = false; }

  // Where each sequence's block table begins in the tail, once the layout is written.
  std::span<const int64_t> block_offsets() const { return block_offsets_; }
  void set_block_offsets(std::span<const int64_t> offsets) { block_offsets_ = offsets; }

  size_t tail_bytes() const { return tail_; }
  bool fits() const { return fits_; }  // else the tail has no room for this step

 private:
  std::byte* host_;
  int piece_;
  bool is_kept_;
  StepBlockRange range_;
  std::span<const int64_t> block_offsets_;
  size_t tail_ = 0;
  bool fits_ = true;
};

// What ops are given while their kernels are recorded: memory at addresses that stay, and places
// for values that are written before each run.
class CudaRecording {
 public:
  using Fill = std::function<void(const StepValues&, StepWriter&)>;
  using StepKey = std::array<int64_t, 9>;

  // `memory`: of activations; as much as peak() says will be used.
  CudaRecording(const StepBlockRange& range, std::byte* memory, const StepValues& values);

  const CudaLayout& layout() const { return layout_; }
  int32_t longest() const { return longest_; }  // StepValues::longest

  // Room for `count` values in the block.
  template <class T>
  T* add(size_t count) {
    return static_cast<T*>(add_bytes(count * sizeof(T)));
  }
  const std::byte* tail() const { return range_.device + range_.tail; }
  // Called before each run, in the order of these calls.
  void fill(Fill fill) { fills_.push_back(std::move(fill)); }
  // What an op keeps for the whole step; empty at first.
  std::shared_ptr<const void>& of_step(const StepKey& key) { return of_step_[key]; }

  void* take(size_t bytes) { return memory_ + plan_.take(bytes); }
  void give_back(void* memory) {
    plan_.give_back(static_cast<size_t>(static_cast<std::byte*>(memory) - memory_));
  }

  size_t peak() const { return plan_.peak(); }
  size_t fixed_bytes() const { return fixed_; }
  std::vector<Fill> take_fills() { return std::move(fills_); }

 private:
  void* add_bytes(size_t bytes);

  StepBlockRange range_;
  std::byte* memory_;
  MemoryPlan plan_;
  size_t fixed_ = 0;
  CudaLayout layout_;
  int32_t longest_;
  std::vector<Fill> fills_;
  std::map<StepKey, std::shared_ptr<const void>> of_step_;
};

}  // namespace quire::ops
