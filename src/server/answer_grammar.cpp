#include "server/answer_grammar.h"

#include <algorithm>

#include "base/trimmed.h"
#include "dialects/call_grammar.h"
#include "dialects/json_text.h"
#include "server/openai/fields.h"

namespace quire::server {
namespace {

using Kind = text::GrammarSpec::Kind;
using dialects::CallGrammar;
using dialects::Dialect;
using dialects::ForcedTool;

ApiError unsupported(const std::string& param, const std::string& reason) {
  return {400, "`" + param + "` is not supported: " + reason, param, "unsupported_parameter"};
}

// Makes the grammar of one chat.
class GrammarMaker {
 public:
  GrammarMaker(const openai::ChatRequest& request, const dialects::DialectChoice& choice,
               std::string_view prompt, const text::Tokenizer& tokenizer)
      : request_(request), choice_(choice), prompt_(prompt), tokenizer_(tokenizer) {}

  Result<std::optional<AnswerGrammar>, ApiError> make();

 private:
  std::optional<Dialect::Reasoning> thoughts() const;
  json::object thinking() const;
  json::array ids_of(std::string_view text) const;
  std::vector<ForcedTool> tools(bool only_strict_schemas) const;
  Result<AnswerGrammar, ApiError> calls() const;
  Result<std::optional<AnswerGrammar>, ApiError> form() const;
  bool can_combine() const;
  Result<CallGrammar, ApiError> call_grammar(CallGrammar::Begin begin,
                                             const ForcedTool* alternative) const;

  const openai::ChatRequest& request_;
  const dialects::DialectChoice& choice_;
  const std::string_view prompt_;
  const text::Tokenizer& tokenizer_;
};

// What stands around the thoughts that may come; nothing if none may.
std::optional<Dialect::Reasoning> GrammarMaker::thoughts() const {
  const Dialect* dialect = choice_.reasoning;
  if (dialect == nullptr) return std::nullopt;
  if (!dialect->thoughts.open.empty()) return dialect->thoughts;
  const std::string_view prompt = trimmed(prompt_);
  for (const auto& pair : dialect->reasoning) {
    if (prompt.ends_with(pair.open)) return pair;
    if (prompt.ends_with(pair.close)) return std::nullopt;
  }
  if (dialect->reasoning.empty()) return std::nullopt;
  return dialect->reasoning.front();
}

json::array GrammarMaker::ids_of(std::string_view text) const {
  json::array ids;
  if (const auto encoded = tokenizer_.encode(text, false))
    for (const int32_t id : *encoded) ids.emplace_back(id);
  return ids;
}

json::object GrammarMaker::thinking() const {
  json::object prelude;
  const auto pair = thoughts();
  if (!pair) return prelude;
  size_t continued = 0;
  if (request_.chat.continue_final_message) {
    const json::object& last = request_.chat.messages.back().get_object();
    continued = openai::as_view(last.at("content").get_string()).size();
  }
  json::object thinking{
      {"open", ids_of(pair->open)},
      {"close", ids_of(pair->close)},
      {"close_text", json::string_view(pair->close.data(), pair->close.size())},
      {"starts_open", dialects::starts_in_reasoning(*choice_.reasoning, prompt_, continued)}};
  if (request_.thinking_budget) thinking["budget"] = *request_.thinking_budget;
  prelude["thinking"] = std::move(thinking);
  return prelude;
}

std::vector<ForcedTool> GrammarMaker::tools(bool only_strict_schemas) const {
  std::vector<ForcedTool> tools;
  const json::array& all = *request_.chat.tools;
  for (size_t i = 0; i < all.size(); ++i) {
    const json::object& function = all[i].at("function").get_object();
    const std::string_view name = openai::as_view(function.at("name").get_string());
    if (!request_.may_call(name)) continue;
    const auto& fields = request_.chat.schema_fields;
    ForcedTool tool{
        name, nullptr,
        i < fields.size() ? fields[i] : "tools[" + std::to_string(i) + "].function.parameters"};
    const json::value* strict = function.if_contains("strict");
    const json::value* schema = function.if_contains("parameters");
    const bool is_strict = strict != nullptr && strict->is_bool() && strict->get_bool();
    if (schema != nullptr && (is_strict || !only_strict_schemas)) tool.schema = schema->if_object();
    tools.push_back(std::move(tool));
  }
  return tools;
}

Result<CallGrammar, ApiError> GrammarMaker::call_grammar(CallGrammar::Begin begin,
                                                         const ForcedTool* alternative) const {
  const auto special = [this](std::string_view text) -> std::optional<int32_t> {
    const auto id = tokenizer_.token_to_id(text);
    return id && tokenizer_.is_special(*id) ? id : std::nullopt;
  };
  // Calls that must come follow their schemas in any case, so that they are worth something.
  const bool only_strict = !request_.requires_calls;
  auto grammar = dialects::make_call_grammar(*choice_.calls, tools(only_strict), begin,
                                             !request_.parallel_tool_calls, special, alternative);
  if (grammar) return std::move(*grammar);
  return Err{ApiError{400, grammar.error().message, grammar.error().param}};
}

// Calls that must come, or that must be as their schemas say if they come.
Result<AnswerGrammar, ApiError> GrammarMaker::calls() const {
  const std::string param = request_.requires_calls ? "tool_choice" : "tools";
  if (choice_.calls == nullptr) {
    return Err{unsupported(param,
                           "this model's chat template shows no known form of tool calls; "
                           "--tool-call-parser names one")};
  }
  json::object prelude = thinking();
  const auto begin =
      request_.requires_calls ? CallGrammar::Begin::kAtOnce : CallGrammar::Begin::kAfterTrigger;
  auto grammar = call_grammar(begin, nullptr);
  if (!grammar) return Err{std::move(grammar).error()};
  if (!request_.requires_calls) {
    prelude["triggers"] = json::array(grammar->triggers.begin(), grammar->triggers.end());
    prelude["kept_triggers"] =
        json::array(grammar->kept_triggers.begin(), grammar->kept_triggers.end());
    prelude["repeats"] = true;
  }
  return AnswerGrammar{Kind::kCalls, grammar->source, dump_json(prelude), param};
}

// JSON that the answer may be instead of a call.
bool GrammarMaker::can_combine() const {
  const Kind kind = request_.constraint->kind;
  return request_.parses_calls && choice_.calls != nullptr &&
         (kind == Kind::kJsonSchema || kind == Kind::kJsonObject);
}

Result<std::optional<AnswerGrammar>, ApiError> GrammarMaker::form() const {
  auto grammar = plain_grammar(request_);
  if (!grammar) return grammar;
  json::object prelude = thinking();
  std::optional<json::value> schema = json::object{{"type", "object"}};
  if (grammar->kind == Kind::kJsonSchema) {
    auto parsed = parse_json(grammar->source);
    schema = parsed ? std::optional(std::move(*parsed)) : std::nullopt;
  }
  if (can_combine() && schema && schema->is_object()) {
    const ForcedTool answer{{}, &schema->get_object(), grammar->param};
    auto either = call_grammar(CallGrammar::Begin::kAtOnce, &answer);
    if (!either) return Err{std::move(either).error()};
    grammar->kind = Kind::kCalls;
    grammar->source = either->source;
  } else if (choice_.reasoning != nullptr && !choice_.reasoning->before_content.empty()) {
    const std::string_view begin = choice_.reasoning->before_content;
    prelude["triggers"] = json::array{json::string_view(begin.data(), begin.size())};
    prelude["required"] = true;
  }
  if (!prelude.empty()) grammar->prelude = dump_json(prelude);
  return grammar;
}

Result<std::optional<AnswerGrammar>, ApiError> GrammarMaker::make() {
  if (request_.thinking_budget && choice_.reasoning == nullptr &&
      !request_.chat.reasoning.is_hint) {
    return Err{unsupported(request_.thinking_budget_field,
                           "this model's chat template shows no reasoning; --reasoning-parser "
                           "names its form")};
  }
  const bool strict = request_.has_strict_tools && request_.parses_calls && !request_.constraint;
  if (request_.requires_calls || strict) {
    auto grammar = calls();
    if (!grammar) return Err{std::move(grammar).error()};
    return std::optional(std::move(*grammar));
  }
  if (request_.constraint) return form();
  std::optional<AnswerGrammar> none;
  json::object prelude = thinking();
  if (!request_.thinking_budget || prelude.empty()) return none;
  prelude["free"] = true;
  return std::optional(
      AnswerGrammar{Kind::kRegex, "x", dump_json(prelude), request_.thinking_budget_field});
}

}  // namespace

std::optional<AnswerGrammar> plain_grammar(const openai::GenerationRequest& request) {
  if (!request.constraint) return std::nullopt;
  const openai::Constraint& constraint = *request.constraint;
  return AnswerGrammar{constraint.kind, constraint.source, {}, constraint.param};
}

Result<std::optional<AnswerGrammar>, ApiError> chat_grammar(const openai::ChatRequest& request,
                                                            const dialects::DialectChoice& choice,
                                                            std::string_view prompt,
                                                            const text::Tokenizer& tokenizer) {
  return GrammarMaker(request, choice, prompt, tokenizer).make();
}

}  // namespace quire::server
