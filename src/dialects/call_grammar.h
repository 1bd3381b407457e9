#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "dialects/dialect.h"

namespace quire::dialects {

// The id of a text that the vocabulary holds as a special token, which no text can spell.
using SpecialToken = std::function<std::optional<int32_t>(std::string_view)>;

// A tool that a model is to call.
struct ForcedTool {
  std::string_view name;
  const json::object* schema = nullptr;  // of its arguments; null: any object
  std::string path;                      // of the schema in the request, for errors
};

// A grammar that makes a model write calls in a dialect.
struct CallGrammar {
  enum class Begin {
    kAtOnce,  // the text consists of calls
    // The text goes on after one of `triggers`, with the call that it begins (or the calls, in
    // dialects that have one frame for all).
    kAfterTrigger,
  };
  // {"lark", "schemas"}: what text::GrammarSpec::Kind::kCalls wants.
  std::string source;
  // The grammar begins after one of the first, or with one of the others.
  std::vector<std::string> triggers, kept_triggers;
};

// Why there is none: a client's schema or name that calls of the dialect cannot have.
struct CallGrammarError {
  std::string param, message;
};

// Schemas of arguments that have a grammar each get the definitions that they share: no more of
// these than this, in bytes of JSON.
inline constexpr size_t kMaxSharedDefinitions = 256 << 10;

// `alternative`: a schema that the text may follow instead of calling a tool; null: none. Error:
// the tools' definitions are more than the limit above, or a value has no form in this dialect.
Result<CallGrammar, CallGrammarError> make_call_grammar(const Dialect& dialect,
                                                        const std::vector<ForcedTool>& tools,
                                                        CallGrammar::Begin begin, bool one_call,
                                                        const SpecialToken& special,
                                                        const ForcedTool* alternative = nullptr);

}  // namespace quire::dialects
