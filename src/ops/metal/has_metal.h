#pragma once

namespace quire::ops {

// Whether this build can launch kernels on an Apple GPU (a build on macOS).
#ifdef QUIRE_METAL
inline constexpr bool kHasMetal = true;
#else
inline constexpr bool kHasMetal = false;
#endif

}  // namespace quire::ops
