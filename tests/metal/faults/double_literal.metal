// Must not compile: Metal has no double.
#include <metal_stdlib>
using namespace metal;
[[kernel]] void wrong(device float* out [[buffer(0)]]) { out[0] = float(out[0] * 0.1); }
