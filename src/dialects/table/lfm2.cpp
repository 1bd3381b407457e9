#include "dialects/json_calls.h"
#include "dialects/pythonic_calls.h"
#include "dialects/table/table.h"

namespace quire::dialects {
namespace {

constexpr PythonicCalls kList{.closer = "<|tool_call_end|>"};
constexpr JsonCalls kJson{.closer = "<|tool_call_end|>"};

Dialect::Forced marked_list() {
  Dialect::Forced list = python_list();
  list.open = "<|tool_call_start|>[";
  list.close = "]<|tool_call_end|>";
  return list;
}

// Asked for JSON by their system prompt, the models write that.
Task<> calls(Reader& in) {
  const bool object = co_await follows(in, "{");
  bool objects = false;
  if (!object) objects = co_await follows(in, "[{");
  if (object || objects) {
    co_await json_calls(in, kJson);
  } else {
    co_await pythonic_calls(in, kList);
  }
}

}  // namespace

const Dialect& lfm2() {
  static const Dialect dialect{
      .name = "lfm2",
      .signs = {140, {{"<|tool_call_start|>"}, {"List of tools: "}}},
      // LFM2 and 2.5. Prose after the calls is usual.
      .reasoning = {{"<think>", "</think>"}},
      .blocks = {{"<|tool_call_start|>", calls}},
      .strays = {"<|tool_call_end|>"},
      .ends = {"<|im_end|>"},
      // JSON, too, for names that a list cannot hold.
      .forced = {marked_list(),
                 {.open = "<|tool_call_start|>[",
                  .close = "]<|tool_call_end|>",
                  .before_name = "{\"name\": \"",
                  .before_arguments = "\", \"arguments\": ",
                  .after_call = "}",
                  .between = ", "}},
  };
  return dialect;
}

}  // namespace quire::dialects
