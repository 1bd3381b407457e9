#include "server/parsing_plan.h"

#include "base/check.h"
#include "server/openai/fields.h"

namespace quire::server {

ParsingPlan::ParsingPlan(const ModelText& text)
    : text_(text), choice_(choose(text.chat_template ? text.chat_template->source() : "")) {}

dialects::DialectChoice ParsingPlan::choose(std::string_view chat_template) const {
  dialects::DialectChoice choice = dialects::detect_dialect(chat_template);
  if (text_.parsers.calls) choice.calls = *text_.parsers.calls;
  if (text_.parsers.reasoning) choice.reasoning = *text_.parsers.reasoning;
  return choice;
}

dialects::DialectChoice ParsingPlan::choice_for(const openai::ChatInput& chat) const {
  return chat.chat_template ? choose(*chat.chat_template) : choice_;
}

std::shared_ptr<const ParsingOptions> ParsingPlan::options(const openai::ChatRequest& request,
                                                           std::string_view prompt) const {
  dialects::DialectChoice choice = choice_for(request.chat);
  if (!request.parses_calls) choice.calls = nullptr;
  if (!request.parses_reasoning) choice.reasoning = nullptr;
  if (choice.calls == nullptr && choice.reasoning == nullptr) return nullptr;
  auto options = std::make_shared<ParsingOptions>();
  options->dialect = choice;
  // No tools: nothing is offered.
  json::array offered;
  for (const json::value& tool : request.chat.tools.value_or(json::array()))
    if (request.may_call(openai::as_view(tool.at("function").at("name").get_string())))
      offered.push_back(tool);
  auto tools = dialects::ToolSet::parse(json::value(std::move(offered)));
  QUIRE_CHECK(tools.ok()) << "the request's parser let tools without a name pass";
  options->tools = std::move(*tools);
  for (const std::string_view marker : dialects::marker_texts(choice)) {
    const auto id = text_.tokenizer->token_to_id(marker);
    if (id && text_.tokenizer->is_special(*id)) options->kept_ids.push_back(*id);
  }
  if (choice.reasoning != nullptr) {
    size_t continued = 0;
    if (request.chat.continue_final_message) {
      const json::object& last = request.chat.messages.back().get_object();
      continued = openai::as_view(last.at("content").get_string()).size();
    }
    options->starts_in_reasoning =
        dialects::starts_in_reasoning(*choice.reasoning, prompt, continued);
  }
  options->include_reasoning = request.include_reasoning;
  options->calls_are_certain = request.requires_calls;
  options->one_call = !request.parallel_tool_calls;
  return options;
}

}  // namespace quire::server
