#include "dialects/glm_calls.h"

#include "dialects/json_calls.h"
#include "dialects/json_text.h"
#include "dialects/tagged_values.h"

namespace quire::dialects {
namespace {

constexpr std::string_view kKey = "<arg_key>", kKeyEnd = "</arg_key>";
constexpr std::string_view kValue = "<arg_value>", kValueEnd = "</arg_value>";
constexpr std::string_view kEnd = "</tool_call>";
constexpr std::string_view kFollowers[] = {kKey, kEnd, "<tool_call>"};
constexpr std::string_view kInstead[] = {kKey, kEnd};
constexpr ValueEnd kGlmValue{kValueEnd, kFollowers, kInstead, false};

Task<std::string> function_name(Reader& in) {
  std::string name;
  for (;;) {
    const int byte = co_await in.peek();
    if (byte == Reader::kEnd || byte == '<') break;
    if (name.size() == 512) co_await in.fail();
    name += static_cast<char>(byte);
    co_await in.next();
  }
  co_return name;
}

}  // namespace

Task<> glm_call(Reader& in) {
  const std::string name = co_await function_name(in);
  // A name without anything after it may be cut.
  const bool has_arguments = co_await follows(in, kKey);
  const bool ends = co_await follows(in, kEnd);
  if (!has_arguments && !ends) co_await in.fail();
  in.begin_call(name);
  TaggedArguments arguments(in);
  for (;;) {
    const bool more = co_await accept_spaced(in, kKey);
    if (!more) break;
    const std::string read = co_await read_until(in, kKeyEnd);
    const std::string key(trimmed(read));
    co_await skip_space(in);
    co_await expect(in, kValue);
    arguments.open_key(key);
    co_await tagged_value(in, kGlmValue, key);
    co_await closers(in, kValueEnd);
  }
  const bool closed = co_await follows(in, kEnd);
  if (!closed) {
    const bool at_end = co_await follows_end(in);
    if (!at_end || in.cut()) co_await in.fail();
  }
  arguments.close();
  in.end_call();
  in.commit();
  co_await closers(in, kEnd);
}

}  // namespace quire::dialects
