#include "emulator.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <random>

#include "fiber.h"
#include "group.h"
#include "threads.h"

namespace quire::emulator {
namespace {

struct DeclaredConstant {
  int index;
  void* value;
  size_t bytes;
  std::string name;
};
struct DeclaredKernel {
  std::string file;
  std::vector<int> buffers;
  std::function<void(const Arguments&)> call;
};
std::map<std::string, std::vector<DeclaredConstant>>& constants_of_files() {
  static std::map<std::string, std::vector<DeclaredConstant>> constants;
  return constants;
}
std::map<std::string, DeclaredKernel>& kernels() {
  static std::map<std::string, DeclaredKernel> all;
  return all;
}

void set_constants(const Launch& launch, const std::string& file) {
  for (const DeclaredConstant& constant : constants_of_files()[file]) {
    const auto given = launch.constants.find(constant.index);
    const std::string what = launch.kernel + ": function constant " + constant.name;
    if (given == launch.constants.end()) throw Fault(what + " is not set");
    if (given->second.size != constant.bytes) throw Fault(what + " has another type");
    std::memcpy(constant.value, given->second.bytes, constant.bytes);
  }
}

void check_buffers(const Launch& launch, const DeclaredKernel& kernel) {
  for (const auto& [index, buffer] : launch.buffers)
    if (std::find(kernel.buffers.begin(), kernel.buffers.end(), index) == kernel.buffers.end())
      throw Fault(launch.kernel + ": there is no buffer " + std::to_string(index));
  for (const auto& [index, bytes] : launch.threadgroup_bytes)
    if (bytes % 16 != 0 || bytes == 0)
      throw Fault(launch.kernel + ": threadgroup memory " + std::to_string(index) + " has " +
                  std::to_string(bytes) + " bytes, not a multiple of 16");
}

std::vector<uint64_t> order_of_groups(uint64_t count, Order order, std::mt19937& random) {
  std::vector<uint64_t> groups(count);
  for (uint64_t i = 0; i < count; ++i) groups[i] = order == Order::kBackward ? count - 1 - i : i;
  if (order == Order::kShuffled) std::shuffle(groups.begin(), groups.end(), random);
  return groups;
}

}  // namespace

void run(const Launch& launch, Order order, uint32_t seed) {
  const auto found = kernels().find(launch.kernel);
  if (found == kernels().end()) throw Fault("there is no kernel " + launch.kernel);
  if (launch.threads.count() == 0 || launch.threads.count() > 1024)
    throw Fault(launch.kernel + ": a group of " + std::to_string(launch.threads.count()) +
                " threads");
  set_constants(launch, found->second.file);
  check_buffers(launch, found->second);
  std::mt19937 random(seed);
  Group group(launch, found->second.call, order, random);
  for (const uint64_t index : order_of_groups(launch.groups.count(), order, random)) {
    const auto i = static_cast<uint32_t>(index);
    group.run({i % launch.groups.x, i / launch.groups.x % launch.groups.y,
               i / launch.groups.x / launch.groups.y});
  }
}

void run_in_all_orders(const Launch& launch) {
  std::vector<std::pair<int, Buffer>> written;
  for (const auto& [index, buffer] : launch.buffers)
    if (!buffer.is_read_only) written.emplace_back(index, buffer);
  using Contents = std::vector<std::vector<uint8_t>>;
  const auto contents = [&] {
    Contents all;
    for (const auto& [index, buffer] : written) {
      const auto* data = static_cast<const uint8_t*>(buffer.data);
      all.emplace_back(data, data + buffer.bytes);
    }
    return all;
  };
  const Contents before = contents();
  Contents expected;
  const std::pair<Order, const char*> orders[] = {
      {Order::kShuffled, "shuffled"}, {Order::kBackward, "backward"}, {Order::kForward, "forward"}};
  uint32_t seed = 1;
  for (const auto& [order, name] : orders) {
    for (size_t i = 0; i < written.size(); ++i)
      std::copy_n(before[i].begin(), before[i].size(),
                  static_cast<uint8_t*>(written[i].second.data));
    run(launch, order, seed++);
    const Contents after = contents();
    if (expected.empty()) expected = after;
    for (size_t i = 0; i < written.size(); ++i)
      if (after[i] != expected[i])
        throw Fault(launch.kernel + ": buffer " + std::to_string(written[i].first) +
                    " has other bits with threads " + name);
  }
}

std::vector<std::string> kernel_names() {
  std::vector<std::string> names;
  for (const auto& [name, kernel] : kernels()) names.push_back(name);
  return names;
}

DeclareConstant::DeclareConstant(const char* file, int index, void* value, size_t bytes,
                                 const char* name) {
  constants_of_files()[file].push_back({index, value, bytes, name});
}

DeclareKernel::DeclareKernel(const char* file, const char* name, std::vector<int> buffers,
                             std::function<void(const Arguments&)> call) {
  if (!kernels().emplace(name, DeclaredKernel{file, std::move(buffers), std::move(call)}).second)
    throw Fault(std::string("two kernels are called ") + name);
}

Argument Arguments::buffer(int index, bool present) const {
  const auto found = launch->buffers.find(index);
  if (found != launch->buffers.end()) return {&found->second, index};
  if (present) throw Fault(launch->kernel + ": buffer " + std::to_string(index) + " is not bound");
  return {nullptr, index};
}

ReferenceArgument Arguments::reference(int index, bool present) const {
  return {buffer(index, present)};
}

void* Argument::address(size_t alignment, size_t bytes) const {
  alignas(16) static uint8_t absent[16];  // a reference must refer to something
  if (buffer == nullptr) return bytes == 0 ? nullptr : std::memset(absent, 0xFF, sizeof absent);
  const std::string what = "buffer " + std::to_string(index);
  if (reinterpret_cast<uintptr_t>(buffer->data) % alignment != 0)
    throw Fault(what + " is not aligned to " + std::to_string(alignment));
  if (buffer->bytes < bytes)
    throw Fault(what + " has " + std::to_string(buffer->bytes) + " bytes, not " +
                std::to_string(bytes));
  return buffer->data;
}

}  // namespace quire::emulator
