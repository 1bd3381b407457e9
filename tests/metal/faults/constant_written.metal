// Must not compile: constant memory is written.
#include <metal_stdlib>
using namespace metal;
[[kernel]] void wrong(constant float& x [[buffer(0)]], device float* out [[buffer(1)]]) {
  x = out[0];
}
