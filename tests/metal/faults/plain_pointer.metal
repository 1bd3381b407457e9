// Must not compile: a pointer to device memory becomes one without an address space.
#include <metal_stdlib>
using namespace metal;
[[kernel]] void wrong(device float* out [[buffer(0)]]) {
  float* plain = out;
  plain[0] = 1;
}
