#include "dialects/json_calls.h"
#include "dialects/pythonic_calls.h"
#include "dialects/table/table.h"

namespace quire::dialects {
namespace {

constexpr JsonCalls kBare{.bare = true};
Task<> bare(Reader& in) { return json_calls(in, kBare); }
Task<> fenced(Reader& in) { return fenced_json_calls(in); }
// After <|python_tag|>: JSON, or a built-in tool.
Task<> tagged(Reader& in) {
  co_await skip_space(in);
  const int first = co_await in.peek();
  if (first == '{') {
    co_await json_calls(in, kBare);
  } else {
    co_await builtin_call(in);
  }
}

}  // namespace

const Dialect& llama3_json() {
  static const Dialect dialect{
      .name = "llama3_json",
      .aliases = {"llama4_json"},
      .signs = {190, {{"Environment: ipython"}}},
      // Llama 3.1 to 3.3.
      .blocks = {{"<|python_tag|>", tagged}, {"{", bare, true}, {"```", fenced, true}},
      .ends = {"<|eot_id|>", "<|eom_id|>", "<|end_of_text|>"},
      .forced = {{.before_name = "{\"name\": \"",
                  .before_arguments = "\", \"parameters\": ",
                  .after_call = "}",
                  .between = "; "}},
  };
  return dialect;
}

}  // namespace quire::dialects
