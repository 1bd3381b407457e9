#pragma once
#include <mlx/mlx.h>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "formats/checkpoint.h"
#include "formats/lora_adapter.h"
#include "models/layer_spec.h"
#include "models/mapped_files.h"
#include "ops/layout/batch_layout.h"
#include "ops/layout/recurrent_state.h"
#include "ops/runtime/context.h"

namespace quire::models {

namespace mx = mlx::core;

// Ways to run the same model that are slower and give the same tokens: they exist to measure what
// the usual way gains.
struct AblationOptions {
  bool eval_per_layer = false;    // wait for each layer instead of building one graph a step
  bool project_all_rows = false;  // the vocabulary for every token, not for sampled rows only
};

struct LoadOptions {
  std::optional<mx::Dtype> dtype;  // of weights and activations; absent: the checkpoint's
  int64_t max_positions = 0;       // rotary tables reach this far; 0: as far as the config says
  int64_t most_positions = 0;      // they reach no further, because memory does not; 0: no limit
  std::function<void(double fraction)> progress;  // called while weights are packed
  AblationOptions ablation = {};
  // Whether linear() rounds its activations to 8 bits, too, which is less exact: all with weights
  // that are whole numbers times scales, none, or (absent) those of which the config says so.
  std::optional<bool> int8_activations = std::nullopt;
  // A checkpoint may lack the head, as many of models for embeddings do; see Model::has_head.
  bool head_optional = false;
  // Of which BatchLayout::adapters has the indices. They must outlive the loading.
  std::span<const formats::LoraAdapter> adapters = {};
  // Nothing is read of matrices, and the model cannot run: for check_tensors().
  bool headers_only = false;
  // How a file is mapped, where the device uses weights in place (Metal). Empty: as
  // DataFile::snapshot.
  MappedFiles::Take snapshot = {};
};

// What a step computes.
struct StepOutput {
  mx::array logits;                 // [R, V] float32, of layout->rows
  std::optional<mx::array> states;  // [rows, hidden] behind the last norm, of layout->pooled
};

// A loaded model: knows tokens, not requests.
class Model {
 public:
  virtual ~Model() = default;

  // What the layout asks for; builds the graph and evaluates nothing (but see AblationOptions).
  //   ids     [T] int32, each in [0, vocab)
  //   caches  one pool per layer, as cache_specs() says; replaced by the handles that later steps
  //   must use. What stands for a layer of SharedKvSpec is neither read nor replaced
  virtual StepOutput forward(const mx::array& ids, const ops::BatchLayoutPtr& layout,
                             std::vector<ops::LayerCache>& caches) const = 0;

  virtual const ops::Context& context() const = 0;
  virtual int64_t num_adapters() const { return 0; }  // that its layouts may name
  virtual std::vector<CacheSpec> cache_specs() const = 0;
  virtual mx::Dtype dtype() const = 0;
  virtual int64_t vocab_size() const = 0;
  virtual int64_t hidden_size() const = 0;  // of a token's state
  virtual int64_t max_positions() const = 0;
  // Whether its logits mean anything. A model without a head only gives states.
  virtual bool has_head() const { return true; }
  virtual size_t weight_bytes() const = 0;
  // Nothing where no device uses weights in place.
  virtual std::optional<MappedWeights> mapped_weights() const { return std::nullopt; }
  // What the checkpoint holds beside the language model, skipped on purpose, for people to read:
  // "model.visual.* (153 tensors)"; empty if nothing.
  virtual std::string skipped_tensors() const { return {}; }
  // Quantised weights that are kept as dense values, see WeightLoader::unpacked(); empty if none.
  virtual std::string unpacked_weights() const { return {}; }
  // Formats of weights that LoadOptions::int8_activations does not reach, see
  // WeightLoader::whole_activations(); empty if none.
  virtual std::string whole_activations() const { return {}; }
  virtual int64_t widest_activation() const = 0;  // elements per token, for the memory budget
};

// Loads a checkpoint of any registered architecture; the model keeps copies, or snapshots of files,
// and needs the files no more. Throws LoadError naming the file, the tensor and the remedy if it is
// of another architecture, if a tensor is missing, left over, or of another shape or dtype than the
// config says, or if a file changes meanwhile.
std::unique_ptr<Model> load_model(ops::Context context, const formats::Checkpoint& checkpoint,
                                  const LoadOptions& options = {});
// Throws the LoadError of load_model() on the CPU, without reading a matrix: but for what is wrong
// with the contents of one, a checkpoint that passes can be loaded.
void check_tensors(const formats::Checkpoint& checkpoint);

}  // namespace quire::models
