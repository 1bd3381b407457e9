#pragma once
#include <functional>
#include <string>
#include <vector>

#include "base/parallel.h"
#include "formats/quantization.h"

namespace quire::formats {

struct QuantizeOptions {
  QuantisedFormat format{.bits = 4, .group_size = 64};
  uint64_t max_shard_bytes = uint64_t{5} << 30;
  std::function<void(double fraction)> progress = {};
  // Asked several times a second: true ends the work with a LoadError.
  std::function<bool()> stop = {};
};

struct QuantizeReport {
  struct Kept {
    std::string name;
    int64_t group_size = 0;
  };
  struct Lost {
    std::string layer;
    int64_t groups = 0, of = 0;
  };
  uint64_t bytes_before = 0, bytes_after = 0;  // of tensors
  int64_t quantised = 0;                       // matrices
  std::vector<Kept> kept;                      // matrices whose rows the group does not divide
  std::vector<Lost> lost;                      // those with groups that became 0 (nvfp4)
};

// Writes the model in `source` as an MLX checkpoint to the folder `target`, which must not exist or
// be empty: matrices (linear layers, embeddings, and a layer's experts stacked) quantised as mlx-lm
// does, the rest as it is; config.json says so, and all other small files are copied. One tensor is
// in memory at a time. The folder appears under its name only when it is complete and on disk; what
// a run that was killed left behind is removed (see PendingFolder). Throws LoadError naming what is
// wrong.
QuantizeReport quantize_checkpoint(const std::string& source, const std::string& target,
                                   const QuantizeOptions& options, ThreadPool& pool);

}  // namespace quire::formats
