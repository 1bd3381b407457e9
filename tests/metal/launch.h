#pragma once
#include <initializer_list>
#include <utility>

#include "emulator.h"
#include "ops/metal/metal_call.h"

// From what the ops say of a dispatch to what the emulator takes.
namespace quire::emulator::testing {

inline Launch launch_of(const ops::MetalCall& call,
                        std::initializer_list<std::pair<const int, Buffer>> buffers) {
  Launch launch = {.kernel = call.kernel, .buffers = buffers};
  for (const ops::MetalConstant& constant : call.constants) {
    Constant& to = launch.constants[constant.index];
    std::memcpy(to.bytes, constant.bytes, constant.size);
    to.size = constant.size;
  }
  if (call.threadgroup_bytes > 0) launch.threadgroup_bytes[0] = call.threadgroup_bytes;
  launch.groups = {call.groups.x, call.groups.y, call.groups.z};
  launch.threads = {call.threads.x, call.threads.y, call.threads.z};
  return launch;
}

}  // namespace quire::emulator::testing
