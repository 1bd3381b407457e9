#pragma once
#include "models/layer_spec.h"
#include "ops/runtime/device.h"

namespace quire::models {

// Throws LoadError, naming what is too large, if the device's kernels cannot run such a model. The
// CPU's run every model that a family accepts.
void check_device_limits(const ModelSpec& spec, const ops::Device& device);

}  // namespace quire::models
