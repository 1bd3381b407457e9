// The part of WeightLoader that takes tensors apart by rows: in any order, or head by head, or a
// head over the vocabulary of which some rows are never to be chosen.
#include <algorithm>
#include <cstring>
#include <limits>
#include <map>

#include "models/tensor_checks.h"
#include "models/weights.h"

namespace quire::models {
namespace {

// Rows that packing handles together. Spans of fewer are put in order before, because it looks a
// part up for each row and reads each part from the file on its own.
constexpr int64_t kPanelRows = 16;

bool is_scattered(std::span<const WeightRows> run) {
  return run.size() > 1 &&
         std::ranges::any_of(run, [](const WeightRows& r) { return r.count < kPanelRows; });
}

int64_t total_rows(std::span<const WeightRows> run) {
  int64_t total = 0;
  for (const WeightRows& rows : run) total += rows.count;
  return total;
}

}  // namespace

std::vector<WeightLoader::Part::RowArray> WeightLoader::Part::row_arrays() {
  if (affine) {
    const int64_t scales = affine->k / affine->format.group_size *
                           static_cast<int64_t>(affine->format.scale_dtype.size());
    std::vector<RowArray> arrays = {{affine->values, row_bytes()}, {affine->scales, scales}};
    if (affine->format.zeros == ops::ZeroPoints::kNone) arrays.push_back({affine->biases, scales});
    if (affine->format.zeros == ops::ZeroPoints::kBytes)
      arrays.push_back({affine->biases, affine->k / affine->format.group_size});
    return arrays;
  }
  if (block_float) {
    const ops::BlockFloatFormat format = ops::block_float_format(block_float->format);
    const int64_t groups = (block_float->k + format.group_size - 1) / format.group_size;
    std::vector<RowArray> arrays = {{block_float->values, row_bytes()},
                                    {block_float->scales, groups * format.scale_bytes}};
    if (block_float->format == ops::BlockFloat::kNestedNf4)
      arrays.push_back({block_float->pairs, block_float->k / 128 * 2});
    return arrays;
  }
  if (gguf) return {{gguf->data, row_bytes()}};
  return {{dense.data, row_bytes()}};
}

void WeightLoader::Part::set_rows(int64_t count) {
  n = count;
  (affine ? affine->n : block_float ? block_float->n : gguf ? gguf->n : dense.n) = count;
}

WeightLoader::Part WeightLoader::part_of_rows(Part part, int64_t begin, int64_t count) {
  for (const auto& [data, row_bytes] : part.row_arrays())
    if (data) data = static_cast<const std::byte*>(data) + begin * row_bytes;
  part.set_rows(count);
  return part;
}

WeightLoader::Part WeightLoader::copied(const Part& part, std::span<const WeightRows> order) {
  Part result = part;
  const int64_t total = total_rows(order);
  int64_t bytes = 0;
  for (const auto& [data, row_bytes] : result.row_arrays()) bytes += total * row_bytes;
  const std::shared_ptr<std::byte[]> memory(new std::byte[static_cast<size_t>(bytes)]);
  std::byte* to = memory.get();
  for (const auto& [data, row_bytes] : result.row_arrays()) {
    const auto* from = static_cast<const std::byte*>(data);
    data = to;
    for (const WeightRows& rows : order) {
      std::memcpy(to, from + rows.begin * row_bytes, static_cast<size_t>(rows.count * row_bytes));
      to += rows.count * row_bytes;
    }
  }
  result.set_rows(total);
  result.staged = nullptr;
  // An order of columns may lie in the old one.
  using Memory = std::shared_ptr<const std::byte[]>;
  const auto both = std::make_shared<std::pair<Memory, Memory>>(part.copy, memory);
  result.copy = Memory(both, memory.get());
  return result;
}

WeightLoader::Part WeightLoader::gathered(const Part& part,
                                          std::span<const WeightRows> order) const {
  int64_t begin = part.n, end = 0;
  for (const WeightRows& rows : order) {
    begin = std::min(begin, rows.begin);
    end = std::max(end, rows.begin + rows.count);
  }
  if (!part.staged) return copied(part, order);
  const std::span<const std::byte> range = part.row_bytes(begin, end - begin);
  part.staged->load(range, *context_.pool);
  Part result = copied(part, order);
  part.staged->release(range);
  return result;
}

ops::LinearWeight WeightLoader::linear(const std::vector<WeightRows>& rows, int64_t k) {
  std::map<std::string, int64_t> lengths;
  for (const WeightRows& r : rows) lengths[r.weight] += r.count;
  std::map<std::string, Part> tensors;
  std::vector<Part> parts;
  for (auto first = rows.begin(); first != rows.end();) {
    const std::string& name = first->weight;
    const auto last =
        std::find_if(first, rows.end(), [&](const WeightRows& r) { return r.weight != name; });
    if (!tensors.contains(name)) tensors[name] = take_part(name, lengths.at(name), k);
    const Part& tensor = tensors.at(name);
    if (is_scattered({first, last})) {
      parts.push_back(gathered(tensor, {first, last}));
    } else {
      for (auto r = first; r != last; ++r)
        parts.push_back(part_of_rows(tensor, r->begin, r->count));
    }
    first = last;
  }
  ops::LinearWeight result{.weight = pack(parts, /*interleave=*/false), .bias = std::nullopt};
  count_packed(result.weight);
  for (const auto& [name, part] : tensors) count_progress(part);
  if (std::ranges::any_of(rows, [](const WeightRows& r) { return !r.bias.empty(); }))
    result.bias = row_biases(rows, lengths);
  return result;
}

mx::array WeightLoader::row_biases(const std::vector<WeightRows>& rows,
                                   const std::map<std::string, int64_t>& lengths) {
  std::map<std::string, std::vector<float>> biases;
  std::vector<float> all;
  for (const WeightRows& r : rows) {
    if (r.bias.empty()) {
      all.resize(all.size() + static_cast<size_t>(r.count));
      continue;
    }
    if (!biases.contains(r.bias)) biases[r.bias] = take_floats(r.bias, {lengths.at(r.weight)});
    const auto from = biases.at(r.bias).begin() + r.begin;
    all.insert(all.end(), from, from + r.count);
  }
  return floats(all, {static_cast<int>(all.size())});
}

ops::PackedMatrix WeightLoader::transposed_matrix(Part part) {
  part = dequantised(std::move(part));
  const std::shared_ptr<formats::StagedTensor> staged = part.staged;
  if (staged) staged->load(part.row_bytes(0, part.n), *context_.pool);
  Part turned = transposed(part, /*alternating=*/false);
  if (staged) staged->release(part.row_bytes(0, part.n));
  turned.staged = nullptr;
  return pack({std::move(turned)}, /*interleave=*/false);
}

HeadPairs WeightLoader::head_pairs(const std::string& weight, const HeadRows& rows, int64_t k) {
  const int64_t stride = rows.first + rows.second;
  Part all = take_part(weight, rows.heads * stride, k);
  // Products of heads know no order of columns.
  if (all.affine && all.affine->columns) all = dequantised(std::move(all));
  HeadPairs pairs;
  for (int64_t head = 0; head < rows.heads; ++head) {
    const int64_t begin = head * stride;
    pairs.first_transposed.push_back(transposed_matrix(part_of_rows(all, begin, rows.first)));
    pairs.second.push_back(pack({part_of_rows(all, begin + rows.first, rows.second)},
                                /*interleave=*/false));
    count_packed(pairs.first_transposed.back());
    count_packed(pairs.second.back());
  }
  count_progress(all);
  return pairs;
}

ops::LinearWeight WeightLoader::head(const std::string& weight, const std::string& bias, int64_t n,
                                     int64_t k, std::span<const int64_t> never) {
  if (never.empty()) return linear(weight, bias, n, k);
  ops::LinearWeight result = linear(weight, "", n, k);
  std::vector<float> values(static_cast<size_t>(n));
  if (!bias.empty()) values = take_vector(bias, n);
  for (const int64_t id : never)
    if (id >= 0 && id < n)
      values[static_cast<size_t>(id)] = -std::numeric_limits<float>::infinity();
  result.bias = floats(values, {static_cast<int>(n)});
  return result;
}

}  // namespace quire::models
