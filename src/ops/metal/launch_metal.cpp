#include "ops/metal/launch_metal.h"

#include <mlx/primitives.h>

#include <stdexcept>
#include <string>
#include <utility>

#include "base/check.h"

namespace quire::ops {
namespace {

class MetalPrimitive final : public mx::Primitive {
 public:
  MetalPrimitive(mx::Stream stream, MetalSpec spec, const Context& context)
      : Primitive(stream),
        spec_(std::move(spec)),
        runs_(context.kernels->literal_counter(spec_.op, "metal")),
        log_(context.kernels),
        device_(context.device) {}

  // Which of the two MLX calls is the device's choice: an emulator has no GPU.
  void eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override {
    encode(inputs, outputs);
  }
  void eval_gpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override {
    encode(inputs, outputs);
  }
  const char* name() const override { return spec_.op; }

 private:
  void encode(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) {
    for (const mx::array& input : inputs) check(input);
    for (size_t i = 0; i < outputs.size(); ++i) {
      const int source = i < spec_.alias.size() ? spec_.alias[i] : -1;
      if (source < 0)
        outputs[i].set_data(device_->metal()->allocate_array(outputs[i].nbytes()));
      else
        outputs[i].copy_shared_buffer(inputs[static_cast<size_t>(source)]);
    }
    runs_.fetch_add(1, std::memory_order_relaxed);
    device_->metal()->encode(stream(), spec_.op, spec_.encode, inputs, outputs);
  }

  void check(const mx::array& input) const {
    if (!input.flags().row_contiguous && input.size() > 1)
      throw std::invalid_argument(std::string(spec_.op) + ": an input is not row-contiguous");
    if (input.offset() % spec_.alignment != 0)
      throw std::invalid_argument(std::string(spec_.op) + ": an input begins at byte " +
                                  std::to_string(input.offset()) + " of its buffer");
  }

  MetalSpec spec_;
  std::atomic<int64_t>& runs_;
  std::shared_ptr<KernelLog> log_;
  std::shared_ptr<Device> device_;
};

}  // namespace

std::vector<mx::array> launch_metal(const Context& context, MetalSpec spec,
                                    std::vector<mx::Shape> shapes, std::vector<mx::Dtype> dtypes,
                                    std::vector<mx::array> inputs) {
  QUIRE_CHECK(context.device->metal()) << spec.op;
  auto primitive = std::make_shared<MetalPrimitive>(mx::default_stream(mx::default_device()),
                                                    std::move(spec), context);
  return mx::array::make_arrays(std::move(shapes), dtypes, std::move(primitive), std::move(inputs));
}

}  // namespace quire::ops
