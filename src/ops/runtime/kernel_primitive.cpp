#include "ops/runtime/kernel_primitive.h"

#include <mlx/scheduler.h>

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "ops/runtime/array_memory.h"
#include "ops/runtime/host_arrays.h"
#include "ops/runtime/kernel_node.h"

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

// What the kernel that this thread runs is called, once it has said so.
thread_local const char* given_name = nullptr;

// A device with memory of its own must not be handed a kernel of the CPU.
void check_device(const Context& context, const KernelSpec& spec) {
  const std::string_view device = context.device->name();
  if (context.device->host_memory() || std::string_view(spec.kernel).starts_with(device)) return;
  throw std::runtime_error(std::string(spec.op) + ": no kernel for " + std::string(device));
}

}  // namespace

void name_kernel(const char* kernel) { given_name = kernel; }

KernelPrimitive::KernelPrimitive(mx::Stream stream, KernelSpec spec, const Context& context)
    : Primitive(stream),
      spec_(std::move(spec)),
      runs_(&context.kernels->literal_counter(spec_.op, spec_.kernel)),
      log_(context.kernels),
      pool_(context.pool),
      device_(context.device),
      profile_(context.profile),
      kind_(profile_ ? profile_->kind() : StepKind()) {}

// A stream with an error drops its tasks.
KernelPrimitive::~KernelPrimitive() { finish_launch(); }

void KernelPrimitive::eval_cpu(const std::vector<mx::array>& inputs,
                               std::vector<mx::array>& outputs) {
  if (!arrays_.empty() || taken_over)
    throw std::logic_error(std::string(spec_.op) + ": evaluated twice");
  arrays_.reserve(inputs.size() + outputs.size());
  for (const auto& input : inputs) {
    if (!input.flags().row_contiguous && input.size() > 1) {
      throw std::invalid_argument(std::string(spec_.op) + ": an input is not row-contiguous");
    }
    arrays_.emplace_back(input);
  }
  num_inputs_ = inputs.size();
  ArrayMemory* memory = device_->host_memory();
  size_t bytes = 0;
  for (size_t i = 0; i < outputs.size(); ++i) bytes += alias_of(i) < 0 ? outputs[i].nbytes() : 0;
  if (memory) {
    memory->begin_launch(bytes);
    launched_ = bytes;
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (alias_of(i) < 0) {
      outputs[i].set_data(memory ? memory->allocate(outputs[i].nbytes())
                                 : mx::allocator::malloc(outputs[i].nbytes()));
    } else {
      outputs[i].copy_shared_buffer(inputs[alias_of(i)]);
    }
    arrays_.emplace_back(outputs[i]);
  }
  if (memory) count_run();  // else once it has run, when it has its name
  // The graph may be gone when the stream gets to the task, so that owns this object. MLX keeps
  // the memory of inputs and outputs alive until the task has run. Not through the command
  // encoder, whose only part is to count: MLX blocks the launching thread once too many are
  // counted, and its own bookkeeping of this node is counted already.
  mx::scheduler::enqueue(stream(), [self = shared_from_this()] { self->run_launched(); });
}

void KernelPrimitive::eval_gpu(const std::vector<mx::array>&, std::vector<mx::array>&) {
  throw std::runtime_error(std::string(spec_.op) + ": this build has no GPU kernel");
}

void KernelPrimitive::run(KernelInputs inputs, KernelOutputs outputs) {
  if (!profile_) return run_named(inputs, outputs);
  const auto key = std::make_shared<KernelKey>(
      KernelKey{.name = {}, .width = spec_.cost.width, .k = spec_.cost.k});
  device_->time(
      [&] {
        run_named(inputs, outputs);
        key->name = std::string(spec_.op) + "/" + spec_.kernel;
      },
      [profile = profile_, kind = kind_, key, bytes = bytes_of(spec_, inputs, outputs)](
          double seconds) { profile->add_kernel(kind, *key, seconds, bytes); });
}

void KernelPrimitive::run_named(KernelInputs inputs, KernelOutputs outputs) {
  if (device_->host_memory()) return spec_.run(inputs, outputs);
  given_name = nullptr;
  spec_.run(inputs, outputs);
  const char* const name = std::exchange(given_name, nullptr);
  if (!name || name == spec_.kernel) return;
  spec_.kernel = name;
  runs_ = &log_->literal_counter(spec_.op, name);
}

void KernelPrimitive::run_launched() {
  const KernelOutputs outputs(arrays_.data() + num_inputs_, arrays_.size() - num_inputs_);
  if (device_->host_memory()) {
    run({arrays_.data(), num_inputs_}, outputs);
  } else {
    run_with_host_arrays(*device_, {arrays_.data(), num_inputs_}, outputs, spec_.alias,
                         [this](KernelInputs in, KernelOutputs out) { run(in, out); });
    count_run();
  }
  finish_launch();
}

void KernelPrimitive::finish_launch() {
  if (launched_) device_->host_memory()->finish_launch(*std::exchange(launched_, std::nullopt));
}

KernelArray::KernelArray(const mx::array& a, void* data)
    : data_(data), size_(a.size()), dtype_(a.dtype()), num_axes_(static_cast<uint32_t>(a.ndim())) {
  QUIRE_CHECK(num_axes_ <= kMaxAxes) << num_axes_ << " axes";
  std::copy(a.shape().begin(), a.shape().end(), shape_);
}

std::vector<mx::array> launch_kernel(const Context& context, KernelSpec spec,
                                     std::vector<mx::Shape> shapes, std::vector<mx::Dtype> dtypes,
                                     std::vector<mx::array> inputs) {
  check_device(context, spec);
  auto primitive = std::make_shared<KernelPrimitive>(mx::default_stream(mx::Device::cpu),
                                                     std::move(spec), context);
  return mx::array::make_arrays(std::move(shapes), dtypes, std::move(primitive), std::move(inputs));
}

mx::array launch_kernel(const Context& context, KernelSpec spec, mx::Shape shape, mx::Dtype dtype,
                        std::vector<mx::array> inputs) {
  check_device(context, spec);
  auto primitive = std::make_shared<KernelPrimitive>(mx::default_stream(mx::Device::cpu),
                                                     std::move(spec), context);
  return mx::array(std::move(shape), dtype, std::move(primitive), std::move(inputs));
}

}  // namespace quire::ops
