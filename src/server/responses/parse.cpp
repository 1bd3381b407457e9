#include "server/responses/parse.h"

#include <algorithm>
#include <charconv>

#include "base/printable.h"

namespace quire::server::responses {
namespace {

using openai::as_view;
using openai::ChatRequest;
using openai::Fields;
using openai::ParseContext;
using openai::ResponsesEcho;

constexpr size_t kMaxNameBytes = 40;  // of a client's own, in an error
constexpr size_t kMaxMetadata = 16;   // OpenAI's

// Of items that no answer here has: with them nothing can be left out.
constexpr std::string_view kOfOtherItems[] = {
    "file_search_call.results",       "web_search_call.results",
    "web_search_call.action.sources", "code_interpreter_call.outputs",
    "message.input_image.image_url",  "computer_call_output.output.image_url",
};

// {"type": "json_schema", "name", "schema", "strict"} and the like.
void parse_format(Fields& text, ChatRequest& out) {
  const json::object* format = text.object("format");
  if (format == nullptr) return;
  Fields inner(*format, text.name("format."));
  const std::string type = inner.string("type").value_or("");
  if (type == "json_schema") {
    inner.only({"type", "name", "description", "schema", "strict"});
    inner.string("name");
    inner.string("description");
    inner.boolean("strict");  // it is always kept
    if (const json::object* schema = inner.object("schema")) {
      out.constraint = openai::Constraint{text::GrammarSpec::Kind::kJsonSchema, dump_json(*schema),
                                          inner.name("schema")};
    } else {
      inner.missing("schema");
    }
  } else if (type == "json_object") {
    inner.only({"type"});
    out.constraint =
        openai::Constraint{text::GrammarSpec::Kind::kJsonObject, "", inner.name("type")};
  } else if (type == "text") {
    inner.only({"type"});
  } else {
    inner.fail("type", "must be \"text\", \"json_object\" or \"json_schema\"");
  }
  if (!inner.ok()) text.fail(inner.error());
}

void parse_text(Fields& fields, ChatRequest& out) {
  const json::object* text = fields.object("text");
  if (text == nullptr) return;
  Fields inner(*text, "text.");
  inner.only({"format", "verbosity"});
  inner.unsupported_unless("verbosity", "medium");
  parse_format(inner, out);
  if (!inner.ok()) fields.fail(inner.error());
}

// Models differ in what they can do of this, and agents always send it: an effort that the template
// does not know is left out. None at all is something that most templates can do.
void parse_reasoning(Fields& fields, ChatRequest& out) {
  openai::ReasoningWish& wish = out.chat.reasoning;
  wish.is_hint = true;
  const json::object* reasoning = fields.object("reasoning");
  if (reasoning == nullptr) return;
  Fields inner(*reasoning, "reasoning.");
  inner.only({"effort", "summary", "generate_summary", "context", "mode"});
  openai::parse_effort(inner, "effort", wish);
  if (wish.effort == "none") {
    wish.thinking = false;
    wish.thinking_field = wish.effort_field;
  }
  // Nothing makes summaries here: the model's own words are the answer's reasoning.
  inner.unsupported_unless("summary", "auto");
  inner.unsupported_unless("generate_summary", "auto");
  inner.unsupported_unless("context", "auto");
  inner.unsupported_unless("mode", "standard");
  if (!inner.ok()) fields.fail(inner.error());
}

void parse_include(Fields& fields, ResponsesEcho& echo) {
  const json::array* list = fields.array("include", std::numeric_limits<int64_t>::max());
  if (list == nullptr) return;
  for (const json::value& value : *list) {
    if (!value.is_string()) return fields.mistyped("include", "must be a list of strings");
    const std::string_view name = as_view(value.get_string());
    if (name == "reasoning.encrypted_content") {
      echo.seals_reasoning = true;
    } else if (std::ranges::find(kOfOtherItems, name) == std::end(kOfOtherItems)) {
      return fields.fail("include",
                         "has \"" + printable(name, kMaxNameBytes) + "\", which is not supported",
                         "unsupported_value");
    }
  }
}

void parse_stream(Fields& fields, ChatRequest& out) {
  out.stream = fields.flag("stream", false);
  const json::object* options = fields.object("stream_options");
  if (options == nullptr) return;
  if (!out.stream) return fields.fail("stream_options", "can only be given when `stream` is true");
  Fields inner(*options, "stream_options.");
  inner.only({"include_obfuscation"});
  inner.unsupported_unless("include_obfuscation", false);
  if (!inner.ok()) fields.fail(inner.error());
}

void check_metadata(Fields& fields) {
  const json::object* metadata = fields.object("metadata");
  if (metadata == nullptr) return;
  if (metadata->size() > kMaxMetadata)
    return fields.fail("metadata", "has more than " + std::to_string(kMaxMetadata) + " entries");
  for (const auto& entry : *metadata)
    if (!entry.value().is_string())
      return fields.mistyped("metadata", "must have strings as values");
}

// With the digits of the float.
std::string number_text(float value) {
  char buffer[32];
  return {buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr};
}

// The members of the answer that are the request's own.
class EchoWriter {
 public:
  EchoWriter(const Fields& fields, std::string& out) : fields_(fields), out_(out) {}

  void add(const char* key, std::string_view text) {
    if (!out_.empty()) out_ += ',';
    out_ += '"';
    out_ += key;
    out_ += "\":";
    out_ += text;
  }
  // The client's value, or this.
  void add_given(const char* key, std::string_view otherwise) {
    const json::value* value = fields_.find(key);
    add(key, value != nullptr ? dump_json(*value) : otherwise);
  }

 private:
  const Fields& fields_;
  std::string& out_;
};

// A member of an object of the request, as JSON.
std::string member_text(const Fields& fields, const char* owner, const char* key,
                        const char* otherwise) {
  const json::value* object = fields.find(owner);
  const json::value* value = object != nullptr ? object->as_object().if_contains(key) : nullptr;
  return value != nullptr && !value->is_null() ? dump_json(*value) : otherwise;
}

std::string echo_members(const Fields& fields, const ChatRequest& request,
                         const json::array& tools) {
  std::string out;
  EchoWriter echo(fields, out);
  echo.add_given("instructions", "null");
  echo.add_given("max_output_tokens", "null");
  echo.add_given("metadata", "{}");
  echo.add("parallel_tool_calls", request.parallel_tool_calls ? "true" : "false");
  echo.add("reasoning", "{\"effort\":" + member_text(fields, "reasoning", "effort", "null") +
                            ",\"summary\":" + member_text(fields, "reasoning", "summary", "null") +
                            "}");
  echo.add_given("temperature", number_text(request.sampling.temperature));
  echo.add("text", "{\"format\":" + member_text(fields, "text", "format", R"({"type":"text"})") +
                       R"(,"verbosity":"medium"})");
  echo.add_given("tool_choice", "\"auto\"");
  echo.add("tools", dump_json(tools));
  echo.add_given("top_p", number_text(request.sampling.top_p));
  return out;
}

}  // namespace

Result<ChatRequest, ApiError> parse_responses(std::string_view body, const ParseContext& context) {
  auto object = openai::parse_body(body, context);
  if (!object) return Err{std::move(object).error()};
  Fields fields(*object);
  ChatRequest out;
  auto echo = std::make_shared<ResponsesEcho>();
  out.api = openai::GenerationRequest::Api::kResponses;
  out.chat.field = "input";
  out.add_special_tokens = false;
  out.unknown_fields = check_fields(fields, openai::kResponses);
  parse_model(fields, out);
  parse_stream(fields, out);
  parse_sampling(fields, context, out);
  parse_scheduling(fields, context, out);
  out.max_tokens = fields.integer("max_output_tokens", 1);
  out.max_tokens_field = "max_output_tokens";
  check_min_tokens(fields, out);
  fields.boolean("store");  // nothing is stored either way, and the answer says so
  check_metadata(fields);
  parse_include(fields, *echo);
  parse_text(fields, out);
  parse_reasoning(fields, out);
  parse_input(fields, context, out.chat);
  const json::array tools = parse_tools(fields, context, out, *echo);
  if (!fields.ok()) return Err{fields.error()};
  parse_answer_form(fields, context, out);
  if (out.constraint) out.needs_grammar = true;
  if (!fields.ok()) return Err{fields.error()};
  echo->members = echo_members(fields, out, tools);
  out.responses = std::move(echo);
  return out;
}

}  // namespace quire::server::responses
