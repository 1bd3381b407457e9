#pragma once
#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "ops/runtime/kernel_primitive.h"
#include "ops/runtime/profile.h"

namespace quire::ops {

// One graph node that runs one of our kernels: launch_kernel makes it. It runs once, either by
// itself when MLX evaluates it, or as part of a kernel graph (kernel_graph.h), which takes it over.
class KernelPrimitive final : public mx::Primitive,
                              public std::enable_shared_from_this<KernelPrimitive> {
 public:
  KernelPrimitive(mx::Stream stream, KernelSpec spec, const Context& context);
  ~KernelPrimitive() override;

  void eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override;
  void eval_gpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override;
  const char* name() const override { return spec_.op; }

  // The input whose memory output i is, or -1: memory of its own.
  int alias_of(size_t output) const {
    return output < spec_.alias.size() ? spec_.alias[output] : -1;
  }

  // Runs the kernel here and now, and tells the profile.
  void run(KernelInputs inputs, KernelOutputs outputs);
  Device& device() const { return *device_; }
  // The counter of the kernel's name, which may be another one once it has run (name_kernel).
  std::atomic<int64_t>& runs() { return *runs_; }
  void count_run() { runs_->fetch_add(1, std::memory_order_relaxed); }

  // For the graph that takes this node over: a mark of the walk that has seen it, and the number of
  // its first output there. Once taken over, it cannot be evaluated by itself: a kernel that writes
  // in place must not run twice.
  uint64_t walk = 0;
  size_t first_value = 0;
  bool taken_over = false;

 private:
  void run_named(KernelInputs inputs, KernelOutputs outputs);
  void run_launched();
  void finish_launch();

  KernelSpec spec_;
  std::optional<size_t> launched_;  // bytes that the host's memory counts for this node
  std::atomic<int64_t>* runs_;
  std::shared_ptr<KernelLog> log_;
  std::shared_ptr<ThreadPool> pool_;
  std::shared_ptr<Device> device_;
  std::shared_ptr<Profile> profile_;
  StepKind kind_;                    // the step that launched it
  std::vector<KernelArray> arrays_;  // inputs, then outputs
  size_t num_inputs_ = 0;
};

}  // namespace quire::ops
