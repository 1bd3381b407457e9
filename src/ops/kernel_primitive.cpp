#include "ops/kernel_primitive.h"

#include <mlx/allocator.h>
#include <mlx/backend/cpu/encoder.h>

#include <stdexcept>

#include "base/check.h"
#include "base/clock.h"
#include "ops/profile.h"

namespace quire::ops {
namespace {

// The arrays of a run, without pools that it writes in place.
double bytes_of(const KernelSpec& spec, const std::vector<mx::array>& inputs,
                const std::vector<mx::array>& outputs) {
  if (spec.cost.bytes >= 0) return spec.cost.bytes;
  double bytes = 0;
  for (const auto& a : inputs) bytes += static_cast<double>(a.nbytes());
  for (size_t i = 0; i < outputs.size(); ++i) {
    const int source = i < spec.alias.size() ? spec.alias[i] : -1;
    bytes += source < 0 ? static_cast<double>(outputs[i].nbytes())
                        : -static_cast<double>(inputs[source].nbytes());
  }
  return bytes;
}

// `run` with its time told to the profile, under the kind of step that is being launched.
CpuKernel timed(const KernelSpec& spec, std::shared_ptr<Profile> profile, double bytes) {
  KernelKey key{
      .name = std::string(spec.op) + "/" + spec.kernel, .width = spec.cost.width, .k = spec.cost.k};
  return [run = spec.run, profile, kind = profile->kind(), key = std::move(key), bytes](
             const std::vector<mx::array>& in, std::vector<mx::array>& out) {
    const TimePoint start = Clock::now();
    run(in, out);
    profile->add_kernel(kind, key, seconds_since(start), bytes);
  };
}

class KernelPrimitive : public mx::Primitive {
 public:
  KernelPrimitive(mx::Stream stream, KernelSpec spec, const Context& context)
      : Primitive(stream),
        runs_(context.kernels->counter(spec.op, spec.kernel)),
        log_(context.kernels),
        pool_(context.pool),
        profile_(context.profile),
        spec_(std::move(spec)) {}

  void eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override {
    for (const auto& input : inputs) {
      if (!input.flags().row_contiguous && input.size() > 1) {
        throw std::invalid_argument(std::string(spec_.op) + ": an input is not row-contiguous");
      }
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      const int source = i < spec_.alias.size() ? spec_.alias[i] : -1;
      if (source >= 0) {
        outputs[i].copy_shared_buffer(inputs[source]);
      } else {
        outputs[i].set_data(mx::allocator::malloc(outputs[i].nbytes()));
      }
    }
    runs_.fetch_add(1, std::memory_order_relaxed);
    // The task holds the closure, not this object: the graph may be gone when the stream gets to
    // it. Weak copies of the arrays suffice, because MLX keeps inputs and outputs alive until the
    // task has run.
    std::vector<mx::array> in, out;
    for (const auto& a : inputs) in.push_back(mx::array::unsafe_weak_copy(a));
    for (const auto& a : outputs) out.push_back(mx::array::unsafe_weak_copy(a));
    mx::cpu::get_command_encoder(stream()).dispatch(
        [run = profile_ ? timed(spec_, profile_, bytes_of(spec_, inputs, outputs)) : spec_.run,
         log = log_, pool = pool_, in = std::move(in),
         out = std::move(out)]() mutable { run(in, out); });
  }

  void eval_gpu(const std::vector<mx::array>&, std::vector<mx::array>&) override {
    throw std::runtime_error(std::string(spec_.op) + ": this build has no GPU kernel");
  }

  const char* name() const override { return spec_.op; }

 private:
  std::atomic<int64_t>& runs_;
  std::shared_ptr<KernelLog> log_;
  std::shared_ptr<ThreadPool> pool_;
  std::shared_ptr<Profile> profile_;
  KernelSpec spec_;
};

}  // namespace

std::vector<mx::array> launch_kernel(const Context& context, KernelSpec spec,
                                     std::vector<mx::Shape> shapes, std::vector<mx::Dtype> dtypes,
                                     std::vector<mx::array> inputs) {
  auto primitive = std::make_shared<KernelPrimitive>(mx::default_stream(mx::Device::cpu),
                                                     std::move(spec), context);
  return mx::array::make_arrays(std::move(shapes), dtypes, std::move(primitive), std::move(inputs));
}

mx::array launch_kernel(const Context& context, KernelSpec spec, mx::Shape shape, mx::Dtype dtype,
                        std::vector<mx::array> inputs) {
  auto primitive = std::make_shared<KernelPrimitive>(mx::default_stream(mx::Device::cpu),
                                                     std::move(spec), context);
  return mx::array(std::move(shape), dtype, std::move(primitive), std::move(inputs));
}

}  // namespace quire::ops
