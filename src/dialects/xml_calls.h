#pragma once
#include <span>
#include <string_view>

#include "dialects/reader.h"
#include "dialects/tagged_values.h"

namespace quire::dialects {

// Calls with a tag for the function and one for each argument, whose values are raw text.
struct XmlCalls {
  std::string_view function_open;   // up to the name: "<function=", "<invoke name="
  std::string_view function_close;  // "</function>"
  std::string_view argument_open;   // "<parameter="
  ValueEnd value;
  std::string_view outer_open = {};   // "<tool_call>"; the block begins with it or without
  std::string_view outer_close = {};  // "</tool_call>"
  std::string_view other_outer_close = {};
  // The argument's tag says by string="true|false" whether its value is text or JSON.
  bool has_string_attribute = false;
};

// From the outer tag on, which is read. Several functions may follow each other in it.
Task<> xml_calls(Reader& in, const XmlCalls& syntax);
// From `function_open` on, which is read: the outer tag is missing. Functions that no tool offers
// are text.
Task<> xml_function(Reader& in, const XmlCalls& syntax);

}  // namespace quire::dialects
