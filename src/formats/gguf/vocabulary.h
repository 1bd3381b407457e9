#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "formats/gguf/metadata.h"

namespace quire::formats {

inline constexpr const char* kTokenizerPrefix = "tokenizer.ggml.";

// tokenizer.ggml.token_type
enum class TokenType : int64_t { kNormal = 1, kUnknown, kControl, kUser, kUnused, kByte };

// The tokens of a GGUF file. Views the metadata.
struct GgufVocabulary {
  const std::vector<std::string>* tokens = nullptr;
  const std::vector<int64_t>* types = nullptr;  // null: all are normal

  TokenType type(size_t id) const {
    return types ? static_cast<TokenType>((*types)[id]) : TokenType::kNormal;
  }
};

// Throws LoadError naming the key if there are no tokens, too many, or types that do not fit.
GgufVocabulary read_gguf_vocabulary(const GgufMetadata& metadata);

// The id under "tokenizer.ggml.NAME"; nothing if there is none. Throws LoadError if no token has
// it.
std::optional<int64_t> find_token_id(const GgufMetadata& metadata, const GgufVocabulary& vocabulary,
                                     const std::string& name);

// Throws LoadError naming the key if no token has the id that it has.
void check_token_id(const GgufMetadata& metadata, const GgufVocabulary& vocabulary,
                    const std::string& key, int64_t id);

// Throws LoadError naming a key under "tokenizer.ggml." that nobody has read and that may change
// the ids of texts. To be called after all that is understood has been read.
void refuse_unknown_tokenizer_keys(const GgufMetadata& metadata);

}  // namespace quire::formats
