// Must not compile: a pointer to device memory where one to threadgroup memory is expected.
#include <metal_stdlib>
using namespace metal;
void fill(threadgroup float* to) { to[0] = 1; }
[[kernel]] void wrong(device float* out [[buffer(0)]]) { fill(out); }
