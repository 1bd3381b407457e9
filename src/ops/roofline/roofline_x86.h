#pragma once
#include <cstdint>

namespace quire::ops {

// Peak probes of single x86 instructions, written in assembly so that no compiler flag is needed.
// `supported` asks the CPU and the operating system; `run` does `rounds` rounds on the calling
// thread and returns the operations done (a multiply-add is 2).
struct InstructionProbe {
  const char* name;
  bool (*supported)();
  double (*run)(int64_t rounds);
};

extern const InstructionProbe kBf16DotProbe;  // vdpbf16ps zmm
extern const InstructionProbe kInt8DotProbe;  // vpdpbusd zmm
extern const InstructionProbe kAmxBf16Probe;  // tdpbf16ps
extern const InstructionProbe kAmxInt8Probe;  // tdpbssd

}  // namespace quire::ops
