#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "dialects/grammar_rules.h"

namespace quire::dialects {

// Rules for values of a syntax of their own, by their JSON schemas. What a schema says and this
// syntax cannot follow is refused by its path, or, where strings are those of JSON, the value is
// written as JSON.
class ValueGrammar {
 public:
  ValueGrammar(const Dialect::ValueSyntax& syntax, GrammarRules& rules)
      : syntax_(syntax), rules_(rules) {}

  // The arguments of a call, without what stands around them. Null: any.
  std::string arguments(const json::object* schema, const std::string& path);

 private:
  struct Member {
    std::string text;
    bool required;
  };
  enum class Names { kArguments, kMembers };

  std::string value(const json::value& schema, const std::string& path);
  std::string object_value(const json::object& schema, const std::string& path);
  std::string reference(const json::object& schema, const std::string& path);
  std::string either(const json::value& schemas, const std::string& path);
  std::string types(const json::object& schema, const std::string& path);
  std::string type(std::string_view type, const json::object& schema, const std::string& path);
  std::string array(const json::object& schema, const std::string& path);
  std::string string(const json::object& schema, const std::string& path);
  std::string members(const json::object& schema, const std::string& path, Names names);
  std::string listed(const std::vector<Member>& members, const std::string& more);
  std::string name(std::string_view text, const std::string& path, Names names);
  std::string any_name(Names names);
  std::string constants(const json::value& values, const json::object& schema,
                        const std::string& path);
  std::string constant(const json::value& value);
  std::string any();
  std::string json_leaf(json::object schema, const std::string& path);
  // Whether the schema has nothing but `known`, annotations aside. If not, the place is named.
  bool has_only(const json::object& schema, std::initializer_list<std::string_view> known,
                std::string& other) const;
  std::string otherwise(const json::object& schema, const std::string& path,
                        const std::string& keyword);

  const Dialect::ValueSyntax& syntax_;
  GrammarRules& rules_;
  json::value root_;  // of the tool whose arguments are written
  const json::object* root_object_ = nullptr;
  std::map<std::string, std::string> references_;  // of root_, to rules
  std::map<std::string, std::string> leaves_;      // schemas of numbers and strings, to rules
  std::string any_;
};

}  // namespace quire::dialects
