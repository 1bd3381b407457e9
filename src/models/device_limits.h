#pragma once
#include <string>
#include <vector>

#include "formats/checkpoint.h"
#include "models/layer_spec.h"
#include "models/model.h"
#include "ops/runtime/device_limits.h"

namespace quire::models {

// Throws LoadError, naming what is too large, if the device's kernels cannot run such a model. The
// CPU's run every model that a family accepts.
void check_device_limits(const ModelSpec& spec, const ops::DeviceLimits& limits);

// What of a checkpoint a device's kernels cannot run, for people: "kernels for 5000 experts in a
// layer". Reads no weights. Throws LoadError for what is not supported at all.
std::vector<std::string> beyond_limits(const formats::Checkpoint& checkpoint,
                                       const LoadOptions& options, const ops::DeviceLimits& limits);

}  // namespace quire::models
