// Hostile config.json files: each either gives a config whose numbers hold what hf_config.h
// promises, or throws LoadError.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "base/error.h"
#include "formats/hf_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace quire;
  auto raw = parse_json({reinterpret_cast<const char*>(data), size});
  if (!raw || !raw->is_object()) return 0;
  try {
    const formats::HfConfig c = formats::parse_hf_config(std::move(*raw), "config.json");
    QUIRE_CHECK(c.num_hidden_layers > 0 && c.num_hidden_layers < 10000);
    QUIRE_CHECK(c.head_dim > 0 && c.hidden_size > 0 && c.vocab_size > 0);
    QUIRE_CHECK(c.num_attention_heads % c.num_key_value_heads == 0);
    QUIRE_CHECK(c.rope.theta > 0 && c.rope.factor > 0);
    QUIRE_CHECK(c.rope.original_max_position_embeddings > 0);
    QUIRE_CHECK(c.rope.partial_rotary_factor > 0 && c.rope.partial_rotary_factor <= 1);
  } catch (const LoadError& error) {
    QUIRE_CHECK(std::string_view(error.what()).starts_with("config.json: "));
  }
  return 0;
}
