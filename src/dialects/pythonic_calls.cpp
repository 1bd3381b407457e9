#include "dialects/pythonic_calls.h"

#include "dialects/json_calls.h"
#include "dialects/json_text.h"
#include "dialects/python_literal.h"

namespace quire::dialects {
namespace {

// After the opening parenthesis, to the closing one.
Task<> keyword_arguments(Reader& in) {
  in.arguments("{");
  for (bool first = true;; first = false) {
    co_await skip_space(in);
    bool closed = co_await accept(in, ")");
    if (!closed && !first) {
      co_await expect(in, ",");
      co_await skip_space(in);
      closed = co_await accept(in, ")");
    }
    if (closed) break;
    const std::string key = co_await python_tool_name(in);
    if (key.empty()) co_await in.fail();
    co_await skip_space(in);
    co_await expect(in, "=");
    co_await skip_space(in);
    in.arguments((first ? "" : ", ") + json_string(key) + ": ");
    co_await python_literal(in, key);
  }
  in.arguments("}");
  in.end_call();
  in.settle();
}

Task<> call(Reader& in) {
  const std::string name = co_await python_tool_name(in);
  if (name.empty()) co_await in.fail();
  co_await expect(in, "(");
  in.begin_call(name);
  co_await keyword_arguments(in);
}

Task<> call_list(Reader& in) {
  co_await expect(in, "[");
  for (bool first = true;; first = false) {
    co_await skip_space(in);
    bool closed = co_await accept(in, "]");
    if (closed && first) co_await in.fail();
    if (!closed && !first) {
      co_await expect(in, ",");
      co_await skip_space(in);
      closed = co_await accept(in, "]");
    }
    if (closed) break;
    co_await call(in);
  }
}

// Calls with line ends, commas or nothing between them, up to something else.
Task<> call_lines(Reader& in) {
  for (;;) {
    co_await call(in);
    in.commit();
    const size_t end = in.at();
    co_await accept_spaced(in, ",");
    co_await skip_space(in);
    const std::string following = co_await python_tool_name(in);
    in.rewind(end);
    if (following.empty()) co_return;
    co_await accept_spaced(in, ",");
    co_await skip_space(in);
  }
}

}  // namespace

Dialect::Forced python_list() {
  static constexpr Dialect::ValueSyntax kValues{.null_word = "None",
                                                .true_word = "True",
                                                .false_word = "False",
                                                .argument_colon = "=",
                                                .colon = ": ",
                                                .comma = ", ",
                                                .quotes_names = true,
                                                .not_in_names = kNotInPythonNames};
  return {.open = "[",
          .close = "]",
          .before_arguments = "(",
          .after_call = ")",
          .between = ", ",
          .values = &kValues};
}

Task<> pythonic_calls(Reader& in, const PythonicCalls& syntax) {
  co_await skip_space(in);
  const int first = co_await in.peek();
  if (first == '[') {
    co_await call_list(in);
    in.commit();
  } else if (syntax.form == PythonicCalls::Form::kLines) {
    co_await call_lines(in);
  } else {
    co_await in.fail();
  }
  co_await closers(in, syntax.closer, syntax.other_closer);
}

Task<> builtin_call(Reader& in) {
  std::string name = co_await python_name(in);
  if (!name.ends_with(".call")) co_await in.fail();
  name.resize(name.size() - 5);
  co_await expect(in, "(");
  in.begin_call(name);
  co_await keyword_arguments(in);
  in.commit();
}

Task<> fenced_pythonic_calls(Reader& in) {
  static constexpr PythonicCalls kLines{.form = PythonicCalls::Form::kLines, .closer = "```"};
  co_await read_until(in, "\n", 16);
  const bool printed = co_await accept_spaced(in, "print(");
  if (!printed) {
    co_await pythonic_calls(in, kLines);
    co_return;
  }
  co_await call(in);
  co_await accept_spaced(in, ")");
  in.commit();
  co_await closers(in, "```");
}

}  // namespace quire::dialects
