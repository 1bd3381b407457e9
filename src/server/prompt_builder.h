#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/work_budget.h"
#include "server/chat_rendering.h"
#include "server/errors.h"
#include "server/openai/request.h"
#include "server/options.h"
#include "server/request_size.h"

namespace quire::server {

// Makes token ids of what clients send (texts, messages, ids), and texts of ids. Thread-safe. The
// work ends with an error when its budget is spent or cancelled.
class PromptBuilder {
 public:
  PromptBuilder(const ModelText& text, int64_t max_model_len);

  // The ids of a completion's prompt, cut as the request says. `param` is blamed for errors.
  Result<std::vector<int32_t>, ApiError> build(const openai::Prompt& prompt,
                                               const openai::GenerationRequest& request,
                                               const char* param, const RequestMeans& means) const;
  // `options` without budget and memory, which are the request's.
  Result<std::vector<int32_t>, ApiError> encode(std::string_view text, text::EncodeOptions options,
                                                const char* param, const RequestMeans& means) const;
  // The text of ids, whose decoded_bytes() the caller has charged to an account.
  Result<std::string, ApiError> decode(std::span<const int32_t> ids,
                                       const text::DecodeOptions& options, const char* param) const;
  // The chat template's text.
  Result<std::string, ApiError> render(const openai::ChatInput& chat, WorkBudget& budget) const;

 private:
  int64_t kept_tokens(const openai::GenerationRequest& request) const;
  void truncate(std::vector<int32_t>& ids, const openai::GenerationRequest& request) const;
  int64_t longest_prompt(const openai::GenerationRequest& request) const;
  Result<void, ApiError> check_length(const std::vector<int32_t>& ids,
                                      const openai::GenerationRequest& request,
                                      const char* param) const;

  const ModelText& text_;
  TemplateForms forms_;  // of the model's own
  int64_t max_model_len_;
  int64_t longest_token_ = 1;  // bytes
};

}  // namespace quire::server
