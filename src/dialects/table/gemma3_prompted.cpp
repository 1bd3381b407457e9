#include "dialects/json_calls.h"
#include "dialects/pythonic_calls.h"
#include "dialects/table/table.h"

namespace quire::dialects {
namespace {

constexpr PythonicCalls kList{};
constexpr JsonCalls kJson{.bare = true};
Task<> list(Reader& in) { return pythonic_calls(in, kList); }
Task<> json(Reader& in) { return json_calls(in, kJson); }
// A fence holds JSON or code.
Task<> fenced(Reader& in) {
  const size_t begin = in.at();
  const std::string language = co_await read_until(in, "\n", 16);
  co_await skip_space(in);
  const int first = co_await in.peek();
  in.rewind(begin);
  if (first == '{') {
    co_await fenced_json_calls(in);
  } else {
    co_await fenced_pythonic_calls(in);
  }
}

}  // namespace

const Dialect& gemma3_prompted() {
  static const Dialect dialect{
      .name = "gemma3_prompted",
      // Gemma 3 was trained on no format: what its makers' prompts ask for.
      .blocks = {{"[", list, true}, {"{", json, true}, {"```", fenced, true}},
      .ends = {"<end_of_turn>", "<eos>"},
      .forced = {{.before_name = "{\"name\": \"",
                  .before_arguments = "\", \"parameters\": ",
                  .after_call = "}",
                  .one_call = true}},
  };
  return dialect;
}

}  // namespace quire::dialects
