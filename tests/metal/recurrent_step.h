#pragma once
#include <cstdint>
#include <vector>

// Steps of sequences that keep a state each.
namespace quire::emulator::testing {

struct Chunk {
  int tokens = 0, context = 0, slot = 0;  // new tokens after `context` others
};

struct RecurrentStep {
  explicit RecurrentStep(const std::vector<Chunk>& chunks) {
    cu_seqlens = {0};
    for (const Chunk& chunk : chunks) {
      for (int i = 0; i < chunk.tokens; ++i) positions.push_back(chunk.context + i);
      cu_seqlens.push_back(static_cast<int32_t>(positions.size()));
      slots.push_back(chunk.slot);
      longest = longest > chunk.tokens ? longest : chunk.tokens;
    }
  }
  int tokens() const { return static_cast<int>(positions.size()); }
  std::vector<int32_t> cu_seqlens, positions, slots;
  int longest = 0;
};

}  // namespace quire::emulator::testing
