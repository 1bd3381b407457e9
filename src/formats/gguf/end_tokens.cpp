#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>

#include "formats/gguf/text_files.h"
#include "formats/gguf/vocabulary.h"

// Which tokens end an answer, as llama.cpp has it (src/llama-vocab.cpp): by their texts, too, since
// files name one or two of them.
namespace quire::formats {
namespace {

const std::string kPrefix = kTokenizerPrefix;

constexpr std::array<std::string_view, 22> kEndTexts = {"<|eot_id|>",
                                                        "<|im_end|>",
                                                        "<|end|>",
                                                        "<|return|>",
                                                        "<|call|>",
                                                        "<|flush|>",
                                                        "<|calls|>",
                                                        "<end_of_turn>",
                                                        "<|endoftext|>",
                                                        "</s>",
                                                        "<|eom_id|>",
                                                        "<EOT>",
                                                        "_<EOT>",
                                                        "[EOT]",
                                                        "[EOS]",
                                                        "<|end_of_text|>",
                                                        "<end_of_utterance>",
                                                        "<eos>",
                                                        "<turn|>",
                                                        "<|tool_response>",
                                                        "<｜end▁of▁sentence｜>",
                                                        "[e~["};

// Tokens of code that is filled in. A file names one, or the first of these texts that is a token
// is it.
struct FillToken {
  const char* key;
  std::array<std::string_view, 5> texts;
};
constexpr FillToken kFillTokens[] = {
    {"fim_pad_token_id", {"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"}},
    {"fim_rep_token_id", {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"}},
    {"fim_sep_token_id", {"<|file_sep|>"}}};

class Ends {
 public:
  explicit Ends(const GgufMetadata& metadata)
      : metadata_(metadata), vocabulary_(read_gguf_vocabulary(metadata)) {
    const std::vector<std::string>& tokens = *vocabulary_.tokens;
    for (size_t id = 0; id < tokens.size(); ++id)
      ids_of_texts_.insert_or_assign(tokens[id], static_cast<int64_t>(id));
  }

  void add_named() {
    for (const char* name : {"eos_token_id", "eot_token_id", "eom_token_id"})
      if (const auto id = find_token_id(metadata_, vocabulary_, name)) ids_.insert(*id);
    add_list("eos_token_ids");
    for (const FillToken& fill : kFillTokens) {
      auto id = find_token_id(metadata_, vocabulary_, fill.key);
      for (size_t i = 0; i < fill.texts.size() && !id && !fill.texts[i].empty(); ++i)
        id = find(fill.texts[i]);
      if (id) ids_.insert(*id);
    }
  }
  void add_texts() {
    for (const std::string_view text : kEndTexts)
      if (const auto id = find(text)) ids_.insert(*id);
  }
  // Texts that end an answer in one family and go on in another.
  void drop_what_goes_on() {
    const bool has_calls = find("<|call|>") || find("<|calls|>");
    if (has_calls && (find("<|return|>") || find("<|flush|>"))) drop("<|end|>");
    if (find("<|tool_response>")) drop("</s>");
  }
  std::vector<int64_t> ids() const { return {ids_.begin(), ids_.end()}; }

 private:
  // Ollama's converter names all of them.
  void add_list(const char* name) {
    const std::string key = kPrefix + name;
    const auto* all = metadata_.find_ints(key);
    if (!all) return;
    for (const int64_t id : *all) {
      check_token_id(metadata_, vocabulary_, key, id);
      ids_.insert(id);
    }
  }
  std::optional<int64_t> find(std::string_view text) const {
    const auto found = ids_of_texts_.find(text);
    return found == ids_of_texts_.end() ? std::nullopt : std::optional(found->second);
  }
  void drop(std::string_view text) {
    if (const auto id = find(text)) ids_.erase(*id);
  }

  const GgufMetadata& metadata_;
  GgufVocabulary vocabulary_;
  std::unordered_map<std::string_view, int64_t> ids_of_texts_;
  std::set<int64_t> ids_;
};

}  // namespace

std::vector<int64_t> find_end_tokens(const GgufMetadata& metadata) {
  Ends ends(metadata);
  ends.add_named();
  ends.add_texts();
  ends.drop_what_goes_on();
  return ends.ids();
}

}  // namespace quire::formats
