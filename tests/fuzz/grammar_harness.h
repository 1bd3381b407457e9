#pragma once
#include <cstdint>
#include <span>
#include <string_view>

#include "text/grammar.h"

namespace quire::fuzz {

// Compiles the grammar and walks through it; aborts if anything that grammar.h promises fails:
// the time for a mask, that exactly the allowed tokens are taken, and that the answer may end where
// eos is allowed. Every byte of `choices` chooses one token. JSON grammars end in JSON.
void walk_grammar(const text::GrammarSpec& spec, std::span<const uint8_t> choices);

}  // namespace quire::fuzz
