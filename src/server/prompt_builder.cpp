#include "server/prompt_builder.h"

#include <algorithm>

namespace quire::server {

PromptBuilder::PromptBuilder(const ModelText& text, int64_t max_model_len)
    : text_(text), max_model_len_(max_model_len) {
  for (int32_t id = 0; id < text.tokenizer->vocab_size(); ++id) {
    const auto bytes = static_cast<int64_t>(text.tokenizer->token_bytes(id).size());
    longest_token_ = std::max(longest_token_, bytes);
  }
}

Result<std::vector<int32_t>, ApiError> PromptBuilder::encode(std::string_view text,
                                                             bool add_special_tokens,
                                                             const char* param) const {
  auto ids = text_.tokenizer->encode(text, add_special_tokens);
  if (!ids) return Err{ApiError{400, ids.error(), param}};
  return std::move(*ids);
}

Result<std::vector<int32_t>, ApiError> PromptBuilder::build(
    const openai::Prompt& prompt, const openai::GenerationRequest& request,
    const char* param) const {
  std::vector<int32_t> ids;
  if (const auto* given = std::get_if<std::vector<int32_t>>(&prompt)) {
    ids = *given;
  } else {
    const std::string& text = std::get<std::string>(prompt);
    // Tokenising takes time: a text that cannot fit whatever its tokens are is refused before.
    const auto bytes = static_cast<int64_t>(text.size());
    if (!request.truncate_prompt_tokens && bytes / longest_token_ > max_model_len_) {
      return Err{ApiError{400,
                          "The prompt of " + std::to_string(bytes) +
                              " bytes is too long: this model's maximum context length is " +
                              std::to_string(max_model_len_) + " tokens",
                          param}};
    }
    auto encoded = encode(text, request.add_special_tokens, param);
    if (!encoded) return Err{std::move(encoded).error()};
    ids = std::move(*encoded);
  }
  truncate(ids, request);
  if (auto fits = check_length(ids, param); !fits) return Err{fits.error()};
  return ids;
}

void PromptBuilder::truncate(std::vector<int32_t>& ids,
                             const openai::GenerationRequest& request) const {
  if (!request.truncate_prompt_tokens) return;
  int64_t keep = *request.truncate_prompt_tokens;
  // To the model's length leaves one place for the answer.
  if (keep < 0) keep = max_model_len_ - 1;
  const int64_t surplus = static_cast<int64_t>(ids.size()) - keep;
  if (surplus <= 0) return;
  const auto begin = request.truncate_left ? ids.begin() : ids.end() - surplus;
  ids.erase(begin, begin + surplus);
}

Result<void, ApiError> PromptBuilder::check_length(const std::vector<int32_t>& ids,
                                                   const char* param) const {
  if (ids.empty()) return Err{ApiError{400, "The prompt is empty", param}};
  if (static_cast<int64_t>(ids.size()) < max_model_len_) return {};
  return Err{ApiError{400,
                      "The prompt has " + std::to_string(ids.size()) +
                          " tokens, but this model's maximum context length is " +
                          std::to_string(max_model_len_) + " tokens, one of them for the answer",
                      param}};
}

Result<std::string, ApiError> PromptBuilder::render(const openai::ChatInput& chat) const {
  std::shared_ptr<const text::ChatTemplate> chat_template = text_.chat_template;
  if (chat.chat_template) {
    auto parsed = text::ChatTemplate::parse(*chat.chat_template, {});
    if (!parsed) return Err{ApiError{400, parsed.error(), "chat_template"}};
    chat_template = std::move(*parsed);
  }
  if (!chat_template) {
    return Err{ApiError{400, "This model has no chat template; use /v1/completions", "messages"}};
  }
  const std::string messages = dump_json(chat.messages);
  const std::string tools = chat.tools ? dump_json(*chat.tools) : "";
  const std::string documents = chat.documents ? dump_json(*chat.documents) : "";
  const std::string kwargs = dump_json(chat.template_kwargs);
  text::ChatTemplateInput input;
  input.messages = messages;
  input.tools = tools;
  input.documents = documents;
  input.kwargs = kwargs;
  input.add_generation_prompt = chat.add_generation_prompt;
  input.continue_final_message = chat.continue_final_message;
  auto rendered = chat_template->render(input);
  if (!rendered) return Err{ApiError{400, rendered.error(), "messages"}};
  return std::move(*rendered);
}

}  // namespace quire::server
