#include "text/detokenizer.h"

#include <algorithm>

#include "text/tokenizer_impl.h"

namespace quire::text {
namespace {

// A character has at most 4 bytes and so spans at most 4 tokens; a longer wait is for a text that
// really ends in U+FFFD.
constexpr size_t kMaxHeldIds = 8;

bool ends_in_replacement(std::string_view text) { return text.ends_with(kReplacement); }

}  // namespace

Detokenizer::Detokenizer(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special_tokens,
                         std::vector<int32_t> kept)
    : tokenizer_(std::move(tokenizer)),
      skip_special_tokens_(skip_special_tokens),
      kept_(std::move(kept)),
      strip_left_(tokenizer_->impl().strip_left) {}

std::string Detokenizer::push(int32_t id) {
  const Tokenizer::Impl& vocab = tokenizer_->impl();
  std::string out;
  if (!vocab.has(id, Tokenizer::Impl::kPresent)) return out;
  if (skip_special_tokens_ && vocab.has(id, Tokenizer::Impl::kSpecial) &&
      std::ranges::find(kept_, id) == kept_.end())
    return out;
  switch (vocab.rule) {
    case JoinRule::kBytes:
      utf8_.push(vocab.pieces.at(id), out);
      break;
    case JoinRule::kByteRuns:
      push_text(id, out);
      break;
    case JoinRule::kOpaque:
      push_window(id, out);
      break;
  }
  first_token_ = false;
  return out;
}

void Detokenizer::push_text(int32_t id, std::string& out) {
  const Tokenizer::Impl& vocab = tokenizer_->impl();
  if (vocab.has(id, Tokenizer::Impl::kByte)) {
    byte_run_ += vocab.pieces.at(id);
    return;
  }
  end_byte_run(out);
  const auto first = first_token_ ? vocab.first_pieces.find(id) : vocab.first_pieces.end();
  emit(first != vocab.first_pieces.end() ? std::string_view(first->second) : vocab.pieces.at(id),
       out);
}

void Detokenizer::end_byte_run(std::string& out) {
  if (is_valid_utf8(byte_run_)) {
    emit(byte_run_, out);
  } else {
    for (size_t i = 0; i < byte_run_.size(); ++i) emit(kReplacement, out);
  }
  byte_run_.clear();
}

void Detokenizer::emit(std::string_view text, std::string& out) {
  const std::string& strip = tokenizer_->impl().strip_char;
  while (strip_left_ > 0 && text.starts_with(strip)) {
    text.remove_prefix(strip.size());
    --strip_left_;
  }
  if (!text.empty()) strip_left_ = 0;
  out += text;
}

// Of ids of the vocabulary. A hostile decoder may still fail for them: then they have no text.
static std::string text_of(const Tokenizer& tokenizer, std::span<const int32_t> ids) {
  auto text = tokenizer.decode(ids, false);
  return text ? std::move(*text) : std::string();
}

// What `after` has behind `before`, in whole characters: a decoder that strips may not begin with
// `before`.
static std::string behind(const std::string& before, const std::string& after) {
  size_t cut = std::min(before.size(), after.size());
  while (cut < after.size() && (static_cast<uint8_t>(after[cut]) & 0xC0) == 0x80) ++cut;
  return after.substr(cut);
}

void Detokenizer::push_window(int32_t id, std::string& out) {
  window_.push_back(id);
  const std::span<const int32_t> ids = window_;
  const std::string before = text_of(*tokenizer_, ids.first(emitted_ids_));
  const std::string after = text_of(*tokenizer_, ids);
  if (after.size() <= before.size() ||
      (ends_in_replacement(after) && ids.size() - emitted_ids_ < kMaxHeldIds)) {
    return;
  }
  out += behind(before, after);
  window_.erase(window_.begin(), window_.begin() + static_cast<ptrdiff_t>(emitted_ids_));
  emitted_ids_ = window_.size();
}

std::string Detokenizer::flush() {
  std::string out;
  utf8_.flush(out);
  end_byte_run(out);
  if (window_.size() > emitted_ids_) {
    const std::span<const int32_t> ids = window_;
    const std::string before = text_of(*tokenizer_, ids.first(emitted_ids_));
    const std::string after = text_of(*tokenizer_, ids);
    out += behind(before, after);
    emitted_ids_ = window_.size();
  }
  return out;
}

}  // namespace quire::text
