#include "server/prompt_builder.h"

#include <algorithm>

#include "base/freed_memory.h"
#include "server/template_variables.h"

namespace quire::server {
namespace {

// What the text library said, or that the budget is spent.
ApiError text_error(const std::string& error, const WorkBudget* budget, const char* param) {
  if (budget == nullptr || !budget->is_spent()) return {400, error, param};
  return {400,
          "Reading this takes more than " + std::to_string(budget->limit_ns / 1'000'000) +
              " ms of processor time, which is the limit for one request",
          param};
}

// What tokenising one text takes of the request's account while it works.
class WorkingCharge {
 public:
  explicit WorkingCharge(const std::shared_ptr<http::Account>& account)
      : account_(*account), charge_(account, http::Held::kTokenising) {}
  // What is no longer counted is the system's before.
  ~WorkingCharge() {
    if (charge_.bytes() >= kWorthReturning) give_back_freed_memory();
  }
  WorkingCharge(const WorkingCharge&) = delete;
  WorkingCharge& operator=(const WorkingCharge&) = delete;

  const text::WorkingMemory& memory() const { return memory_; }
  // What was not there, if it was not.
  const std::optional<ApiError>& refusal() const { return refusal_; }

 private:
  // Every thread's arena would keep the most that it ever had. It takes some milliseconds; so many
  // bytes were worked on for longer.
  static constexpr size_t kWorthReturning = 8u << 20;

  static bool try_add(void* owner, size_t bytes) {
    auto& self = *static_cast<WorkingCharge*>(owner);
    if (self.charge_.try_add(bytes)) return true;
    self.refusal_ = does_not_fit(self.account_, bytes);
    return false;
  }

  const http::Account& account_;
  http::Charge charge_;
  std::optional<ApiError> refusal_;
  const text::WorkingMemory memory_{&try_add, this};
};

}  // namespace

PromptBuilder::PromptBuilder(const ModelText& text, int64_t max_model_len)
    : text_(text),
      forms_(text.chat_template ? forms_of(*text.chat_template, nullptr) : TemplateForms()),
      max_model_len_(max_model_len) {
  for (int32_t id = 0; id < text.tokenizer->vocab_size(); ++id) {
    const auto bytes = static_cast<int64_t>(text.tokenizer->token_bytes(id).size());
    longest_token_ = std::max(longest_token_, bytes);
  }
}

Result<std::vector<int32_t>, ApiError> PromptBuilder::encode(std::string_view text,
                                                             text::EncodeOptions options,
                                                             const char* param,
                                                             const RequestMeans& means) const {
  WorkingCharge charge(means.account);
  options.budget = &means.budget;
  options.memory = &charge.memory();
  auto ids = text_.tokenizer->encode(text, options);
  if (charge.refusal()) return Err{*charge.refusal()};
  if (!ids) return Err{text_error(ids.error(), options.budget, param)};
  return std::move(*ids);
}

Result<std::string, ApiError> PromptBuilder::decode(std::span<const int32_t> ids,
                                                    const text::DecodeOptions& options,
                                                    const char* param) const {
  auto text = text_.tokenizer->decode(ids, options);
  if (!text) return Err{text_error(text.error(), options.budget, param)};
  return std::move(*text);
}

Result<std::vector<int32_t>, ApiError> PromptBuilder::build(
    const openai::Prompt& prompt, const openai::GenerationRequest& request, const char* param,
    const RequestMeans& means) const {
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
                          param, kContextLengthExceeded}};
    }
    text::EncodeOptions options;
    options.add_special_tokens = request.add_special_tokens;
    // Of a truncated prompt only the end that stays is tokenised.
    if (request.truncate_prompt_tokens)
      (request.truncate_left ? options.keep_last : options.keep_first) = kept_tokens(request);
    auto encoded = encode(text, options, param, means);
    if (!encoded) return Err{std::move(encoded).error()};
    ids = std::move(*encoded);
  }
  truncate(ids, request);
  if (auto fits = check_length(ids, request, param); !fits) return Err{fits.error()};
  return ids;
}

int64_t PromptBuilder::kept_tokens(const openai::GenerationRequest& request) const {
  const int64_t keep = *request.truncate_prompt_tokens;
  return keep < 0 ? longest_prompt(request) : keep;
}

void PromptBuilder::truncate(std::vector<int32_t>& ids,
                             const openai::GenerationRequest& request) const {
  if (!request.truncate_prompt_tokens) return;
  const int64_t surplus = static_cast<int64_t>(ids.size()) - kept_tokens(request);
  if (surplus <= 0) return;
  const auto begin = request.truncate_left ? ids.begin() : ids.end() - surplus;
  ids.erase(begin, begin + surplus);
}

// One place is the answer's.
int64_t PromptBuilder::longest_prompt(const openai::GenerationRequest& request) const {
  return max_model_len_ - (request.leaves_room ? 1 : 0);
}

Result<void, ApiError> PromptBuilder::check_length(const std::vector<int32_t>& ids,
                                                   const openai::GenerationRequest& request,
                                                   const char* param) const {
  if (ids.empty()) return Err{ApiError{400, "The prompt is empty", param}};
  if (static_cast<int64_t>(ids.size()) <= longest_prompt(request)) return {};
  return Err{ApiError{400,
                      "The prompt has " + std::to_string(ids.size()) +
                          " tokens, but this model's maximum context length is " +
                          std::to_string(max_model_len_) + " tokens" +
                          (request.leaves_room ? ", one of them for the answer" : ""),
                      param, kContextLengthExceeded}};
}

Result<std::string, ApiError> PromptBuilder::render(const openai::ChatInput& chat,
                                                    WorkBudget& budget) const {
  std::shared_ptr<const text::ChatTemplate> chat_template = text_.chat_template;
  if (chat.chat_template) {
    auto parsed = text::ChatTemplate::parse(*chat.chat_template, {});
    if (!parsed) return Err{ApiError{400, parsed.error(), "chat_template"}};
    chat_template = std::move(*parsed);
  }
  if (!chat_template) {
    return Err{ApiError{400, "This model has no chat template; use /v1/completions", chat.field}};
  }
  TemplateForms forms = chat.chat_template ? forms_of(*chat_template, &budget) : forms_;
  // The end of a last message that goes on is looked for in its text.
  if (chat.continue_final_message) forms.content = ContentForm();
  const std::string tools = chat.tools ? dump_json(*chat.tools) : "";
  const std::string documents = chat.documents ? dump_json(*chat.documents) : "";
  auto variables = template_variables(chat, *chat_template);
  if (!variables) return Err{std::move(variables).error()};
  const std::string kwargs = dump_json(*variables);
  text::ChatTemplateInput input;
  input.tools = tools;
  input.documents = documents;
  input.kwargs = kwargs;
  input.add_generation_prompt = chat.add_generation_prompt;
  input.continue_final_message = chat.continue_final_message;
  input.budget = &budget;
  auto rendered = render_chat(*chat_template, forms, input, chat);
  if (!rendered) return Err{text_error(rendered.error(), &budget, chat.field)};
  return std::move(*rendered);
}

}  // namespace quire::server
