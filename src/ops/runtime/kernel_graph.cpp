#include "ops/runtime/kernel_graph.h"

#include <mlx/scheduler.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <map>
#include <span>
#include <stdexcept>
#include <typeinfo>
#include <utility>

#include "ops/runtime/array_memory.h"
#include "ops/runtime/kernel_node.h"
#include "ops/runtime/recorded_step.h"

namespace quire::ops {
namespace {

// What a kernel reads or writes. Values are numbered; `value` is -1 for what exists already.
struct Operand {
  KernelArray array;
  int32_t value = -1;
};

// Memory that kernels of the graph share.
struct Value {
  void* data = nullptr;
  size_t bytes = 0;
  size_t last_use = 0;        // the last node that reads or writes it
  bool is_inner = true;       // taken and given back by the graph; else an output's memory
  int32_t same_as = kItself;  // whose memory it is: another value's, or an evaluated array's
  static constexpr int32_t kItself = -1, kEvaluated = -2;
};

struct Node {
  std::shared_ptr<KernelPrimitive> kernel;
  size_t first_operand = 0;
  size_t num_inputs = 0, num_outputs = 0;
};

// All kernels in an order in which they can run, and what they work on.
struct Plan {
  std::shared_ptr<Device> device;
  std::vector<Node> nodes;
  std::vector<Operand> operands;  // of each node: inputs, outputs
  std::vector<Value> values;
  std::vector<mx::array> evaluated;  // what the kernels read that existed before: kept alive
  std::vector<mx::array> pending;    // the same, launched and perhaps not finished: inputs for MLX
  std::vector<size_t> pending_operands;  // the operand that each one is

  explicit Plan(std::shared_ptr<Device> d) : device(std::move(d)) {}
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;
  ~Plan() {
    for (const Value& value : values)
      if (value.is_inner && value.data) device->give_back(value.data);
  }
  // MLX launches it, on the host's arrays; else the device is handed it as it is.
  bool is_for_host() const { return device->host_memory() != nullptr; }
};

bool is_unscheduled(const mx::array& a) {
  return a.status() == mx::array::Status::unscheduled && a.has_primitive();
}

// The kernel that will write `a`; null if none will.
KernelPrimitive* kernel_of(const mx::array& a) {
  if (!is_unscheduled(a)) return nullptr;
  mx::Primitive& primitive = a.primitive();
  return typeid(primitive) == typeid(KernelPrimitive) ? static_cast<KernelPrimitive*>(&primitive)
                                                      : nullptr;
}

// Walks from the wanted arrays to what exists, inputs first.
class Planner {
 public:
  explicit Planner(Plan& plan) : plan_(plan) {
    static std::atomic<uint64_t> walks{0};
    walk_ = ++walks;
    plan_.nodes.reserve(256);
    plan_.operands.reserve(1024);
    plan_.values.reserve(512);
  }

  // False: something is not a kernel.
  bool visit(const mx::array& wanted) {
    stack_.clear();
    if (!push(wanted)) return false;
    while (!stack_.empty()) {
      Frame& top = stack_.back();
      if (top.next < top.array->inputs().size()) {
        const mx::array& input = top.array->inputs()[top.next++];
        if (!push(input)) return false;
      } else {
        const mx::array& array = *top.array;
        stack_.pop_back();
        append(array);
      }
    }
    return true;
  }

  // The value that holds an array's memory, or -1: it was evaluated before.
  int32_t value_of(const mx::array& a) const {
    const mx::array* source = &a;
    while (is_reshape(*source)) source = &source->inputs()[0];
    const KernelPrimitive* kernel = kernel_of(*source);
    if (!kernel) return -1;
    auto value = static_cast<int32_t>(kernel->first_value + source->sibling_position());
    while (plan_.values[value].same_as >= 0) value = plan_.values[value].same_as;
    return plan_.values[value].same_as == Value::kEvaluated ? -1 : value;
  }

 private:
  struct Frame {
    const mx::array* array;
    size_t next = 0;
  };

  static bool is_reshape(const mx::array& a) {
    return is_unscheduled(a) && std::strcmp(a.primitive().name(), "Reshape") == 0;
  }

  bool push(const mx::array& a) {
    const mx::array* array = &a;
    while (is_reshape(*array)) array = &array->inputs()[0];
    // Only a kernel's output is known to be contiguous, so that reshaping moves nothing.
    if (array != &a && !kernel_of(*array)) return false;
    if (!is_unscheduled(*array)) return true;
    KernelPrimitive* kernel = kernel_of(*array);
    if (!kernel || kernel->taken_over) {
      if (!plan_.is_for_host())
        refuse(array->primitive().name(), "is no kernel that can run there");
      return false;
    }
    if (std::exchange(kernel->walk, walk_) != walk_) stack_.push_back({array});
    return true;
  }

  void append(const mx::array& output) {
    KernelPrimitive* kernel = kernel_of(output);
    const size_t node = plan_.nodes.size();
    plan_.nodes.push_back({.kernel = kernel->shared_from_this(),
                           .first_operand = plan_.operands.size(),
                           .num_inputs = output.inputs().size(),
                           .num_outputs = output.siblings().size() + 1});
    for (const mx::array& input : output.inputs()) append_input(input, node);
    kernel->first_value = plan_.values.size();
    const auto position = static_cast<size_t>(output.sibling_position());
    for (size_t i = 0; i < plan_.nodes.back().num_outputs; ++i)
      append_output(i == position ? output : output.siblings()[i - (i > position)], i, node);
  }

  [[noreturn]] void refuse(const std::string& op, const std::string& what) const {
    throw std::runtime_error("a step on " + std::string(plan_.device->name()) + ": " + op + " " +
                             what);
  }

  void append_input(const mx::array& input, size_t node) {
    const int32_t value = value_of(input);
    if (value >= 0) plan_.values[value].last_use = node;
    if (value >= 0 || is_unscheduled(input)) {  // the latter: a pool, as a kernel handed it on
      plan_.operands.push_back(
          {KernelArray(input, value >= 0 ? nullptr : memory_of(input)), value});
      return;
    }
    if (!input.flags().row_contiguous && input.size() > 1)
      throw std::invalid_argument("a kernel's input is not row-contiguous");
    const bool available = input.is_available();
    if (!plan_.is_for_host() && (!available || !plan_.device->owns(input.data<void>())))
      refuse(plan_.nodes[node].kernel->name(), "is given an array that is not there");
    if (!available) plan_.pending_operands.push_back(plan_.operands.size());
    (available ? plan_.evaluated : plan_.pending).push_back(input);
    plan_.operands.push_back({KernelArray(input), -1});
  }

  void append_output(const mx::array& output, size_t index, size_t node) {
    const Node& self = plan_.nodes[node];
    const int source = self.kernel->alias_of(index);
    if (source < 0) {
      plan_.values.push_back({.bytes = output.nbytes(), .last_use = node});
      plan_.operands.push_back(
          {KernelArray(output, nullptr), static_cast<int32_t>(plan_.values.size()) - 1});
      return;
    }
    const Operand aliased = plan_.operands[self.first_operand + static_cast<size_t>(source)];
    plan_.values.push_back(
        {.is_inner = false, .same_as = aliased.value >= 0 ? aliased.value : Value::kEvaluated});
    KernelArray array(output, const_cast<void*>(aliased.array.data<void>()));
    plan_.values.back().data = array.data<void>();
    plan_.operands.push_back({array, aliased.value});
  }

  // Of an array that is the same as an evaluated one.
  void* memory_of(const mx::array& a) const {
    const mx::array* source = &a;
    while (is_reshape(*source)) source = &source->inputs()[0];
    const KernelPrimitive* kernel = kernel_of(*source);
    return plan_.values[kernel->first_value + static_cast<size_t>(source->sibling_position())].data;
  }

  Plan& plan_;
  uint64_t walk_ = 0;
  std::vector<Frame> stack_;
};

// Runs a plan: on the stream's thread, or, if the kernels hand their work on to a device, on the
// caller's.
void run_plan(Plan& plan) {
  std::vector<KernelArray> arrays;
  for (size_t n = 0; n < plan.nodes.size(); ++n) {
    const Node& node = plan.nodes[n];
    const std::span<Operand> operands(plan.operands.data() + node.first_operand,
                                      node.num_inputs + node.num_outputs);
    arrays.clear();
    for (Operand& operand : operands) {
      if (operand.value >= 0) {
        Value& value = plan.values[operand.value];
        if (!value.data) value.data = plan.device->take(value.bytes);
        operand.array.set_data(value.data);
      }
      arrays.push_back(operand.array);
    }
    node.kernel->run({arrays.data(), node.num_inputs},
                     {arrays.data() + node.num_inputs, node.num_outputs});
    for (const Operand& operand : operands) {
      if (operand.value < 0) continue;
      Value& value = plan.values[operand.value];
      if (value.is_inner && value.last_use == n && value.data)
        plan.device->give_back(std::exchange(value.data, nullptr));
    }
  }
}

// The node that stands for all kernels of a plan.
class KernelGraphPrimitive : public mx::Primitive {
 public:
  KernelGraphPrimitive(mx::Stream stream, std::shared_ptr<Plan> plan,
                       std::vector<int32_t> output_values)
      : Primitive(stream), plan_(std::move(plan)), output_values_(std::move(output_values)) {}

  void eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override {
    if (!plan_) throw std::logic_error("kernel_graph: evaluated twice");
    const std::shared_ptr<Plan> plan = std::exchange(plan_, nullptr);
    for (size_t i = 0; i < plan->pending_operands.size(); ++i)
      plan->operands[plan->pending_operands[i]].array = KernelArray(inputs[i]);
    for (size_t i = 0; i < outputs.size(); ++i) {
      outputs[i].set_data(plan->device->host_memory()->allocate(outputs[i].nbytes()));
      if (i < output_values_.size())  // the last one only says that all have run
        plan->values[output_values_[i]].data = outputs[i].data<void>();
    }
    outputs.back().data<uint8_t>()[0] = 1;
    for (const Node& node : plan->nodes) node.kernel->count_run();
    mx::scheduler::enqueue(stream(), [plan] { run_plan(*plan); });
  }

  void eval_gpu(const std::vector<mx::array>&, std::vector<mx::array>&) override {
    throw std::runtime_error("kernel_graph: this build has no GPU kernels");
  }

  const char* name() const override { return "kernel_graph"; }

 private:
  std::shared_ptr<Plan> plan_;
  std::vector<int32_t> output_values_;
};

// Hands the plan to a device with memory of its own: the outputs are arrays there at once.
KernelGraph hand_over(std::shared_ptr<Plan> plan, const std::vector<int32_t>& output_values,
                      const std::vector<mx::array>& outputs) {
  KernelGraph graph{.outputs = {}, .done = mx::array(uint8_t{1}), .resources = plan};
  for (size_t i = 0; i < outputs.size(); ++i) {
    graph.outputs.push_back(plan->device->take_array(outputs[i].shape(), outputs[i].dtype()));
    plan->values[output_values[i]].data = graph.outputs.back().data<void>();
  }
  run_plan(*plan);
  for (const Node& node : plan->nodes) node.kernel->count_run();
  return graph;
}

// Fills a plan and takes its kernels over; the values that are the outputs. Absent, with nothing
// changed: something is no kernel, or no output of its own.
std::optional<std::vector<int32_t>> plan_kernels(Plan& plan, const std::vector<mx::array>& outputs,
                                                 const std::vector<mx::array>& effects) {
  Planner planner(plan);
  for (const auto* wanted : {&outputs, &effects})
    for (const mx::array& a : *wanted)
      if (!planner.visit(a)) return std::nullopt;
  std::vector<int32_t> output_values;
  for (const mx::array& output : outputs) {
    const int32_t value = planner.value_of(output);
    if (value < 0 || std::count(output_values.begin(), output_values.end(), value) > 0)
      return std::nullopt;
    output_values.push_back(value);
  }
  for (const int32_t value : output_values) plan.values[value].is_inner = false;
  for (const Node& node : plan.nodes) node.kernel->taken_over = true;
  return output_values;
}

// What a run of all kernels adds to the log. Each counter once, however many kernels it is of: it
// is for every step.
using KernelRuns = std::vector<std::pair<std::atomic<int64_t>*, int64_t>>;
KernelRuns runs_of(const Context& context, const Plan& plan) {
  std::map<std::atomic<int64_t>*, int64_t> runs;
  for (const char* what : {"kernel_graph", "replay"})
    ++runs[&context.kernels->literal_counter(what, context.device->name())];
  for (const Node& node : plan.nodes) ++runs[&node.kernel->runs()];
  return {runs.begin(), runs.end()};
}

}  // namespace

std::optional<KernelGraph> join_kernels(const Context& context,
                                        const std::vector<mx::array>& outputs,
                                        const std::vector<mx::array>& effects,
                                        const std::optional<mx::array>& after) {
  if (context.device->metal()) return std::nullopt;  // MLX's graph is what runs there
  auto plan = std::make_shared<Plan>(context.device);
  auto output_values = plan_kernels(*plan, outputs, effects);
  if (!output_values) return std::nullopt;
  std::vector<mx::Shape> shapes;
  std::vector<mx::Dtype> dtypes;
  for (const mx::array& output : outputs) {
    shapes.push_back(output.shape());
    dtypes.push_back(output.dtype());
  }
  shapes.push_back({1});
  dtypes.push_back(mx::uint8);
  context.kernels->literal_counter("kernel_graph", context.device->name())
      .fetch_add(1, std::memory_order_relaxed);
  if (!plan->is_for_host()) return hand_over(std::move(plan), *output_values, outputs);
  std::vector<mx::array> inputs = std::exchange(plan->pending, {});
  if (after) inputs.push_back(*after);
  auto primitive = std::make_shared<KernelGraphPrimitive>(mx::default_stream(mx::Device::cpu), plan,
                                                          std::move(*output_values));
  auto arrays = mx::array::make_arrays(std::move(shapes), dtypes, std::move(primitive), inputs);
  mx::array done = std::move(arrays.back());
  arrays.pop_back();
  return KernelGraph{
      .outputs = std::move(arrays), .done = std::move(done), .resources = std::move(plan)};
}

std::unique_ptr<RecordedStep> record_kernels(const Context& context, const StepValues& values,
                                             const mx::array& previous,
                                             const std::vector<mx::array>& outputs,
                                             const std::vector<mx::array>& effects,
                                             size_t num_read) {
  auto plan = std::make_shared<Plan>(context.device);
  const auto output_values = plan_kernels(*plan, outputs, effects);
  if (!output_values)
    throw std::runtime_error("a step is to be recorded that has more than kernels");
  const auto runs = std::make_shared<KernelRuns>();
  StepRecording recording{.values = values,
                          .previous = previous,
                          .outputs = outputs,
                          .run =
                              [plan, output_values](std::span<void* const> memory) {
                                for (size_t i = 0; i < memory.size(); ++i)
                                  plan->values[(*output_values)[i]].data = memory[i];
                                run_plan(*plan);
                              },
                          .count =
                              [log = context.kernels, runs] {
                                for (const auto& [counter, times] : *runs)
                                  counter->fetch_add(times, std::memory_order_relaxed);
                              },
                          .num_read = num_read};
  auto step = context.device->record(std::move(recording));
  *runs = runs_of(context, *plan);  // now that the kernels have their names
  return step;
}

}  // namespace quire::ops
