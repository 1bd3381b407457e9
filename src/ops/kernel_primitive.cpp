#include "ops/kernel_primitive.h"

#include <mlx/scheduler.h>

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "ops/array_memory.h"
#include "ops/profile.h"

namespace quire::ops {
namespace {

// The arrays of a run, without pools that it writes in place.
double bytes_of(const KernelSpec& spec, const KernelInputs& inputs, const KernelOutputs& outputs) {
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

// One node: evaluated once, which makes it the natural place for what its task needs.
class KernelPrimitive : public mx::Primitive, public std::enable_shared_from_this<KernelPrimitive> {
 public:
  KernelPrimitive(mx::Stream stream, KernelSpec spec, const Context& context)
      : Primitive(stream),
        spec_(std::move(spec)),
        runs_(context.kernels->literal_counter(spec_.op, spec_.kernel)),
        log_(context.kernels),
        pool_(context.pool),
        memory_(context.memory),
        profile_(context.profile),
        kind_(profile_ ? profile_->kind() : StepKind()) {}
  ~KernelPrimitive() override { finish_launch(); }  // a stream with an error drops its tasks

  void eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override {
    if (!arrays_.empty()) throw std::logic_error(std::string(spec_.op) + ": evaluated twice");
    arrays_.reserve(inputs.size() + outputs.size());
    for (const auto& input : inputs) {
      if (!input.flags().row_contiguous && input.size() > 1) {
        throw std::invalid_argument(std::string(spec_.op) + ": an input is not row-contiguous");
      }
      arrays_.emplace_back(input);
    }
    num_inputs_ = inputs.size();
    const auto is_fresh = [&](size_t i) { return i >= spec_.alias.size() || spec_.alias[i] < 0; };
    size_t bytes = 0;
    for (size_t i = 0; i < outputs.size(); ++i) bytes += is_fresh(i) ? outputs[i].nbytes() : 0;
    memory_->begin_launch(bytes);
    launched_ = bytes;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (is_fresh(i)) {
        outputs[i].set_data(memory_->allocate(outputs[i].nbytes()));
      } else {
        outputs[i].copy_shared_buffer(inputs[spec_.alias[i]]);
      }
      arrays_.emplace_back(outputs[i]);
    }
    runs_.fetch_add(1, std::memory_order_relaxed);
    // The graph may be gone when the stream gets to the task, so that owns this object. MLX keeps
    // the memory of inputs and outputs alive until the task has run. Not through the command
    // encoder, whose only part is to count: MLX blocks the launching thread once too many are
    // counted, and its own bookkeeping of this node is counted already.
    mx::scheduler::enqueue(stream(), [self = shared_from_this()] { self->run(); });
  }

  void eval_gpu(const std::vector<mx::array>&, std::vector<mx::array>&) override {
    throw std::runtime_error(std::string(spec_.op) + ": this build has no GPU kernel");
  }

  const char* name() const override { return spec_.op; }

 private:
  void run() {
    const KernelInputs inputs(arrays_.data(), num_inputs_);
    KernelOutputs outputs(arrays_.data() + num_inputs_, arrays_.size() - num_inputs_);
    const TimePoint start = profile_ ? Clock::now() : TimePoint();
    spec_.run(inputs, outputs);
    finish_launch();
    if (!profile_) return;
    const double seconds = seconds_since(start);
    profile_->add_kernel(kind_,
                         {.name = std::string(spec_.op) + "/" + spec_.kernel,
                          .width = spec_.cost.width,
                          .k = spec_.cost.k},
                         seconds, bytes_of(spec_, inputs, outputs));
  }

  void finish_launch() {
    if (launched_) memory_->finish_launch(*std::exchange(launched_, std::nullopt));
  }

  KernelSpec spec_;
  std::optional<size_t> launched_;  // bytes that memory_ counts for this node
  std::atomic<int64_t>& runs_;
  std::shared_ptr<KernelLog> log_;
  std::shared_ptr<ThreadPool> pool_;
  std::shared_ptr<ArrayMemory> memory_;
  std::shared_ptr<Profile> profile_;
  StepKind kind_;                    // the step that launched it
  std::vector<KernelArray> arrays_;  // inputs, then outputs
  size_t num_inputs_ = 0;
};

}  // namespace

KernelArray::KernelArray(const mx::array& a)
    : data_(const_cast<void*>(a.data<void>())),
      size_(a.size()),
      dtype_(a.dtype()),
      num_axes_(static_cast<uint32_t>(a.ndim())) {
  QUIRE_CHECK(num_axes_ <= kMaxAxes) << num_axes_ << " axes";
  std::copy(a.shape().begin(), a.shape().end(), shape_);
}

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
