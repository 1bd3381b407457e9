// Hostile chat templates. The input is the template, then (behind a byte 0) the request's template
// arguments as JSON. Rendering ends within its limits, gives UTF-8, and the same text each time.
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "cpu_timer.h"
#include "text/chat_template.h"
#include "text/utf8.h"

namespace {

using namespace quire::text;

constexpr std::string_view kMessages = R"([
  {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Wie geht's, \"Jörg\"?\n"},
  {"role": "assistant", "content": "", "tool_calls": [{"id": "1", "type": "function",
    "function": {"name": "add", "arguments": {"a": 1, "b": [2.5, null, true]}}}]},
  {"role": "tool", "tool_call_id": "1", "content": "3"}])";
constexpr std::string_view kTools = R"([{"type": "function", "function": {"name": "add",
  "description": "Adds.", "parameters": {"type": "object", "properties": {"a": {"type": "number"}}}}}])";
constexpr std::string_view kTokens = R"({"bos_token": "<s>", "eos_token": "</s>"})";

// Small, so that thousands of templates run in a second. Time on top of the wall time's limit is
// for one operation that began just before it, and for a machine that is busy.
constexpr ChatTemplateLimits kLimits{
    .work = 1u << 20, .output_bytes = 1u << 20, .fuel = 100'000, .milliseconds = 500};
constexpr double kMaxCpuMilliseconds = 2'000;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::string_view source = input.substr(0, input.find('\0'));
  const quire::fuzz::CpuTimer timer;
  const auto chat = ChatTemplate::parse(source, kTokens);
  if (!chat) {
    QUIRE_CHECK(!chat.error().empty());
    return 0;
  }
  ChatTemplateInput given{.messages = kMessages, .tools = kTools, .limits = kLimits};
  given.now = LocalTime{2024, 2, 29, 23, 59, 58};
  if (source.size() < input.size()) given.kwargs = input.substr(source.size() + 1);
  given.continue_final_message = size % 8 == 7;
  const auto first = (*chat)->render(given);
  QUIRE_CHECK(timer.milliseconds() < kMaxCpuMilliseconds) << timer.milliseconds() << " ms";
  if (!first) return 0;
  QUIRE_CHECK(first->size() <= kLimits.output_bytes) << first->size() << " bytes";
  QUIRE_CHECK(is_valid_utf8(*first));
  const auto second = (*chat)->render(given);
  QUIRE_CHECK(second && *second == *first) << "the second rendering differs";
  return 0;
}
