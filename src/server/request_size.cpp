#include "server/request_size.h"

#include "server/session.h"

namespace quire::server {
namespace {

// Boost.JSON: a value takes 24 bytes, and its array may be twice as long as it is full. A member
// of an object has a key and an entry in a table beside its value.
constexpr size_t kValueBytes = 48;
constexpr size_t kMemberBytes = 64;
constexpr size_t kContainerBytes = 64;

// Of a token that is kept as text alone; the mean of English and code is below 5.
constexpr size_t kTextBytes = 8;
// A parser's: the text of a call that is not over, and its arguments as JSON, in strings that may
// have twice the room that they need.
constexpr size_t kParserBytes = 4 * kTextBytes;
// What the allocator adds to the list of the best tokens.
constexpr size_t kListBytes = 32;

size_t logprob_bytes(int32_t top) {
  if (top < 0) return 0;
  return sizeof(engine::TokenLogprob) + kListBytes +
         sizeof(std::pair<int32_t, float>) * static_cast<size_t>(top);
}

}  // namespace

size_t document_bytes(std::string_view body) {
  size_t bytes = body.size();  // strings
  for (const char c : body) {
    if (c == ',') bytes += kValueBytes;
    if (c == ':') bytes += kMemberBytes;
    if (c == '[' || c == '{') bytes += kContainerBytes;
  }
  return bytes;
}

size_t rendering_bytes(std::string_view body) { return 2 * document_bytes(body) + 5 * body.size(); }

size_t choice_bytes(const openai::GenerationRequest& request, size_t prompt_tokens,
                    size_t echo_bytes) {
  const engine::SamplingParams& sampling = request.sampling;
  size_t bytes = prompt_tokens * sizeof(int32_t) + request.cache_salt.size();
  bytes += sampling.stop_token_ids.size() * sizeof(int32_t);
  bytes += sampling.logit_bias.size() * sizeof(sampling.logit_bias[0]);
  if (sampling.allowed_tokens) bytes += sampling.allowed_tokens->size() * sizeof(uint32_t);
  return 2 * (bytes + echo_bytes);
}

// A byte is a token at most; each word is looked for with and without a space before it, and each
// of these is in three lists: as it is, and sorted for known and for pending tokens.
size_t bad_words_bytes(const openai::GenerationRequest& request, int64_t vocab_size) {
  if (request.bad_words.empty()) return 0;
  constexpr size_t kVariants = 2, kLists = 3;
  size_t bytes = static_cast<size_t>(vocab_size) / 8;
  for (const std::string& word : request.bad_words)
    bytes += kVariants * kLists * (kContainerBytes + sizeof(int32_t) * (word.size() + 1));
  return bytes;
}

// Kept once, and once more in an event that is being written.
size_t echo_bytes(const openai::GenerationRequest& request) {
  if (!request.responses) return 0;
  size_t bytes = 3 * request.responses->members.size();
  for (const auto& [name, tool] : request.responses->placed_tools)
    bytes += kContainerBytes + kMemberBytes + name.size() + tool.space.size() + tool.name.size();
  return bytes;
}

size_t answer_bytes(const openai::GenerationRequest& request, const AnswerShape& shape) {
  const engine::SamplingParams& sampling = request.sampling;
  const bool keeps_tokens = sampling.logprobs >= 0 || request.return_token_ids;
  size_t of_token = 0;
  // The last events of a response have its whole text.
  if (!request.stream || request.responses) {
    of_token = kTextBytes;
    if (keeps_tokens) of_token += sizeof(SessionToken) + logprob_bytes(sampling.logprobs);
  }
  if (shape.parsed) of_token += kParserBytes;
  size_t of_prompt_token = logprob_bytes(sampling.prompt_logprobs);
  // An echoed prompt has its tokens among those of the answer.
  if (request.echo && keeps_tokens) of_prompt_token += sizeof(SessionToken) + of_prompt_token;
  const size_t one = of_token * static_cast<size_t>(shape.max_tokens) +
                     of_prompt_token * static_cast<size_t>(shape.prompt_tokens);
  return one * static_cast<size_t>(request.n) * static_cast<size_t>(shape.prompts);
}

ApiError answer_too_large(const openai::GenerationRequest& request, const AnswerShape& shape,
                          size_t limit) {
  const auto number = [](auto value) { return std::to_string(value); };
  const engine::SamplingParams& sampling = request.sampling;
  const bool by_prompt = sampling.prompt_logprobs >= 0;
  std::string text = "The answer may take " + number(answer_bytes(request, shape)) +
                     " bytes, more than the " + number(limit) +
                     " that one client may have held: " + number(shape.prompts) +
                     " prompts x `n` of " + number(request.n) + " x (" + number(shape.max_tokens) +
                     " tokens of answer";
  if (sampling.logprobs >= 0) text += " with `logprobs` of " + number(sampling.logprobs);
  if (by_prompt) {
    text += " + " + number(shape.prompt_tokens) + " tokens of prompt with `prompt_logprobs` of " +
            number(sampling.prompt_logprobs);
  }
  return {400, text + ")", by_prompt ? "prompt_logprobs" : "n"};
}

ApiError choices_too_large(size_t bytes, size_t limit) {
  return {400,
          "The prompts, stop strings, `stop_token_ids`, `allowed_token_ids`, `bad_words` and "
          "`logit_bias` take " +
              std::to_string(bytes) + " bytes for all prompts x `n`, more than the " +
              std::to_string(limit) + " that one client may have held",
          "n"};
}

ApiError does_not_fit(const http::Account& account, size_t more) {
  const size_t all = account.held() + more;
  if (all > account.limit()) {
    return {400,
            "The request's text, its JSON when it is read, its prompts and tokenising them take " +
                std::to_string(all) + " bytes, more than the " + std::to_string(account.limit()) +
                " that one client may have held (--max-buffered-bytes)",
            ""};
  }
  return {503, "The server holds too many bytes of this and other requests", ""};
}

}  // namespace quire::server
