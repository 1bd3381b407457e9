#pragma once
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "formats/checkpoint.h"
#include "formats/lora_adapter.h"
#include "models/weights.h"
#include "ops/lora_add/lora_add.h"

namespace quire::models {

// Packs what adapters say about a model's linear layers. Remembers which modules of them the model
// has taken: finish() refuses an adapter with others.
class AdapterLoader {
 public:
  // The adapters must outlive it. `dtype`: the model's.
  AdapterLoader(const ops::Context& context, std::span<const formats::LoraAdapter> adapters,
                mx::Dtype dtype)
      : context_(context), adapters_(adapters), dtype_(dtype), taken_(adapters.size()) {}

  // Of the linear layer whose packed rows are `rows` of stored weights ("X.weight"), of K columns
  // each, by adapter: a are those of all of its modules, one on the other, and b has a row for
  // each packed row, with zeros for the modules that the row is not of, and the adapter's factor in
  // it. Null if no adapter says anything about it. Throws LoadError naming the tensor that does not
  // fit.
  ops::LoraWeightsPtr take(const std::vector<WeightRows>& rows, int64_t k, bool interleave);

  // Throws LoadError naming a tensor that nothing took.
  void finish(const formats::Checkpoint& base) const;
  size_t packed_bytes() const { return packed_bytes_; }

 private:
  using Module = formats::LoraAdapter::Module;
  const Module* find(size_t adapter, const std::string& weight);
  std::optional<ops::LoraPair> take_pair(size_t adapter, const std::vector<WeightRows>& rows,
                                         int64_t k, bool interleave);

  const ops::Context& context_;
  std::span<const formats::LoraAdapter> adapters_;
  mx::Dtype dtype_;
  std::vector<std::set<std::string>> taken_;  // modules, by adapter
  size_t packed_bytes_ = 0;
};

// Bytes of the adapters' matrices in this dtype; padding and zeros are not counted.
int64_t adapter_bytes(std::span<const formats::LoraAdapter> adapters, mx::Dtype dtype);

}  // namespace quire::models
