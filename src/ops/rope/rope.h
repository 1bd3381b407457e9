#pragma once
#include <mlx/mlx.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "ops/layout/batch_layout.h"
#include "ops/runtime/context.h"

namespace quire::ops {

namespace mx = mlx::core;

// How rotary angles are scaled; the field names are those of a Hugging Face config.
struct RopeParams {
  enum class Scaling { kDefault, kLinear, kLlama3, kYarn, kLongrope };
  Scaling scaling = Scaling::kDefault;
  int64_t rotary_dim = 0;  // leading dimensions of a head that rotate; even
  // Of its rotary_dim / 2 pairs (i, i + rotary_dim / 2) only the first so many turn ("proportional"
  // in transformers); negative: all of them.
  int64_t turning_pairs = -1;
  double theta = 10000.0;
  double factor = 1.0;
  double original_max_position_embeddings = 0;
  double low_freq_factor = 1.0, high_freq_factor = 4.0;  // llama3
  double beta_fast = 32.0, beta_slow = 1.0;              // yarn
  double mscale = 0.0, mscale_all_dim = 0.0;             // yarn; 0: absent
  bool truncate = true;                                  // yarn
  double attention_factor = 0.0;                         // yarn, longrope; 0: derived
  std::vector<double> extension_factors = {};  // longrope: [rotary_dim / 2], already chosen

  bool operator==(const RopeParams&) const = default;
};

// cos and sin of every position, float32, attention factor included; shared by all layers. Rows are
// computed when somebody asks for them: of a long context most never are, and take no memory.
class RopeTable {
 public:
  // `make_row` gives the row of a position, the same one always.
  using MakeRow = std::function<void(int64_t position, float* row)>;
  RopeTable(int64_t rotary_dim, int64_t max_positions, MakeRow make_row);

  const int64_t rotary_dim, max_positions;

  // [max_positions][2][rotary_dim / 2], of which at least the rows below `end` are computed. They
  // stay where they are. For any thread.
  const float* rows_until(int64_t end) const;
  std::span<const float> all_rows() const { return {rows_until(max_positions), size()}; }
  size_t size() const { return static_cast<size_t>(max_positions * rotary_dim); }

 private:
  const MakeRow make_row_;
  const std::unique_ptr<float[]> rows_;
  mutable std::mutex mutex_;
  mutable std::atomic<int64_t> computed_ = 0;  // rows
};

// inv_freq [rotary_dim / 2] and the factor on cos and sin, as in transformers' modeling_rope_utils
// (float32).
struct RopeFrequencies {
  std::vector<float> inv_freq;
  float attention_factor = 1.0f;
};
RopeFrequencies rope_frequencies(const RopeParams& params);
std::shared_ptr<const RopeTable> make_rope_table(const RopeParams& params, int64_t max_positions);
// A table that leaves heads of this many dimensions as they are, for layers without rotation.
std::shared_ptr<const RopeTable> make_still_rope_table(int64_t head_dim, int64_t max_positions);

// Rotates the first rotary_dim dimensions of each head, half-split (pairs i, i + rotary_dim/2), in
// float32; the rest is copied.
//   x  [T, H, D]; positions are layout.positions, each < table.max_positions
mx::array rope(const Context& context, const mx::array& x, const BatchLayoutPtr& layout,
               std::shared_ptr<const RopeTable> table);

}  // namespace quire::ops
