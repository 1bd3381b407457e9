#pragma once

namespace quire::ops {

// Whether this build has kernels for NVIDIA GPUs. What calls them stands in `if constexpr`, so that
// a build without them links.
#ifdef QUIRE_CUDA
inline constexpr bool kHasCuda = true;
#else
inline constexpr bool kHasCuda = false;
#endif

}  // namespace quire::ops
