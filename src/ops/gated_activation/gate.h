#pragma once
#include <cstdint>

namespace quire::ops {

// What makes one value of a gate and an "up": act(gate) * up, in float32.
//   kSilu           act(x) = x / (1 + e^-x)
//   kGeluTanh       act(x) = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
//   kGelu           act(x) = x/2 (1 + erf(x / sqrt(2)))
//   kRelu2          act(x) = max(x, 0)^2
//   kClampedSwiglu  g / (1 + e^(-alpha g)) * (u + 1), where g is the gate, at most limit, and u the
//                   up in [-limit, limit] (gpt-oss, arXiv:2508.10925)
struct Gate {
  enum class Kind : uint8_t { kSilu, kGeluTanh, kGelu, kRelu2, kClampedSwiglu };
  Kind kind = Kind::kSilu;
  float alpha = 1.702f, limit = 7.0f;  // of kClampedSwiglu

  bool operator==(const Gate&) const = default;
};

// "silu", "gelu_tanh", ...: for people.
inline const char* gate_name(Gate::Kind kind) {
  switch (kind) {
    case Gate::Kind::kSilu:
      return "silu";
    case Gate::Kind::kGeluTanh:
      return "gelu_tanh";
    case Gate::Kind::kGelu:
      return "gelu";
    case Gate::Kind::kRelu2:
      return "relu2";
    case Gate::Kind::kClampedSwiglu:
      return "clamped_swiglu";
  }
  return "?";
}

}  // namespace quire::ops
