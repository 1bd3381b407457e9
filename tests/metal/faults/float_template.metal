// Must not compile: Metal has no template arguments of type float.
#include <metal_stdlib>
using namespace metal;
template <float kScale>
inline float scaled(float x) {
  return x * kScale;
}
[[kernel]] void wrong(device float* out [[buffer(0)]]) { out[0] = scaled<0.5f>(out[1]); }
