// From the body of a chat request, or one of Anthropic's Messages or OpenAI's Responses API, to the
// ids of its prompt: parsing, the model's chat template (the first byte picks one of the models),
// the tokenizer.
#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/source_dir.h"
#include "cpu_timer.h"
#include "server/anthropic/parse.h"
#include "server/openai/parse.h"
#include "server/prompt_builder.h"
#include "server/responses/parse.h"
#include "text/utf8.h"

namespace {

using namespace quire;
using namespace quire::server;

// A request may spend a second on its text; instrumented parsing comes on top.
constexpr auto kBudget = std::chrono::seconds(1);
constexpr double kMaxCpuMilliseconds = 3'000;
constexpr int64_t kMaxModelLen = 2048;
constexpr size_t kMaxBytes = 512u << 20;  // for all that a request holds, as by default

ModelText load(const char* name) {
  const std::filesystem::path dir = std::filesystem::path(source_dir()) / name;
  ModelText text;
  text.tokenizer = text::Tokenizer::load(dir);
  text.chat_template = text::ChatTemplate::load(dir);
  QUIRE_CHECK(text.chat_template != nullptr) << name;
  return text;
}

struct Model {
  explicit Model(const char* name) : text(load(name)) {}
  ModelText text;
  PromptBuilder prompts{text, kMaxModelLen};
};

const Model& model(uint8_t choice) {
  static const std::array<Model, 2> models{Model("models/quire-demo"),
                                           Model("tests/parity/models/mistral")};
  return models[choice % models.size()];
}

void check_prompt(const Model& model, const openai::ChatRequest& request) {
  WorkBudget budget(kBudget);
  const auto rendered = model.prompts.render(request.chat, budget);
  if (!rendered) {
    QUIRE_CHECK(rendered.error().status == 400 && !rendered.error().message.empty());
    return;
  }
  QUIRE_CHECK(text::is_valid_utf8(*rendered));
  const char* field = request.chat.field;
  const auto ledger = std::make_shared<http::Ledger>(kMaxBytes, 1);
  const RequestMeans means{budget, std::make_shared<http::Account>(ledger, "client")};
  const auto ids = model.prompts.build(openai::Prompt(*rendered), request, field, means);
  QUIRE_CHECK(ledger->held() == 0);
  if (!ids) {
    QUIRE_CHECK(ids.error().status == 400 && ids.error().param == field);
    return;
  }
  QUIRE_CHECK(!ids->empty() && ids->size() < kMaxModelLen);
  for (const int32_t id : *ids) QUIRE_CHECK(id >= 0 && id < model.text.tokenizer->vocab_size());
}

// What the answer repeats of the request must be JSON again.
void check_echo(const openai::ChatRequest& request) {
  if (!request.responses) return;
  const auto members = parse_json("{" + request.responses->members + "}");
  QUIRE_CHECK(members.ok()) << request.responses->members;
  for (const char* key : {"tools", "tool_choice", "parallel_tool_calls"})
    QUIRE_CHECK(members->get_object().contains(key)) << key;
}

Result<openai::ChatRequest, ApiError> parse(uint8_t choice, std::string_view body,
                                            const openai::ParseContext& context) {
  if (choice & 16) return responses::parse_responses(body, context);
  if (choice & 8) return anthropic::parse_messages(body, context);
  return openai::parse_chat(body, context);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const Model& chosen = model(data[0]);
  const std::string_view body(reinterpret_cast<const char*>(data) + 1, size - 1);
  openai::ParseContext context;
  context.vocab_size = chosen.text.tokenizer->vocab_size();
  context.trust_request_chat_template = data[0] & 4;
  const fuzz::CpuTimer timer;
  const auto request = parse(data[0], body, context);
  if (request) {
    check_echo(*request);
    check_prompt(chosen, *request);
  } else {
    QUIRE_CHECK(request.error().status == 400 && !request.error().message.empty());
    QUIRE_CHECK(text::is_valid_utf8(request.error().message)) << request.error().message;
  }
  QUIRE_CHECK(timer.milliseconds() < kMaxCpuMilliseconds) << timer.milliseconds() << " ms";
  return 0;
}
