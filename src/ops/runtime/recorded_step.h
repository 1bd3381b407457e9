#pragma once
#include <mlx/mlx.h>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "ops/layout/batch_layout.h"
#include "ops/runtime/context.h"
#include "ops/runtime/launched_step.h"
#include "ops/sample/sample.h"

namespace quire::ops {

namespace mx = mlx::core;

// What a recorded step reads anew each time it runs. Its kernels' grids and addresses stay: the
// number of rows is that of the recording, and rows beyond what there is to do are padding (one
// token of a sequence with length 0, slot -1 and state slot -1).
struct StepValues {
  BatchLayoutPtr layout;                                  // its tables are lent
  std::shared_ptr<const std::vector<int32_t>> ids, from;  // as resolve_tokens takes them
  SampleRows samples = nullptr;                           // null: the step samples nothing
  // The most logprobs that a row of `samples` asks for; absent: nobody has looked.
  std::optional<int32_t> most_top_logprobs = std::nullopt;
  // Its rows are not only those of the step before: the host took its time to let new ones in, and
  // how long the device had nothing to do says nothing about how steps follow each other.
  bool has_new_rows = false;
  // Of a recording: no sequence of the steps that it will run for is longer; 0: they may be.
  int32_t longest = 0;
};

// A step of kernels that can run again and again.
class RecordedStep {
 public:
  virtual ~RecordedStep() = default;

  // Runs it with these values. `previous` are the tokens of the step before; absent: no row's token
  // is among them. The outputs lie in the same memory each time: whatever reads them must be handed
  // over before the next recorded step is. What the host has of them stays until the third one
  // after this is handed over. Absent, with nothing changed, if the values do not fit
  // what was recorded.
  virtual std::optional<LaunchedStep> launch(const StepValues& values,
                                             const std::optional<mx::array>& previous) = 0;
};

// What a device is given to record.
struct StepRecording {
  StepValues values;   // that the kernels were made with: theirs are the sizes
  mx::array previous;  // the device's: the kernels read the tokens of the step before there
  std::vector<mx::array> outputs;  // shapes and dtypes
  // Hands all kernels over, with the outputs in this memory. May be called again.
  std::function<void(std::span<void* const> outputs)> run;
  std::function<void()> count;  // for each time that the step runs
  size_t num_read = 0;          // so many of the outputs are for the host
};

// Whether a step that was recorded with `recorded` can run with `values`.
bool fits_recording(const StepRecording& recorded, const StepValues& values,
                    const std::optional<mx::array>& previous);

// Records the kernels that `outputs` and `effects` depend on, as join_kernels would hand them over,
// and runs nothing. They were made with `values`, and read the tokens of the step before from
// `previous`. The first `num_read` outputs are for the host. Each time the step runs it counts its
// kernels and itself ("replay/cuda") in the KernelLog. Throws if something is not a kernel.
std::unique_ptr<RecordedStep> record_kernels(const Context& context, const StepValues& values,
                                             const mx::array& previous,
                                             const std::vector<mx::array>& outputs,
                                             const std::vector<mx::array>& effects,
                                             size_t num_read);

}  // namespace quire::ops
