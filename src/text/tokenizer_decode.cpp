// Decoding that can be stopped.
#include "text/detokenizer.h"
#include "text/tokenizer.h"
#include "text/tokenizer_impl.h"

namespace quire::text {
namespace {

// Ids between two looks at the budget: some 20 us.
constexpr size_t kSlice = 1024;
// Ids for a decoder that takes all in one go.
constexpr size_t kMaxUncutIds = 65'536;

}  // namespace

size_t Tokenizer::decoded_bytes(std::span<const int32_t> ids) const {
  size_t bytes = 0;
  for (const int32_t id : ids) {
    const std::string_view piece = token_bytes(id);
    // A byte that is no part of a character becomes U+FFFD, and so does every byte token of a run
    // that is not valid.
    const bool is_byte = impl_->rule == JoinRule::kByteRuns && impl_->has(id, Impl::kByte);
    bytes += piece.size() * (is_byte || !is_valid_utf8(piece) ? kReplacement.size() : 1);
    // Other decoders put spaces between.
    if (impl_->rule == JoinRule::kOpaque) ++bytes;
  }
  return bytes;
}

Result<std::string, std::string> Tokenizer::decode(std::span<const int32_t> ids,
                                                   const DecodeOptions& options) const {
  BudgetStage stage(options.budget);
  const auto stopped = [&] {
    return Err<std::string>{options.budget->cancelled
                                ? "cancelled"
                                : "the ids take more processor time than one request may spend"};
  };
  if (impl_->rule == JoinRule::kOpaque) {
    if (ids.size() > kMaxUncutIds) {
      return Err{"there are more than " + std::to_string(kMaxUncutIds) +
                 " ids, which this model's tokenizer can only decode in one go"};
    }
    auto text = decode(ids, options.skip_special_tokens);
    if (!stage.may_go_on()) return stopped();
    return text;
  }
  // Not owned: the detokenizer does not outlive this call.
  Detokenizer detokenizer(std::shared_ptr<const Tokenizer>(std::shared_ptr<void>(), this),
                          options.skip_special_tokens);
  std::string text;
  text.reserve(decoded_bytes(ids));
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i % kSlice == 0 && !stage.may_go_on()) return stopped();
    if (ids[i] < 0 || ids[i] >= vocab_size()) {
      return Err{"token id " + std::to_string(ids[i]) + " is outside [0, " +
                 std::to_string(vocab_size()) + ")"};
    }
    text += detokenizer.push(ids[i]);
  }
  text += detokenizer.flush();
  if (!stage.may_go_on()) return stopped();
  return text;
}

}  // namespace quire::text
