#include "formats/expert_places.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>

namespace quire::formats {
namespace {

constexpr std::string_view kWeight = ".weight";

// Families that store a tensor an expert and matrix, "...mlp.experts.3.up_proj.weight".
struct Numbered {
  std::string_view stored, mlx;
};
constexpr Numbered kNumbered[] = {{".mlp.experts.", ".mlp.switch_mlp."},
                                  {".feed_forward.experts.", ".feed_forward.experts."},
                                  {".block_sparse_moe.experts.", ".block_sparse_moe.switch_mlp."}};

// Families that store all experts of a layer in one tensor, "...mlp.experts.gate_up_proj".
struct Stacked {
  std::string_view stored, mlx;
  bool transposed = false;   // [E, k, n], not [E, n, k]
  bool alternating = false;  // gate and up take turns; else up follows gate
};
constexpr Stacked kStacked[] = {
    {".mlp.experts.", ".mlp.switch_mlp."},
    {".feed_forward.experts.", ".feed_forward.experts.", true},
    {".block_sparse_moe.", ".block_sparse_moe.switch_mlp."},
    {".experts.", ".experts.switch_glu."},
};
constexpr Stacked kGptOss = {".mlp.experts.", ".mlp.experts.", true, true};

// By their words and by Mixtral's and Granite's.
std::string mlx_name(std::string_view part) {
  if (part == "w1") return "gate_proj";
  if (part == "w3") return "up_proj";
  if (part == "w2") return "down_proj";
  return std::string(part);
}
std::vector<std::string> mlx_names(std::string_view part) {
  if (part == "gate_up_proj" || part == "input_linear.weight") return {"gate_proj", "up_proj"};
  if (part == "down_proj" || part == "output_linear.weight") return {"down_proj"};
  return {};
}

std::optional<Place> numbered_place(const RawTensor& tensor) {
  const std::string& name = tensor.name;
  if (tensor.shape.size() != 2 || !name.ends_with(kWeight)) return std::nullopt;
  for (const Numbered& form : kNumbered) {
    const size_t at = name.find(form.stored);
    if (at == std::string::npos) continue;
    const char* begin = name.data() + at + form.stored.size();
    const char* end = name.data() + name.size() - kWeight.size();
    int64_t expert = -1;
    const auto parsed = std::from_chars(begin, end, expert);
    if (parsed.ec != std::errc() || expert < 0 || parsed.ptr == end || *parsed.ptr != '.') continue;
    const std::string part = mlx_name({parsed.ptr + 1, end});
    return Place{.tensor = name.substr(0, at).append(form.mlx) + part + ".weight",
                 .expert = expert,
                 .matrix = view_of(tensor)};
  }
  return std::nullopt;
}

// Half `half` of `halves` of expert e.
MatrixView matrix_of_stack(const RawTensor& tensor, const Stacked& form, int64_t e, int64_t half,
                           int64_t halves) {
  const int64_t outer = tensor.shape[1], inner = tensor.shape[2];
  const int64_t n = (form.transposed ? inner : outer) / halves;
  const int64_t step = form.alternating ? halves : 1;  // from row to row
  const int64_t row = form.alternating ? half : half * n;
  const int64_t unit = form.transposed ? 1 : inner;  // elements between two stored rows
  return {.tensor = &tensor,
          .first = e * outer * inner + row * unit,
          .count = n,
          .columns = form.transposed ? outer : inner,
          .row_step = step * unit,
          .column_step = form.transposed ? inner : 1};
}

std::vector<Place> stacked_places(const RawTensor& tensor, const Stacked& form, size_t at) {
  const auto parts = mlx_names(std::string_view(tensor.name).substr(at + form.stored.size()));
  const auto halves = static_cast<int64_t>(parts.size());
  if (halves == 0 || tensor.shape.size() != 3 ||
      tensor.shape[form.transposed ? 2 : 1] % halves != 0)
    return {};
  std::vector<Place> places;
  for (int64_t half = 0; half < halves; ++half)
    for (int64_t e = 0; e < tensor.shape[0]; ++e)
      places.push_back({.tensor = tensor.name.substr(0, at).append(form.mlx) +
                                  parts[static_cast<size_t>(half)] + ".weight",
                        .expert = e,
                        .matrix = matrix_of_stack(tensor, form, e, half, halves)});
  return places;
}

// "...experts.gate_up_proj_bias" [E, 2n] and "...experts.down_proj_bias" [E, n].
std::vector<Place> bias_places(const RawTensor& tensor, const Stacked& form, size_t at) {
  constexpr std::string_view kBias = "_bias";
  std::string_view part = std::string_view(tensor.name).substr(at + form.stored.size());
  if (!part.ends_with(kBias) || tensor.shape.size() != 2) return {};
  part.remove_suffix(kBias.size());
  const auto parts = mlx_names(part);
  const auto halves = static_cast<int64_t>(parts.size());
  if (halves == 0 || tensor.shape[1] % halves != 0) return {};
  std::vector<Place> places;
  for (int64_t half = 0; half < halves; ++half)
    places.push_back({.tensor = tensor.name.substr(0, at).append(form.mlx) +
                                parts[static_cast<size_t>(half)] + ".bias",
                      .matrix = {.tensor = &tensor,
                                 .first = half,
                                 .count = tensor.shape[0],
                                 .columns = tensor.shape[1] / halves,
                                 .row_step = tensor.shape[1],
                                 .column_step = halves}});
  return places;
}

}  // namespace

int64_t MatrixView::element_bytes() const { return dtype_size(tensor->dtype); }

void MatrixView::read(int64_t row, std::span<std::byte> out, ThreadPool& pool) const {
  const int64_t bytes = element_bytes();
  const int64_t begin = first + row * row_step;
  const int64_t rows = static_cast<int64_t>(out.size()) / (columns * bytes);
  if (column_step == 1 && row_step == columns)
    return tensor->read(static_cast<uint64_t>(begin * bytes), out, pool);
  // One read for each row or for each column, whichever lies closer together.
  const bool by_rows = column_step <= row_step;
  const int64_t runs = by_rows ? rows : columns;
  const int64_t run_step = by_rows ? row_step : column_step;
  const int64_t step = by_rows ? column_step : row_step;
  const int64_t run = ((by_rows ? columns : rows) - 1) * step + 1;  // elements
  std::vector<std::byte> staged(static_cast<size_t>(runs * run * bytes));
  for (int64_t i = 0; i < runs; ++i)
    tensor->read(static_cast<uint64_t>((begin + i * run_step) * bytes),
                 std::span(staged).subspan(static_cast<size_t>(i * run * bytes),
                                           static_cast<size_t>(run * bytes)));
  constexpr int64_t kRows = 32;  // at a time: what is read of a run is a line of the cache
  pool.parallel_for((rows + kRows - 1) / kRows, [&](int64_t task) {
    const int64_t end = std::min(rows, (task + 1) * kRows);
    for (int64_t j = 0; j < columns; ++j)
      for (int64_t i = task * kRows; i < end; ++i)
        std::memcpy(out.data() + (i * columns + j) * bytes,
                    staged.data() + (by_rows ? i * run + j * step : j * run + i * step) * bytes,
                    static_cast<size_t>(bytes));
  });
}

MatrixView view_of(const RawTensor& tensor) {
  const int64_t columns = tensor.shape.empty() ? 1 : tensor.shape.back();
  return {.tensor = &tensor,
          .count = columns == 0 ? 0 : tensor.num_elements() / columns,
          .columns = columns,
          .row_step = columns};
}

std::vector<Place> places_of_experts(const HfConfig& config, const RawTensor& tensor) {
  // Of gpt-oss a tensor an expert stays that: it has a bias beside it.
  if (config.model_type == "gpt_oss") {
    const size_t at = tensor.name.find(kGptOss.stored);
    if (at == std::string::npos) return {};
    auto places = stacked_places(tensor, kGptOss, at);
    return places.empty() ? bias_places(tensor, kGptOss, at) : places;
  }
  if (auto place = numbered_place(tensor)) return {std::move(*place)};
  for (const Stacked& form : kStacked)
    if (const size_t at = tensor.name.find(form.stored); at != std::string::npos)
      if (auto places = stacked_places(tensor, form, at); !places.empty()) return places;
  return {};
}

}  // namespace quire::formats
