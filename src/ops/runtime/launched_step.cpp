#include "ops/runtime/launched_step.h"

#include <utility>

#include "ops/runtime/kernel_graph.h"

namespace quire::ops {

std::optional<LaunchedStep> launch_step(const Context& context,
                                        const std::vector<mx::array>& outputs,
                                        const std::vector<mx::array>& effects,
                                        const LaunchedStep* after) {
  auto graph =
      join_kernels(context, outputs, effects, after ? std::optional(after->done()) : std::nullopt);
  if (!graph) return std::nullopt;
  mx::async_eval(graph->done);
  auto copies = context.device->copy_to_host(graph->outputs);
  return LaunchedStep(std::move(graph->outputs), std::move(graph->done),
                      std::move(graph->resources), std::move(copies));
}

std::vector<mx::array> LaunchedStep::wait() {
  if (outputs_.empty()) mx::eval(done_);
  return copies_->wait();
}

}  // namespace quire::ops
