#include "formats/gguf/vocabulary.h"

#include "formats/raw_tensor.h"

namespace quire::formats {
namespace {

const std::string kPrefix = kTokenizerPrefix;

}  // namespace

GgufVocabulary read_gguf_vocabulary(const GgufMetadata& metadata) {
  constexpr size_t kMostTokens = size_t{1} << 22;
  GgufVocabulary out{.tokens = metadata.find_strings(kPrefix + "tokens"),
                     .types = metadata.find_ints(kPrefix + "token_type")};
  if (!out.tokens || out.tokens->empty()) metadata.fail(kPrefix + "tokens", "is missing or empty");
  if (out.tokens->size() > kMostTokens) metadata.fail(kPrefix + "tokens", "has too many tokens");
  if (out.types && out.types->size() != out.tokens->size())
    metadata.fail(kPrefix + "token_type", "has " + std::to_string(out.types->size()) +
                                              " elements, but there are " +
                                              std::to_string(out.tokens->size()) + " tokens");
  for (size_t id = 0; out.types && id < out.types->size(); ++id)
    if (out.type(id) < TokenType::kNormal || out.type(id) > TokenType::kByte)
      metadata.fail(kPrefix + "token_type", "has " + std::to_string((*out.types)[id]) +
                                                " for token " + std::to_string(id) +
                                                "; types are 1 to 6");
  return out;
}

std::optional<int64_t> find_token_id(const GgufMetadata& metadata, const GgufVocabulary& vocabulary,
                                     const std::string& name) {
  const std::string key = kPrefix + name;
  const auto id = metadata.find_int(key, {.min = -1, .max = UINT32_MAX});
  if (!id || *id == -1 || *id == UINT32_MAX) return std::nullopt;  // two ways to say none
  check_token_id(metadata, vocabulary, key, *id);
  return id;
}

void check_token_id(const GgufMetadata& metadata, const GgufVocabulary& vocabulary,
                    const std::string& key, int64_t id) {
  if (id < 0 || id >= static_cast<int64_t>(vocabulary.tokens->size()))
    metadata.fail(key, "has " + std::to_string(id) + ", but there are " +
                           std::to_string(vocabulary.tokens->size()) + " tokens");
}

}  // namespace quire::formats
