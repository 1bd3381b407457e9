#pragma once
#include <boost/json.hpp>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/work_budget.h"

namespace quire {

namespace json = boost::json;

struct JsonLimits {
  size_t max_bytes = 32u << 20;
  size_t max_depth = 128;
  // Of one object. Boost.JSON's hash of names can be foreseen, so that all may collide: then it
  // compares every name with every other one. What a stranger sends needs a limit.
  size_t max_members = SIZE_MAX;
  WorkBudget* budget = nullptr;  // null: no limit
};

// Parses one JSON document (UTF-8, checked). Numbers that overflow a double and input beyond the
// limits are errors; the text says what and where. Of duplicate keys the last counts, as in Python.
Result<json::value, std::string> parse_json(std::string_view text, const JsonLimits& limits = {});

// Serialises with the shortest digits that read back to the same number. Boost 1.81 writes 1.0 as
// 1E0 and infinities as invalid JSON; here non-finite numbers become null.
std::string dump_json(const json::value& value);

// Appends `text` as a JSON string with quotes. Invalid UTF-8 bytes become U+FFFD.
void append_json_string(std::string& out, std::string_view text);

}  // namespace quire
