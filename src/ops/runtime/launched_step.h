#pragma once
#include <mlx/mlx.h>

#include <memory>
#include <optional>
#include <vector>

#include "ops/runtime/context.h"

namespace quire::ops {

namespace mx = mlx::core;

// A step of kernels that was handed to the context's device.
class LaunchedStep {
 public:
  using SharedArrays = std::shared_ptr<const std::vector<mx::array>>;
  LaunchedStep(SharedArrays outputs, mx::array done, std::shared_ptr<const void> resources,
               std::shared_ptr<HostCopies> copies)
      : outputs_(std::move(outputs)),
        done_(std::move(done)),
        resources_(std::move(resources)),
        copies_(std::move(copies)) {}
  // Not copied: as long as somebody has a step, a recording needs others for the results of its
  // next.
  LaunchedStep(const LaunchedStep&) = delete;
  LaunchedStep& operator=(const LaunchedStep&) = delete;
  LaunchedStep(LaunchedStep&&) = default;
  LaunchedStep& operator=(LaunchedStep&&) = default;

  // In the order asked for. Kernels of later steps may be given them at once.
  const std::vector<mx::array>& outputs() const { return *outputs_; }
  // What kernels of the next step that write in place must come after.
  const mx::array& done() const { return done_; }
  bool has_run() const { return done_.is_available() && copies_->are_there(); }
  // Waits until all kernels have run: the outputs for the host, as it can read them, as long as
  // this step is kept.
  const std::vector<mx::array>& wait();

 private:
  SharedArrays outputs_;
  mx::array done_;
  std::shared_ptr<const void> resources_;  // of the kernels: freed with the step
  std::shared_ptr<HostCopies> copies_;
};

// Joins kernels as join_kernels does, with its arguments, and hands them over. Absent, with nothing
// changed, where that is. Of the outputs the first `num_read` are for the host, too.
std::optional<LaunchedStep> launch_step(const Context& context,
                                        const std::vector<mx::array>& outputs,
                                        const std::vector<mx::array>& effects,
                                        const LaunchedStep* after = nullptr,
                                        size_t num_read = SIZE_MAX);

}  // namespace quire::ops
