// Which keys of a tokenizer may stand in a file without being read.
#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "formats/gguf/vocabulary.h"

namespace quire::formats {
namespace {

// They change no ids of texts: find_end_tokens() and the checkpoint read some, other kinds of
// tokenizers or pairs of texts use others, and some name tokens alone.
constexpr std::array<std::string_view, 27> kWithoutEffect = {"add_sep_token",
                                                             "add_space_prefix",
                                                             "cls_token_id",
                                                             "eom_token_id",
                                                             "eos_token_ids",
                                                             "eot_token_id",
                                                             "fim_mid_token_id",
                                                             "fim_pad_token_id",
                                                             "fim_pre_token_id",
                                                             "fim_rep_token_id",
                                                             "fim_sep_token_id",
                                                             "fim_suf_token_id",
                                                             "mask_token_id",
                                                             "merges",
                                                             "middle_token_id",
                                                             "padding_token_id",
                                                             "pre",
                                                             "prefix_token_id",
                                                             "remove_extra_whitespaces",
                                                             "scores",
                                                             "separator_token_id",
                                                             "seperator_token_id",
                                                             "suffix_token_id",
                                                             "suppress_tokens",
                                                             "token_type_count",
                                                             "unknown_token_id",
                                                             "eos_token_id"};

// They change nothing as long as they say this.
constexpr std::array<std::pair<std::string_view, bool>, 9> kSettled = {
    {{"add_cls_token", false},
     {"add_mask_token", false},
     {"add_padding_token", false},
     {"add_separator_token", false},
     {"add_unknown_token", false},
     {"escape_whitespaces", true},
     {"normalizer.lowercase", false},
     {"normalizer.strip_accents", false},
     {"treat_whitespace_as_suffix", false}}};

}  // namespace

void refuse_unknown_tokenizer_keys(const GgufMetadata& metadata) {
  const std::string prefix = kTokenizerPrefix;
  for (const std::string& key : metadata.unread(prefix)) {
    const std::string_view name = std::string_view(key).substr(prefix.size());
    if (std::ranges::find(kWithoutEffect, name) != kWithoutEffect.end()) continue;
    const auto* settled =
        std::ranges::find_if(kSettled, [&](auto& row) { return row.first == name; });
    if (settled == kSettled.end())
      metadata.fail(key,
                    "is not understood, and may change the ids of texts; take a file without "
                    "it, or the model's folder in Hugging Face's format");
    if (metadata.find_bool(key) != settled->second)
      metadata.fail(key, std::string("is ") + (settled->second ? "false" : "true") +
                             ", which is not supported");
  }
}

}  // namespace quire::formats
