// Must not compile: Metal has no implicit conversion from float to bfloat.
#include <metal_stdlib>
using namespace metal;
[[kernel]] void wrong(device bfloat* out [[buffer(0)]]) { out[0] = 1.5f * float(out[1]); }
