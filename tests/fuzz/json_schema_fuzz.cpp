// Hostile JSON schemas. The input is the schema, then (behind a byte 0) choices of tokens.
#include "grammar_harness.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using quire::text::GrammarSpec;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::string_view source = input.substr(0, input.find('\0'));
  const std::span<const uint8_t> rest(data + source.size(), size - source.size());
  const auto kind =
      source.empty() ? GrammarSpec::Kind::kJsonObject : GrammarSpec::Kind::kJsonSchema;
  quire::fuzz::walk_grammar({kind, source}, rest.first(std::min<size_t>(rest.size(), 64)));
  return 0;
}
