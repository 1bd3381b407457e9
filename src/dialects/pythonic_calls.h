#pragma once
#include <string_view>

#include "dialects/dialect.h"
#include "dialects/reader.h"

namespace quire::dialects {

// Calls as Python writes them, whose arguments are keywords with literals (JSON's true, false and
// null, too).
struct PythonicCalls {
  enum class Form {
    kList,   // [f(k='v'), g()]
    kLines,  // one call after the other, up to the closer
  };
  Form form = Form::kList;
  std::string_view closer = {}, other_closer = {};
};

// How a list of calls is written, for grammars.
Dialect::Forced python_list();

// From the marker on, or (kList without one) from the bracket on, which is not read.
Task<> pythonic_calls(Reader& in, const PythonicCalls& syntax);
// f.call(k="v"), as Llama writes its built-in tools.
Task<> builtin_call(Reader& in);
// What stands in a fence: a list, calls line by line, or one in print(..). The fence's opening is
// read up to its language.
Task<> fenced_pythonic_calls(Reader& in);

}  // namespace quire::dialects
