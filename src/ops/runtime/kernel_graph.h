#pragma once
#include <mlx/mlx.h>

#include <memory>
#include <optional>
#include <vector>

#include "ops/runtime/context.h"

namespace quire::ops {

namespace mx = mlx::core;

// A lazy graph of kernels, made into one node.
struct KernelGraph {
  std::vector<mx::array> outputs;         // in the order asked for; lazy
  mx::array done;                         // [1] uint8, available when all kernels have run; lazy
  std::shared_ptr<const void> resources;  // see below
};

// Makes one graph node of all kernels (launch_kernel) that `outputs` and `effects` depend on and
// that were not evaluated yet, so that MLX launches a whole step at once: some 170 nodes cost it
// 1.3 ms of CPU time a step of Qwen3-0.6B's shape, and, as it stops launching when about 100 are
// ahead, held every step's tokens back until half of the next step had run. Memory of what only
// these kernels see is taken when one writes it and given back after the last that reads it.
//   outputs  of kernels, none of them in another array's memory
//   effects  arrays whose kernels have to run, too, such as pools that are written in place. Their
//            memory is that of evaluated arrays, and these are what later graphs must start from.
//   after    what must have run before: in-place kernels of an earlier graph
// The arrays that went in stay unevaluated, and evaluating one of them throws.
//
// `resources` is what the kernels own. Whoever keeps it until the graph has run spares the stream's
// thread the work of freeing it.
//
// On a device with memory of its own the kernels are handed over here and now, MLX knows nothing of
// it, and the outputs are arrays that later kernels may be given at once; `done` says nothing
// there, and a node that is no kernel, or an array that is not the device's, is an error with the
// op's name.
//
// Counted in the KernelLog as "kernel_graph/cpu" or "/cuda". Absent, with nothing changed, if the
// graph is not made of kernels alone (and reshapes of their outputs): the references of ops are
// other nodes, and so is all that runs on Metal.
std::optional<KernelGraph> join_kernels(const Context& context,
                                        const std::vector<mx::array>& outputs,
                                        const std::vector<mx::array>& effects,
                                        const std::optional<mx::array>& after = std::nullopt);

}  // namespace quire::ops
