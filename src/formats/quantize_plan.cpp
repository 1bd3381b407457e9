#include "formats/quantize_plan.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <string_view>

namespace quire::formats {
namespace {

constexpr std::string_view kWeight = ".weight";
constexpr std::string_view kExperts = ".mlp.experts.";

int64_t columns(const RawTensor& tensor) { return tensor.shape.back(); }
// A scalar is one row.
int64_t rows(const RawTensor& tensor) {
  if (tensor.shape.empty()) return 1;
  return columns(tensor) == 0 ? 0 : tensor.num_elements() / columns(tensor);
}

// Where a tensor's rows go: blocks of a matrix, or of a stack of matrices in the order of `expert`.
struct Place {
  std::string layer;
  int64_t expert = -1;  // -1: the tensor is all of it
  RowBlock block;
};

// "...mlp.experts.3.up_proj.weight" [n, k] is a matrix of the stack "...mlp.switch_mlp.up_proj".
std::optional<Place> place_of_expert(const RawTensor& tensor) {
  const std::string& name = tensor.name;
  const size_t at = name.find(kExperts);
  if (at == std::string::npos || tensor.shape.size() != 2 || !name.ends_with(kWeight))
    return std::nullopt;
  const char* begin = name.data() + at + kExperts.size();
  int64_t expert = -1;
  const auto parsed = std::from_chars(begin, name.data() + name.size(), expert);
  if (parsed.ec != std::errc() || *parsed.ptr != '.') return std::nullopt;
  const std::string part(parsed.ptr + 1, name.data() + name.size() - kWeight.size());
  return Place{.layer = name.substr(0, at) + ".mlp.switch_mlp." + part,
               .expert = expert,
               .block = {.tensor = &tensor, .begin = 0, .count = rows(tensor)}};
}

// "...mlp.experts.gate_up_proj" [E, 2n, k] and "...mlp.experts.down_proj" [E, n, k].
std::vector<Place> places_of_stack(const RawTensor& tensor) {
  const size_t at = tensor.name.find(kExperts);
  if (at == std::string::npos || tensor.shape.size() != 3) return {};
  const std::string part = tensor.name.substr(at + kExperts.size());
  const std::string stem = tensor.name.substr(0, at) + ".mlp.switch_mlp.";
  std::vector<std::string> parts = {part};
  if (part == "gate_up_proj") parts = {"gate_proj", "up_proj"};
  const auto halves = static_cast<int64_t>(parts.size());
  const int64_t count = tensor.shape[1] / halves;
  std::vector<Place> places;
  for (int64_t half = 0; half < halves; ++half)
    for (int64_t e = 0; e < tensor.shape[0]; ++e)
      places.push_back(
          {.layer = stem + parts[static_cast<size_t>(half)],
           .expert = e,
           .block = {
               .tensor = &tensor, .begin = e * tensor.shape[1] + half * count, .count = count}});
  return places;
}

std::vector<Place> places_of(const RawTensor& tensor) {
  if (auto expert = place_of_expert(tensor)) return {std::move(*expert)};
  if (auto stack = places_of_stack(tensor); !stack.empty()) return stack;
  // Linear layers and embeddings, the matrices of a model, are what mlx-lm quantises.
  if (tensor.shape.size() != 2 || !tensor.name.ends_with(kWeight)) return {};
  return {{.layer = tensor.name.substr(0, tensor.name.size() - kWeight.size()),
           .expert = -1,
           .block = {.tensor = &tensor, .begin = 0, .count = rows(tensor)}}};
}

QuantisedFormat format_of(const std::string& layer, const QuantisedFormat& format) {
  const bool decides = layer.ends_with(".mlp.gate") || layer.ends_with(".shared_expert_gate");
  if (!decides) return format;
  const bool affine = format.mode == QuantMode::kAffine;
  return {.bits = 8, .group_size = affine ? format.group_size : 64};
}

// Matrices of one shape and dtype, none missing.
bool is_whole(const std::vector<Place>& places) {
  const RawTensor& first = *places.front().block.tensor;
  for (size_t i = 0; i < places.size(); ++i) {
    const Place& place = places[i];
    if (place.expert >= 0 && place.expert != static_cast<int64_t>(i)) return false;
    if (place.block.count != places.front().block.count ||
        columns(*place.block.tensor) != columns(first) || place.block.tensor->dtype != first.dtype)
      return false;
  }
  return true;
}

QuantizeItem quantised_item(const std::vector<Place>& places, const QuantisedFormat& format) {
  const Place& first = places.front();
  const DType dtype = first.block.tensor->dtype;
  const int64_t k = columns(*first.block.tensor);
  std::vector<int64_t> shape;
  if (first.expert >= 0) shape.push_back(static_cast<int64_t>(places.size()));
  shape.push_back(first.block.count);
  const auto with_columns = [&](int64_t count) {
    std::vector<int64_t> whole = shape;
    whole.push_back(count);
    return whole;
  };
  QuantizeItem item = {.layer = first.layer, .format = format, .blocks = {}, .plans = {}};
  for (const Place& place : places) item.blocks.push_back(place.block);
  const bool affine = format.mode == QuantMode::kAffine;
  const auto groups = with_columns(k / format.group_size);
  item.plans = {{item.layer + ".weight", DType::kU32, with_columns(k * format.bits / 32)},
                {item.layer + ".scales", affine ? dtype : DType::kU8, groups}};
  if (affine) item.plans.push_back({item.layer + ".biases", dtype, groups});
  return item;
}

QuantizeItem kept_item(const RawTensor& tensor) {
  return {.layer = {},
          .format = {},
          .blocks = {{.tensor = &tensor, .begin = 0, .count = rows(tensor)}},
          .plans = {{tensor.name, tensor.dtype, tensor.shape}}};
}

}  // namespace

uint64_t RowBlock::row_bytes() const {
  const int64_t all = rows(*tensor);
  return all == 0 ? 0 : tensor->size / static_cast<uint64_t>(all);
}

void RowBlock::read(int64_t first, std::span<std::byte> out, ThreadPool& pool) const {
  tensor->read(static_cast<uint64_t>(begin + first) * row_bytes(), out, pool);
}

uint64_t QuantizeItem::source_bytes() const {
  uint64_t n = 0;
  for (const RowBlock& block : blocks) n += block.bytes();
  return n;
}

int64_t QuantizeItem::groups() const {
  int64_t groups = 0;
  for (const RowBlock& block : blocks)
    groups += block.count * (columns(*block.tensor) / format.group_size);
  return groups;
}

uint64_t QuantizeItem::bytes() const {
  uint64_t n = 0;
  for (const TensorPlan& plan : plans) n += plan.bytes();
  return n;
}

std::vector<QuantizeItem> plan_quantization(const Checkpoint& source, const QuantisedFormat& format,
                                            QuantizeReport& report) {
  std::map<std::string, std::vector<Place>> layers;
  std::vector<QuantizeItem> items;
  std::vector<std::string> order;  // of layers, as their first tensors come
  const auto keep = [&](const RawTensor& tensor) { items.push_back(kept_item(tensor)); };
  for (const std::string& name : source.names()) {
    // A repeated tied head would be read as a second matrix.
    if (name == "lm_head.weight" && source.config().tie_word_embeddings) continue;
    const RawTensor& tensor = *source.find(name);
    const std::vector<Place> places = places_of(tensor);
    if (places.empty()) keep(tensor);
    for (const Place& place : places) {
      auto& layer = layers[place.layer];
      if (layer.empty()) order.push_back(place.layer);
      layer.push_back(place);
    }
  }
  for (const std::string& name : order) {
    std::vector<Place>& places = layers[name];
    std::ranges::stable_sort(places, {}, &Place::expert);
    const QuantisedFormat chosen = format_of(name, format);
    const int64_t k = columns(*places.front().block.tensor);
    if (is_whole(places) && k > 0 && k % chosen.group_size == 0) {
      items.push_back(quantised_item(places, chosen));
      ++report.quantised;
      continue;
    }
    for (const Place& place : places) {
      const RawTensor& tensor = *place.block.tensor;
      if (place.block.begin != 0) continue;  // a stack is kept once
      report.kept.push_back({tensor.name, chosen.group_size});
      keep(tensor);
    }
  }
  for (const QuantizeItem& item : items) {
    report.bytes_before += item.source_bytes();
    report.bytes_after += item.bytes();
  }
  return items;
}

}  // namespace quire::formats
