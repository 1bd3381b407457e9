#include "dialects/json_calls.h"
#include "dialects/pythonic_calls.h"
#include "dialects/table/table.h"

namespace quire::dialects {
namespace {

constexpr PythonicCalls kList{};
constexpr PythonicCalls kTagged{.closer = "<|python_end|>"};
constexpr JsonCalls kJson{.bare = true};
Task<> list(Reader& in) { return pythonic_calls(in, kList); }
Task<> json(Reader& in) { return json_calls(in, kJson); }
Task<> tagged(Reader& in) {
  co_await skip_space(in);
  const int first = co_await in.peek();
  if (first == '{') {
    co_await json_calls(in, kJson);
    co_await closers(in, kTagged.closer);
  } else {
    co_await pythonic_calls(in, kTagged);
  }
}

}  // namespace

const Dialect& llama4_pythonic() {
  static const Dialect dialect{
      .name = "llama4_pythonic",
      .signs = {200, {{"<|header_start|>"}}},
      // Llama 4: with or without its markers, sometimes JSON as Llama 3 writes it.
      .blocks = {{"<|python_start|>", tagged}, {"[", list, true}, {"{", json, true}},
      .strays = {"<|python_end|>"},
      .ends = {"<|eot|>", "<|eom|>", "<|end_of_text|>"},
      .forced = {{.before_name = "{\"name\": \"",
                  .before_arguments = "\", \"parameters\": ",
                  .after_call = "}",
                  .one_call = true},
                 python_list()},
  };
  return dialect;
}

}  // namespace quire::dialects
