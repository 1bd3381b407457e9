#include "cli/compute_context.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "base/cores.h"
#include "base/error.h"
#include "base/numa.h"
#include "cli/device_choice.h"
#include "ops/cpu/cpu_isa.h"
#include "ops/runtime/cpu_device.h"
#include "ops/runtime/profile.h"

namespace quire::cli {
namespace {

bool is_set(const char* variable) {
  const char* value = std::getenv(variable);
  return value && std::string_view(value) == "1";
}

// What was asked for that no GPU does, or not an Apple one if that is asked for.
std::vector<std::string> cpu_only(const ModelFlags& flags) {
  std::vector<std::string> names;
  if (flags.portable_bits) names.emplace_back("--portable-bits");
  if (flags.quant_activations == "int8") names.emplace_back("--quant-activations");
  if (!flags.adapters.empty()) names.emplace_back("--lora-modules");
  if (is_set("QUIRE_USE_REFERENCE")) names.emplace_back("QUIRE_USE_REFERENCE");
  if (std::getenv("QUIRE_CPU_ISA")) names.emplace_back("QUIRE_CPU_ISA");
  if (flags.device != "metal") {
    if (flags.ablation.eval_per_layer) names.emplace_back("--eval-per-layer");
    return names;
  }
  if (flags.profile) names.emplace_back("--profile");
  return names;
}

// Hands over how Metal's kernels are to be called. Throws LoadError for other devices.
void set_metal_ways(const ModelFlags& flags, ops::Device& device) {
  const ops::MetalWays& ways = flags.metal_ways;
  if (!ways.gathers_pages && !ways.delta_rule_in_turn) return;
  if (!device.metal())
    throw LoadError(std::string(ways.gathers_pages ? "--gather-pages" : "--delta-rule-in-turn") +
                    " is about Metal's kernels, but " + device.name() +
                    " computes; leave it out, or take --device metal");
  device.metal()->set_ways(ways);
}

// The NUMA nodes that weights and caches are spread over; none: the system puts them where it
// wants.
std::vector<int> nodes_to_use(const ModelFlags& flags) {
  if (flags.spread_memory == "off") return {};
  std::vector<int> nodes = usable_numa_nodes();
  if (nodes.size() < 2 || has_memory_policy()) return {};
  const int error = try_to_spread(nodes);
  if (error == 0) return nodes;
  std::fprintf(stderr,
               "warning: weights and caches are not spread over the %zu NUMA nodes: %s; in a "
               "container --cap-add SYS_NICE allows it\n",
               nodes.size(), std::strerror(error));
  return {};
}

std::shared_ptr<ops::Device> open_device(const ModelFlags& flags,
                                         const std::vector<std::string>& beyond_gpus) {
  std::vector<std::string> names = cpu_only(flags);
  // "cuda" hears from the loader what to do instead.
  if (flags.device == "auto") names.insert(names.end(), beyond_gpus.begin(), beyond_gpus.end());
  DeviceChoice choice = choose_device(flags.device, names, ops::find_cuda_support);
  std::shared_ptr<ops::Device> device;
  if (choice.is_metal) {
    try {
      device = ops::make_metal_device();
    } catch (const std::exception& error) {
      throw LoadError(std::string("--device metal: ") + error.what() + "; take --device cpu");
    }
  }
  if (choice.is_cuda) {
    try {
      device = ops::make_cuda_device();
    } catch (const std::exception& error) {  // all of its memory is taken, say
      if (flags.device == "cuda") throw LoadError(std::string("--device cuda: ") + error.what());
      choice.notice = std::string("the GPU is not used: ") + error.what();
    }
  }
  if (!choice.notice.empty()) std::fprintf(stderr, "quire: %s\n", choice.notice.c_str());
  if (!device && flags.gpu_memory_utilization > 0)
    throw LoadError(
        "--gpu-memory-utilization is about a GPU's memory, but the CPU computes; "
        "--kv-cache-memory sets the size of the KV cache");
  return device ? device : ops::make_cpu_device(nodes_to_use(flags));
}

}  // namespace

void limit_instruction_set() {
  if (const char* isa = std::getenv("QUIRE_CPU_ISA")) ops::force_cpu_isa(isa);
}

ops::Context make_compute_context(const ModelFlags& flags,
                                  const std::vector<std::string>& beyond_gpus) {
  // The debugging switches; CONTRIBUTING.md lists them.
  limit_instruction_set();
  ops::Context context = ops::make_context(
      flags.threads > 0 ? flags.threads : usable_physical_cores(), open_device(flags, beyond_gpus));
  set_metal_ways(flags, *context.device);
  ops::set_portable_bits(flags.portable_bits);
  if (flags.profile) context.profile = std::make_shared<ops::Profile>();
  context.use_reference = is_set("QUIRE_USE_REFERENCE");
  return context;
}

void print_device(const ops::Context& context) {
  const int threads = context.pool->num_threads();
  if (const auto bytes = context.device->total_bytes())
    std::fprintf(stderr, "%-7s %s, %.1f GiB; %d threads on the host\n", context.device->name(),
                 context.device->description().c_str(), static_cast<double>(*bytes) / (1 << 30),
                 threads);
  else
    std::fprintf(stderr, "cpu     %s%s, %d threads\n", context.device->description().c_str(),
                 context.use_reference ? " off, references on" : "", threads);
}

}  // namespace quire::cli
