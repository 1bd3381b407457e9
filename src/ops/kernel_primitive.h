#pragma once
#include <mlx/mlx.h>
#include <mlx/primitives.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ops/context.h"

namespace quire::ops {

namespace mx = mlx::core;

// What a CPU kernel gets: evaluated arrays whose data pointers are valid for the call. Runs on
// MLX's stream thread.
using CpuKernel =
    std::function<void(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs)>;

// What a kernel run costs beside its wall time, where it is known. Bytes are those that have to be
// moved at least: weights, keys and values, activations read and written, once each.
struct KernelCost {
  double bytes = -1;         // -1: the arrays that go in and come out
  int64_t width = 0, k = 0;  // of a matrix [width, k], to tell its uses apart; 0: none
};

struct KernelSpec {
  const char* op;      // "rms_norm"
  const char* kernel;  // "cpu"
  CpuKernel run;
  // alias[i] = j: output i is input j's memory, written in place; -1: freshly allocated. Empty: all
  // fresh.
  std::vector<int> alias = {};
  KernelCost cost = {};  // for profiles
};

// One lazy graph node that runs our own kernel on MLX's CPU stream. Inputs must be row-contiguous
// (the node checks and throws std::invalid_argument); outputs are row-contiguous. Counts each run
// in the context's KernelLog.
std::vector<mx::array> launch_kernel(const Context& context, KernelSpec spec,
                                     std::vector<mx::Shape> shapes, std::vector<mx::Dtype> dtypes,
                                     std::vector<mx::array> inputs);
// The same for one output.
mx::array launch_kernel(const Context& context, KernelSpec spec, mx::Shape shape, mx::Dtype dtype,
                        std::vector<mx::array> inputs);

}  // namespace quire::ops
