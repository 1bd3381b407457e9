#include "models/adapters.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "base/error.h"
#include "models/tensor_checks.h"
#include "ops/linear/pack/convert_cpu.h"
#include "ops/linear/ungated.h"
#include "ops/runtime/shape_check.h"

namespace quire::models {
namespace {

// The least magnitude that becomes infinite in a dtype of floats.
float overflow_of(mx::Dtype dtype) {
  if (dtype == mx::float16) return 65520;
  return dtype == mx::bfloat16 ? 0x1.FFp127f : std::numeric_limits<float>::infinity();
}

// The values of a matrix times `factor`, row by row. Throws LoadError for one that `dtype` does not
// have.
std::vector<float> read_floats(const formats::RawTensor& tensor, float factor, mx::Dtype dtype) {
  const std::vector<std::byte> stored = tensor.read_all();
  std::vector<float> values(static_cast<size_t>(tensor.num_elements()));
  ops::convert_cpu(stored.data(), ops::check_float("adapter", "a tensor", float_dtype(tensor)),
                   values.data(), ops::FloatType::kF32, tensor.num_elements());
  const float overflow = overflow_of(dtype);
  for (float& value : values) {
    if (!std::isfinite(value))
      throw LoadError(where(tensor) +
                      " holds a value that is no number or infinite: the file is damaged, or its "
                      "training failed");
    value *= factor;
    if (!(std::abs(value) < overflow))
      throw LoadError(where(tensor) +
                      " holds a value that is too large for this model's dtype; --dtype float32 "
                      "has more room");
  }
  return values;
}

void expect_length(const formats::RawTensor& tensor, size_t axis, int64_t expected,
                   const std::string& weight) {
  if (tensor.shape[axis] == expected) return;
  throw LoadError(where(tensor) + " has shape " + shape_text(tensor.shape) + ", but " +
                  layer_name(weight) + " of this model has " + std::to_string(expected) +
                  (axis == 0 ? " outputs" : " inputs") + ": the adapter is of another model");
}

// The stored weights that packed rows are of, in their order, and how many rows each has.
struct StoredRows {
  std::string weight;
  int64_t count = 0;
};
std::vector<StoredRows> stored_rows(const std::vector<WeightRows>& rows) {
  std::vector<StoredRows> stored;
  for (const WeightRows& part : rows) {
    auto same = std::ranges::find(stored, part.weight, &StoredRows::weight);
    if (same == stored.end()) same = stored.insert(same, {.weight = part.weight});
    same->count = std::max(same->count, part.begin + part.count);
  }
  return stored;
}

ops::RowMatrix as_matrix(const std::vector<float>& values, int64_t n, int64_t k) {
  return {.data = values.data(), .n = n, .k = k, .dtype = mx::float32};
}

}  // namespace

// Under the names that WeightLoader finds a model's weights by, too: an adapter may have been
// trained on the model inside its wrapper, or the other way round.
const formats::LoraAdapter::Module* AdapterLoader::find(size_t adapter, const std::string& weight) {
  const std::string layer = layer_name(weight);
  std::vector<std::string> names = {layer, "language_model." + layer};
  constexpr std::string_view kModel = "model.";
  if (layer.starts_with(kModel)) {
    const std::string rest = layer.substr(kModel.size());
    names.push_back("model.language_model." + rest);
    names.push_back(rest);
  }
  for (const std::string& name : names) {
    const auto found = adapters_[adapter].modules().find(name);
    if (found == adapters_[adapter].modules().end()) continue;
    taken_[adapter].insert(name);
    return &found->second;
  }
  return nullptr;
}

std::optional<ops::LoraPair> AdapterLoader::take_pair(size_t adapter,
                                                      const std::vector<WeightRows>& rows,
                                                      int64_t k, bool interleave) {
  const int64_t rank = adapters_[adapter].rank();
  const float scaling = adapters_[adapter].scaling();
  struct Taken {
    int64_t first;         // of its columns in b
    std::vector<float> b;  // [n, rank], with the adapter's factor
  };
  std::vector<float> a;  // [columns, k]
  std::map<std::string, Taken> modules;
  for (const StoredRows& stored : stored_rows(rows)) {
    const Module* module = find(adapter, stored.weight);
    if (!module) continue;
    expect_length(*module->a, 1, k, stored.weight);
    expect_length(*module->b, 0, stored.count, stored.weight);
    modules[stored.weight] = {.first = static_cast<int64_t>(modules.size()) * rank,
                              .b = read_floats(*module->b, scaling, dtype_)};
    const std::vector<float> own = read_floats(*module->a, 1, dtype_);
    a.insert(a.end(), own.begin(), own.end());
  }
  if (modules.empty()) return std::nullopt;
  const int64_t columns = static_cast<int64_t>(modules.size()) * rank;
  std::vector<float> b;  // [rows, columns]
  for (const WeightRows& part : rows) {
    const size_t at = b.size();
    b.resize(at + static_cast<size_t>(part.count * columns));
    const auto module = modules.find(part.weight);
    if (module == modules.end()) continue;
    for (int64_t row = 0; row < part.count; ++row)
      for (int64_t r = 0; r < rank; ++r)
        b[at + static_cast<size_t>(row * columns + module->second.first + r)] =
            module->second.b[static_cast<size_t>((part.begin + row) * rank + r)];
  }
  const ops::RowMatrix a_rows = as_matrix(a, columns, k);
  const ops::RowMatrix b_rows = as_matrix(b, static_cast<int64_t>(b.size()) / columns, columns);
  ops::LoraPair pair = {.a = ops::pack_matrix(context_, {&a_rows, 1}, dtype_),
                        .b = ops::pack_matrix(context_, {&b_rows, 1}, dtype_, interleave)};
  if (interleave) pair.b = ops::ungated(pair.b);
  packed_bytes_ += pair.a.nbytes() + pair.b.nbytes();
  return pair;
}

ops::LoraWeightsPtr AdapterLoader::take(const std::vector<WeightRows>& rows, int64_t k,
                                        bool interleave) {
  ops::LoraWeights weights;
  for (size_t adapter = 0; adapter < adapters_.size(); ++adapter)
    weights.push_back(take_pair(adapter, rows, k, interleave));
  const bool any = std::ranges::any_of(weights, [](const auto& pair) { return pair.has_value(); });
  return any ? std::make_shared<const ops::LoraWeights>(std::move(weights)) : nullptr;
}

void AdapterLoader::finish(const formats::Checkpoint& base) const {
  for (size_t i = 0; i < adapters_.size(); ++i) {
    adapters_[i].check_unchanged();
    for (const auto& [name, module] : adapters_[i].modules()) {
      if (taken_[i].contains(name)) continue;
      const bool is_there = find_tensor(base, name + ".weight") != nullptr;
      throw LoadError(where(*module.a) +
                      (is_there ? " is of a layer that takes no adapter here: those of attention, "
                                  "gated delta nets, MLPs and shared experts do; routers, experts, "
                                  "embeddings and heads do not"
                                : " is of a layer that this model does not have: the adapter is of "
                                  "another model"));
    }
  }
}

int64_t adapter_bytes(std::span<const formats::LoraAdapter> adapters, mx::Dtype dtype) {
  int64_t elements = 0;
  for (const formats::LoraAdapter& adapter : adapters)
    for (const auto& [name, module] : adapter.modules())
      elements += module.a->num_elements() + module.b->num_elements();
  return elements * static_cast<int64_t>(dtype.size());
}

Projection WeightLoader::projection(ops::LinearWeight weight, const std::vector<WeightRows>& rows,
                                    int64_t k) {
  Projection projection(std::move(weight));
  const ops::PackedMatrix& matrix = projection.weight.weight;
  if (!adapters_) return projection;
  projection.lora = adapters_->take(rows, k, matrix.interleaved && !matrix.parts);
  if (projection.lora && matrix.interleaved)
    projection.ungated = ops::ungated(context_, projection.weight);
  return projection;
}

Projection WeightLoader::projection(const std::vector<WeightRows>& rows, int64_t k) {
  return projection(linear(rows, k), rows, k);
}

Projection WeightLoader::projection(const std::string& weight, const std::string& bias, int64_t n,
                                    int64_t k) {
  return projection(linear(weight, bias, n, k), {{.weight = weight, .count = n}}, k);
}

}  // namespace quire::models
