#pragma once
// In place of MLX's header: its device and its command encoder for Metal, as far as the ops'
// encoder (src/ops/metal/apple_encoder.cpp) uses them. They record what they are told. What MLX or
// Metal would take in silence, or refuse on a Mac alone, is an emulator's Fault here.
#include <mlx/array.h>

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "emulator.h"

namespace NS {
using UInteger = unsigned long;
}

namespace MTL {

struct Size {
  Size(NS::UInteger x, NS::UInteger y, NS::UInteger z) : width(x), height(y), depth(z) {}
  NS::UInteger width, height, depth;
};
enum DataType { DataTypeInt, DataTypeBool };
struct Library {
  std::string text;
};
struct ComputePipelineState {
  std::string kernel;
  std::map<int, quire::emulator::Constant> constants;
  NS::UInteger maxTotalThreadsPerThreadgroup() const { return 1024; }
};

}  // namespace MTL

namespace mlx::core::metal {

using MTLFCList = std::vector<std::tuple<const void*, MTL::DataType, NS::UInteger>>;

class Device {
 public:
  MTL::Library* get_library(const std::string& name, const std::function<std::string()>& builder);
  // As MLX's: a pipeline is found by its key alone. Throws Fault if that stands for two pipelines.
  MTL::ComputePipelineState* get_kernel(const std::string& name, MTL::Library* library,
                                        const std::string& key, const MTLFCList& constants);

 private:
  std::map<std::string, MTL::Library> libraries_;
  std::map<std::pair<MTL::Library*, std::string>, MTL::ComputePipelineState> pipelines_;
};

// What a kernel finds at the index of a buffer.
struct Bound {
  array memory;     // without its owner; of numbers, empty
  bool is_written;  // the encoder was told so
  std::string numbers;
};

struct Dispatch {
  const MTL::ComputePipelineState* pipeline = nullptr;
  std::map<int, Bound> arguments = {};
  std::map<int, size_t> threadgroup_bytes = {};
  MTL::Size groups = {0, 0, 0}, threads = {0, 0, 0};
};

// Dispatches go into a command buffer until end_encoding(). MLX orders them in it by barriers.
// Command buffers may run at once, but that one waits for the last of those before it that were
// told to write memory which it is told to use; what is a temporary is left out of both. Whether
// that orders all that write memory with all others that use it is what end_encoding() checks.
class CommandEncoder {
 public:
  // A node begins. MLX keeps these arrays, and temporaries, until the GPU is done: no others may be
  // bound.
  void begin_node(const std::vector<array>& inputs, const std::vector<array>& outputs);
  void set_compute_pipeline_state(MTL::ComputePipelineState* pipeline);
  void set_input_array(const array& a, int index, int64_t offset = 0);
  void register_output_array(const array& a);
  template <class T>
  void set_bytes(const T* values, int count, int index) {
    set_numbers(
        std::string(reinterpret_cast<const char*>(values), static_cast<size_t>(count) * sizeof(T)),
        index);
  }
  void set_threadgroup_memory_length(size_t bytes, int index);
  void dispatch_threadgroups(MTL::Size groups, MTL::Size threads);
  void add_temporary(array a);

  // What one command buffer has.
  struct Commands {
    std::vector<Dispatch> dispatches;
    std::vector<array> temporaries;
  };
  // Ends it. Throws Fault if it uses memory that another one writes, or writes memory that another
  // one uses, and it does not wait for that one, directly or by way of others.
  Commands end_encoding();

 private:
  struct Use {
    std::weak_ptr<array::Data> memory;
    bool is_written = false;
    std::string kernel;
  };
  struct History {
    std::weak_ptr<array::Data> memory;  // what is allocated there later has a history of its own
    std::pair<int, std::string> writer = {-1, ""};  // the last command buffer, and its kernel
    std::vector<std::pair<int, std::string>> readers = {};  // since then
  };
  void set_numbers(std::string bytes, int index);
  void use(const array& a, bool is_written);
  bool waits_for(int later, int earlier) const;
  void check_order(const void* buffer, const Use& use);

  Dispatch current_;
  Commands commands_;
  std::set<const void*> kept_;              // buffers of the node's arrays and temporaries
  std::set<const void*> inputs_, outputs_;  // of this command buffer, as MLX remembers them
  std::map<const void*, Use> uses_;         // and as they are
  int number_ = 0;
  std::unordered_map<const void*, int> last_outputs_;
  std::vector<std::vector<int>> waits_;  // of each command buffer
  std::unordered_map<const void*, History> histories_;
};

}  // namespace mlx::core::metal
