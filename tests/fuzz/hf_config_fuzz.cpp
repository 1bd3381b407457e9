// Hostile config.json files, and the JSON beside weights in nf4: each either gives a config whose
// numbers hold what hf_config.h and folder_quantization.h promise, or throws LoadError.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "base/error.h"
#include "cpu_timer.h"
#include "formats/folder_quantization.h"
#include "formats/hf_config.h"
#include "formats/nf4_state.h"
#include "formats/quantization.h"

namespace {

using namespace quire;

void check_scheme(const formats::FolderScheme& scheme) {
  QUIRE_CHECK(scheme.bits >= 2 && scheme.bits <= 8);
  QUIRE_CHECK(scheme.group_size >= 0 && scheme.block_rows >= 0 && scheme.block_columns >= 0);
  QUIRE_CHECK((scheme.block_rows == 0) == (scheme.block_columns == 0));
  const bool packed = scheme.format == formats::FolderFormat::kPacked;
  QUIRE_CHECK(!packed || scheme.bits == 4 || scheme.bits == 8);
}

void read_quantization(const formats::HfConfig& config) {
  const auto folder = formats::read_folder_quantization(config);
  (void)formats::read_quantization_config(config);
  if (!folder) return;
  const bool plain = folder->groups.empty() || folder->groups.front().plain;
  QUIRE_CHECK(!plain || (folder->groups.empty() && folder->kv_cache_floats));
  QUIRE_CHECK(!folder->title().empty());
  size_t names = folder->excluded.size();
  for (const auto& group : folder->groups) {
    check_scheme(group.scheme);
    names += group.targets.size();
  }
  // Names that files have are compared with patterns that files have.
  for (const char* layer :
       {"lm_head", "model.language_model.layers.12.mlp.experts.101.down_proj",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}) {
    const fuzz::CpuTimer timer;
    try {
      if (const formats::FolderScheme* scheme = folder->of_layer(layer)) check_scheme(*scheme);
    } catch (const LoadError& error) {
      QUIRE_CHECK(std::string_view(error.what()).find("pattern") != std::string_view::npos);
    }
    QUIRE_CHECK(timer.milliseconds() < 200.0 * static_cast<double>(names + 1));
  }
}

void read_nf4(std::string_view text) {
  try {
    const formats::Nf4State state = formats::read_nf4_state("weight", text);
    QUIRE_CHECK(state.rows > 0 && state.columns > 0 && state.nested_block >= 0);
  } catch (const LoadError& error) {
    QUIRE_CHECK(std::string_view(error.what()).starts_with("weight"));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  auto raw = parse_json(text);
  if (!raw || !raw->is_object()) return 0;
  read_nf4(text);
  try {
    const formats::HfConfig c = formats::parse_hf_config(std::move(*raw), "config.json");
    QUIRE_CHECK(c.num_hidden_layers > 0 && c.num_hidden_layers < 10000);
    QUIRE_CHECK(c.head_dim > 0 && c.hidden_size > 0 && c.vocab_size > 0);
    QUIRE_CHECK(c.num_attention_heads % c.num_key_value_heads == 0);
    QUIRE_CHECK(c.rope.theta > 0 && c.rope.factor > 0);
    QUIRE_CHECK(c.rope.original_max_position_embeddings > 0);
    QUIRE_CHECK(c.rope.partial_rotary_factor > 0 && c.rope.partial_rotary_factor <= 1);
    read_quantization(c);
  } catch (const LoadError& error) {
    QUIRE_CHECK(std::string_view(error.what()).starts_with("config.json: "));
  }
  return 0;
}
