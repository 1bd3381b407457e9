#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "dialects/call_grammar.h"

namespace quire::dialects {

// The rules of a grammar for calls, as they are made. Expressions that the functions give back are
// Lark and end with a blank.
class GrammarRules {
 public:
  GrammarRules(const Dialect& dialect, const SpecialToken& special);

  // A literal of the dialect: special tokens by their ids, `[ID]` and `[N]` as what they stand for.
  std::string literal(std::string_view text) const;
  // Whether some of the text is a special token of this vocabulary.
  bool holds_special(std::string_view text) const;
  // A client's text, as it is.
  static std::string quoted(std::string_view text);
  // A JSON value. `path`: the schema's place in the request. With `root`, the definitions that the
  // schema may refer to are those of `root`.
  std::string schema(json::object schema, const std::string& path,
                     const json::object* root = nullptr);
  // A new rule; `kind` begins its name.
  std::string add(std::string_view kind, const std::string& body);
  // The same in two steps, for rules that lead to themselves.
  std::string reserve(std::string_view kind);
  void define(const std::string& name, const std::string& body);
  // A string that is written as it is, up to the first `end`, a literal, with that. `schema`: of
  // the string, or null; `format` is an annotation there.
  std::string text_until(std::string_view end, const json::object* schema, const std::string& path);

  // There is no grammar. What was refused first counts.
  void refuse(const std::string& path, const std::string& reason);
  bool is_refused() const { return refusal_.has_value(); }
  // `start` and other rules, before those that were added.
  Result<std::string, CallGrammarError> finish(const std::string& start) const;

 private:
  struct End;
  End end_of(std::string_view text) const;
  std::string text_pattern(const json::object& schema, const std::string& path);
  void add_definitions(const json::object& root, json::object& to);

  // What stands in the form's texts for something else, with that.
  std::vector<std::pair<std::string_view, std::string>> marks_ = {{"[ID]", "/[0-9a-zA-Z]{9}/"},
                                                                  {"[N]", "/[0-9]{1,3}/"}};
  json::array schemas_;
  std::string rules_;
  size_t num_rules_ = 0;
  std::vector<std::pair<std::string, std::string>> texts_;  // ends of plain strings, rules
  const json::object* root_ = nullptr;                      // whose definitions have this size
  size_t definition_bytes_ = 0, shared_bytes_ = 0;          // of `root_`, of all that were added
  std::optional<CallGrammarError> refusal_;
};

}  // namespace quire::dialects
