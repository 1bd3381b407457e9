#pragma once
#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "engine/batch_builder.h"
#include "engine/kv_pool.h"
#include "models/model.h"
#include "ops/runtime/recorded_step.h"

namespace quire::engine {

namespace mx = mlx::core;

// Decode steps on a device that records them: for each number of sequences of a row of buckets a
// step is recorded once, and then run for every step that fits into it, padded. No op is called for
// such a step, and the device is handed one thing. Steps of few sequences are recorded twice, since
// kernels that are best for short contexts are others than those for any.
class DecodeReplay {
 public:
  // Keeps `pool`'s memory: to be given up with it.
  DecodeReplay(const models::Model& model, KvPool& pool, const SchedulerOptions& options);

  // The sequences of the bucket for a step; 0: it has to be launched kernel by kernel, because it
  // reads prompts, scores their tokens or copies states, or is larger than all buckets.
  int64_t bucket_of(const StepPlan& plan) const;
  // The tokens that no sequence of a bucket's recording for short contexts goes beyond; 0: it has
  // none.
  static int32_t short_context(int64_t sequences);
  // Sizes from 1 to `most`, ascending: 1, 2, 4, 8, then steps of 8 to 64, of 16 to 256, of 64.
  static std::vector<int64_t> buckets(int64_t most);

  // Runs a step of the bucket that the batch is padded to. Without samples its output are the
  // logits, for the sampler that comes later. Absent, with nothing changed: it asks for more than
  // the recording has room for.
  std::optional<ops::LaunchedStep> launch(const Batch& batch, ops::SampleRows samples,
                                          const std::optional<mx::array>& previous);

  // Records all buckets now, the largest first, so that no step has to. (After a failure they are
  // recorded again when they are needed.)
  void record_all();

 private:
  struct Key {
    int64_t sequences = 0;
    bool has_sampler = false;
    int32_t longest = 0;  // StepValues::longest
    auto operator<=>(const Key&) const = default;
  };

  ops::RecordedStep& recorded(Key key);
  std::unique_ptr<ops::RecordedStep> record(Key key);

  const models::Model& model_;
  KvPool& pool_;
  const SchedulerOptions& options_;
  std::vector<int64_t> buckets_;
  mx::array previous_;  // where recorded steps read the tokens of the step before
  std::map<Key, std::unique_ptr<ops::RecordedStep>> recorded_;
};

}  // namespace quire::engine
