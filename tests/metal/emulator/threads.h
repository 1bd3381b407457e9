#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <source_location>
#include <string>
#include <vector>

// What the kernels' side of the emulator needs: the thread that runs, its meeting points, and the
// registry of kernels. Kernels include it through <metal_stdlib>.
namespace quire::emulator {

struct Launch;
struct Buffer;

using Place = std::source_location;

inline constexpr uint32_t kSimdWidth = 32;
inline constexpr size_t kSlotBytes = 64;  // the most that a lane gives to the others at once

// Where a thread is.
struct Position {
  uint32_t group[3], groups[3];    // this threadgroup's place, and how many there are
  uint32_t thread[3], threads[3];  // the thread's place in its group, and the group's size
  uint32_t index() const { return (thread[2] * threads[1] + thread[1]) * threads[0] + thread[0]; }
};
const Position& position();

// Throws Fault, with the place.
[[noreturn]] void fail(const std::string& what, const Place& at);

// All threads of the group come here, or it is a Fault; so it is if threadgroup memory was written
// since it was ordered last, and this does not order it.
void meet_group(const char* operation, bool orders_threadgroup_memory, const Place& at);

// What the lanes of a simdgroup gave. Valid until this lane's next meeting but one.
class Lanes {
 public:
  Lanes(const char* slots, uint32_t present, uint32_t own, Place at)
      : slots_(slots), present_(present), own_(own), at_(at) {}
  bool has(uint32_t lane) const { return lane < kSimdWidth && (present_ >> lane & 1) != 0; }
  uint32_t own() const { return own_; }
  // Fault if that lane is not there.
  const char* slot(uint32_t lane) const {
    if (!has(lane)) fail_without(lane);
    return slots_ + lane * kSlotBytes;
  }

 private:
  [[noreturn]] void fail_without(uint32_t lane) const;

  const char* slots_;
  uint32_t present_, own_;
  Place at_;
};
// Changes what the lanes of a simdgroup gave, all at once: slots of kSlotBytes, and which of them
// are there.
using CombineLanes = void (*)(char* slots, uint32_t present);
// All lanes of the simdgroup that have not returned come here, each with some bytes. Where the last
// one has come, `combine` is called once; null: the bytes stay as they are.
Lanes meet_lanes(const char* operation, const void* bytes, size_t count, const Place& at,
                 CombineLanes combine = nullptr);

// Called where a kernel declares threadgroup memory: fills it once for each group.
void declare_threadgroup_memory(void* memory, size_t bytes, const Place& at = Place::current());

// What a kernel finds at an index; its type is that of the kernel's parameter.
struct Argument {
  const Buffer* buffer;  // null: absent, which is fine for what a function constant switches off
  int index;
  template <class T>
  operator T*() const {
    return static_cast<T*>(address(alignof(T), 0));
  }

 private:
  friend struct ReferenceArgument;
  void* address(size_t alignment, size_t bytes) const;
};
struct ReferenceArgument {
  Argument argument;
  template <class T>
  operator T&() const {
    return *static_cast<T*>(argument.address(alignof(T), sizeof(T)));
  }
};

struct Arguments {
  const Launch* launch;
  Argument buffer(int index, bool present = true) const;
  ReferenceArgument reference(int index, bool present = true) const;
  Argument threadgroup(int index) const;
};

// Variables of a translated file; all are static ones.
struct DeclareConstant {
  DeclareConstant(const char* file, int index, void* value, size_t bytes, const char* name);
};
struct DeclareKernel {
  // buffers: all indices that the kernel has
  DeclareKernel(const char* file, const char* name, std::vector<int> buffers,
                std::function<void(const Arguments&)> call);
};

}  // namespace quire::emulator
