#pragma once
#include <string>
#include <string_view>

#include "dialects/reader.h"

namespace quire::dialects {

// A JSON object ({"name": .., "arguments": {..}}), a list of them, or several with `;` between.
struct JsonCalls {
  // Without a marker around it any JSON may come: a call has a name, arguments and nothing that is
  // not expected.
  bool bare = false;
  // Taken after the JSON, each with blanks before it, as often as they come.
  std::string_view closer = {}, other_closer = {};
  // A name that stands for no call at all.
  std::string_view pseudo_tool = {};
};

Task<> json_calls(Reader& in, const JsonCalls& syntax);
// Calls without a marker within a fence: ```json and the like. The fence's opening is read already.
Task<> fenced_json_calls(Reader& in);

// A JSON object as the open call's arguments; nothing but blanks counts as {}. A JSON string that
// holds an object is taken for it.
Task<> json_arguments(Reader& in);
// Everything that follows up to `closer` (or the end), if it is JSON: what json_arguments reads.
Task<> closers(Reader& in, std::string_view closer, std::string_view other = {});

}  // namespace quire::dialects
