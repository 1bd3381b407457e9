#include "ops/runtime/launched_step.h"

#include <algorithm>
#include <utility>

#include "ops/runtime/kernel_graph.h"

namespace quire::ops {

std::optional<LaunchedStep> launch_step(const Context& context,
                                        const std::vector<mx::array>& outputs,
                                        const std::vector<mx::array>& effects,
                                        const LaunchedStep* after, size_t num_read) {
  auto graph =
      join_kernels(context, outputs, effects, after ? std::optional(after->done()) : std::nullopt);
  if (!graph) return std::nullopt;
  mx::async_eval(graph->done);
  const size_t read = std::min(num_read, graph->outputs.size());
  auto copies = context.device->copy_to_host(
      {graph->outputs.begin(), graph->outputs.begin() + static_cast<ptrdiff_t>(read)});
  return LaunchedStep(std::make_shared<const std::vector<mx::array>>(std::move(graph->outputs)),
                      std::move(graph->done), std::move(graph->resources), std::move(copies));
}

const std::vector<mx::array>& LaunchedStep::wait() {
  if (!done_.is_available()) mx::eval(done_);  // which makes a list of it
  return copies_->wait();
}

}  // namespace quire::ops
