#pragma once
#include <mlx/mlx.h>
#include <mlx/primitives.h>

#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ops/runtime/context.h"

namespace quire::ops {

namespace mx = mlx::core;

// An evaluated array as a kernel sees it: memory and shape, nothing of the graph. Cheap to make: a
// step has hundreds.
class KernelArray {
 public:
  static constexpr size_t kMaxAxes = 6;
  explicit KernelArray(const mx::array& a) : KernelArray(a, const_cast<void*>(a.data<void>())) {}
  // The shape and dtype of an array that has no memory yet, or another's.
  KernelArray(const mx::array& a, void* data);

  template <class T>
  T* data() {
    return static_cast<T*>(data_);
  }
  template <class T>
  const T* data() const {
    return static_cast<const T*>(data_);
  }
  void set_data(void* data) { data_ = data; }
  size_t ndim() const { return num_axes_; }
  int shape(int axis) const { return shape_[axis]; }
  size_t size() const { return size_; }
  size_t itemsize() const { return mx::size_of(dtype_); }
  size_t nbytes() const { return size_ * itemsize(); }
  mx::Dtype dtype() const { return dtype_; }

 private:
  void* data_;
  size_t size_;
  mx::Dtype dtype_;
  uint32_t num_axes_;
  int32_t shape_[kMaxAxes];
};

// What a CPU kernel gets: arrays whose data pointers are valid for the call. Runs on MLX's stream
// thread.
using KernelInputs = std::span<const KernelArray>;
using KernelOutputs = std::span<KernelArray>;
using CpuKernel = std::function<void(const KernelInputs& inputs, KernelOutputs& outputs)>;

// What a kernel run costs beside its wall time, where it is known. Bytes are those that have to be
// moved at least: weights, keys and values, activations read and written, once each.
struct KernelCost {
  double bytes = -1;         // -1: the arrays that go in and come out
  int64_t width = 0, k = 0;  // of a matrix [width, k], to tell its uses apart; 0: none
};

struct KernelSpec {
  const char* op;      // "rms_norm"; a literal
  const char* kernel;  // "cpu"; a literal. name_kernel() may give another name
  CpuKernel run;
  // alias[i] = j: output i is input j's memory, written in place; -1: freshly allocated. Empty: all
  // fresh.
  std::vector<int> alias = {};
  KernelCost cost = {};  // for profiles
};

// For a kernel that chooses among others when it runs: what the KernelLog and profiles call this
// run of the op, a literal that begins with the device's name. Null: as KernelSpec says. Only
// inside KernelSpec::run of a device with memory of its own.
void name_kernel(const char* kernel);

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
