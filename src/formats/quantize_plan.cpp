#include "formats/quantize_plan.h"

#include <algorithm>
#include <map>
#include <string_view>

#include "base/error.h"

namespace quire::formats {
namespace {

constexpr std::string_view kWeight = ".weight";

std::vector<Place> places_of(const HfConfig& config, const RawTensor& tensor) {
  if (auto places = places_of_experts(config, tensor); !places.empty()) return places;
  return {{.tensor = tensor.name, .matrix = view_of(tensor)}};
}

// Linear layers, embeddings and experts, the matrices of a model, are what mlx-lm quantises.
bool is_matrix(const Place& place) {
  return place.tensor.ends_with(kWeight) &&
         (place.expert >= 0 || place.matrix.tensor->shape.size() == 2);
}

// The router of a layer's experts, by the words of the families, or what weighs a shared expert.
bool decides_much(std::string_view layer) {
  constexpr std::string_view kNames[] = {
      ".mlp.gate",   ".block_sparse_moe.gate", ".mlp.gate.wg", ".block_sparse_moe.router.layer",
      ".mlp.router", ".feed_forward.router",   ".router.proj", ".shared_expert_gate"};
  return std::ranges::any_of(kNames, [&](std::string_view name) { return layer.ends_with(name); });
}

QuantisedFormat format_of(std::string_view layer, const QuantisedFormat& format) {
  if (!decides_much(layer)) return format;
  const bool affine = format.mode == QuantMode::kAffine;
  return {.bits = 8, .group_size = affine ? format.group_size : 64};
}

// Matrices of one shape and dtype, none missing.
bool is_whole(const std::vector<Place>& places) {
  const MatrixView& first = places.front().matrix;
  for (size_t i = 0; i < places.size(); ++i) {
    const auto& [name, expert, matrix] = places[i];
    if (expert >= 0 && expert != static_cast<int64_t>(i)) return false;
    if (matrix.count != first.count || matrix.columns != first.columns ||
        matrix.tensor->dtype != first.tensor->dtype)
      return false;
  }
  return true;
}

QuantizeItem item_of(const std::vector<Place>& places) {
  const Place& first = places.front();
  const RawTensor& tensor = *first.matrix.tensor;
  QuantizeItem item;
  for (const Place& place : places) item.matrices.push_back(place.matrix);
  std::vector<int64_t> shape = tensor.shape;
  if (first.expert >= 0)
    shape = {static_cast<int64_t>(places.size()), first.matrix.count, first.matrix.columns};
  else if (first.tensor != tensor.name)
    shape = {first.matrix.count, first.matrix.columns};
  item.plans = {{first.tensor, tensor.dtype, std::move(shape)}};
  return item;
}

QuantizeItem quantised_item(const std::vector<Place>& places, const std::string& layer,
                            const QuantisedFormat& format) {
  QuantizeItem item = item_of(places);
  const TensorPlan dense = item.plans.front();
  const auto with_columns = [&](int64_t count) {
    std::vector<int64_t> shape = dense.shape;
    shape.back() = count;
    return shape;
  };
  const int64_t k = dense.shape.back();
  const bool affine = format.mode == QuantMode::kAffine;
  const auto groups = with_columns(k / format.group_size);
  item.layer = layer;
  item.format = format;
  item.plans = {{layer + ".weight", DType::kU32, with_columns(k * format.bits / 32)},
                {layer + ".scales", affine ? dense.dtype : DType::kU8, groups}};
  if (affine) item.plans.push_back({layer + ".biases", dense.dtype, groups});
  return item;
}

}  // namespace

uint64_t QuantizeItem::source_bytes() const {
  uint64_t n = 0;
  for (const MatrixView& matrix : matrices) n += matrix.bytes();
  return n;
}

int64_t QuantizeItem::groups() const {
  int64_t groups = 0;
  for (const MatrixView& matrix : matrices)
    groups += matrix.count * (matrix.columns / format.group_size);
  return groups;
}

uint64_t QuantizeItem::bytes() const {
  uint64_t n = 0;
  for (const TensorPlan& plan : plans) n += plan.bytes();
  return n;
}

std::vector<QuantizeItem> plan_quantization(const Checkpoint& source, const QuantisedFormat& format,
                                            QuantizeReport& report) {
  std::map<std::string, std::vector<Place>> tensors;  // of the target
  std::vector<std::string> order;                     // as the first of their sources come
  for (const std::string& name : source.names()) {
    // A repeated tied head would be read as a second matrix.
    if (name == "lm_head.weight" && source.config().tie_word_embeddings) continue;
    for (Place& place : places_of(source.config(), *source.find(name))) {
      auto& places = tensors[place.tensor];
      if (places.empty()) order.push_back(place.tensor);
      places.push_back(std::move(place));
    }
  }
  std::vector<QuantizeItem> items;
  for (const std::string& name : order) {
    std::vector<Place>& places = tensors[name];
    std::ranges::stable_sort(places, {}, &Place::expert);
    if (!is_whole(places))
      throw LoadError(source.dir() + ": the experts of " + quote_name(name) +
                      " are not all there, or differ in shape or dtype");
    items.push_back(item_of(places));
    if (!is_matrix(places.front())) continue;
    const std::string layer = name.substr(0, name.size() - kWeight.size());
    const QuantisedFormat chosen = format_of(layer, format);
    const int64_t k = places.front().matrix.columns;
    if (k > 0 && k % chosen.group_size == 0) {
      items.back() = quantised_item(places, layer, chosen);
      ++report.quantised;
    } else {
      report.kept.push_back({name, chosen.group_size});
    }
  }
  for (const QuantizeItem& item : items) {
    report.bytes_before += item.source_bytes();
    report.bytes_after += item.bytes();
  }
  return items;
}

}  // namespace quire::formats
