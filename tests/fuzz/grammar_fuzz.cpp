// Hostile regular expressions ("r" and the expression), GBNF ("g..."), structural tags ("s..."),
// choices ("c...") and Lark grammars (anything else). Behind a byte 0 follow choices of tokens.
#include "grammar_harness.h"

namespace {

quire::text::GrammarSpec::Kind kind_of(char letter) {
  using Kind = quire::text::GrammarSpec::Kind;
  switch (letter) {
    case 'r':
      return Kind::kRegex;
    case 'g':
      return Kind::kGbnf;
    case 's':
      return Kind::kStructuralTag;
    case 'c':
      return Kind::kChoice;
    default:
      return Kind::kLark;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::string_view head = input.substr(0, input.find('\0'));
  if (head.empty()) return 0;
  const std::span<const uint8_t> rest(data + head.size(), size - head.size());
  quire::fuzz::walk_grammar({kind_of(head[0]), head.substr(1)},
                            rest.first(std::min<size_t>(rest.size(), 64)));
  return 0;
}
