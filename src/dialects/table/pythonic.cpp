#include "dialects/pythonic_calls.h"
#include "dialects/table/table.h"

namespace quire::dialects {
namespace {

constexpr PythonicCalls kList{};
Task<> list(Reader& in) { return pythonic_calls(in, kList); }
Task<> fenced(Reader& in) { return fenced_pythonic_calls(in); }

}  // namespace

const Dialect& pythonic() {
  static const Dialect dialect{
      .name = "pythonic",
      // Small Llama 3.2 models and others without a marker.
      .blocks = {{"[", list, true}, {"<|python_tag|>", list}, {"```", fenced, true}},
      .ends = {"<|eot_id|>", "<|eom_id|>", "<|end_of_text|>"},
      .forced = {python_list()},
  };
  return dialect;
}

}  // namespace quire::dialects
