#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "formats/gguf/metadata.h"
#include "formats/model_files.h"

namespace quire::formats {

// tokenizer.json and tokenizer_config.json as Hugging Face's libraries have them, from the metadata
// under "tokenizer.". Throws LoadError naming the file and the key for a tokenizer that cannot be
// made: nothing about it is guessed.
ModelFiles make_text_files(const GgufMetadata& metadata);

// How texts are split before byte-level BPE, by the name in tokenizer.ggml.pre: the pre-tokenizer's
// steps as tokenizer.json has them, without the last one, which is ByteLevel.
struct PreTokenizer {
  json::array steps;
  bool byte_level_splits = false;  // ByteLevel splits by GPT-2's pattern, too
  bool normalises = false;         // to NFC
  bool ignores_merges = false;     // a piece that is a token is not merged
  bool adds_bos = false;           // where the file does not say
};
std::optional<PreTokenizer> find_pre_tokenizer(std::string_view name);
std::vector<std::string> pre_tokenizer_names();

// The ids that end an answer: those that the metadata names, and the tokens that end turns or
// filled in code, which it does not, by their texts.
std::vector<int64_t> find_end_tokens(const GgufMetadata& metadata);

}  // namespace quire::formats
