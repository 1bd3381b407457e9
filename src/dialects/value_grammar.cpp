#include "dialects/value_grammar.h"

#include <algorithm>
#include <set>

namespace quire::dialects {
namespace {

std::string_view view(const json::string& text) { return {text.data(), text.size()}; }

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

// What says nothing about a value. A format is an annotation of strings without quotes.
bool is_annotation(std::string_view key) {
  static constexpr std::string_view kKeys[] = {
      "title",      "description",   "default",   "examples",    "example",   "$comment",
      "deprecated", "readOnly",      "writeOnly", "$schema",     "$id",       "id",
      "$anchor",    "discriminator", "$defs",     "definitions", "x-guidance"};
  return key.starts_with("x-") || std::ranges::find(kKeys, key) != std::end(kKeys);
}

bool has_type(const json::value& value, std::string_view type) {
  if (type == "null") return value.is_null();
  if (type == "boolean") return value.is_bool();
  if (type == "string") return value.is_string();
  if (type == "array") return value.is_array();
  if (type == "object") return value.is_object();
  if (type == "integer") return value.is_int64() || value.is_uint64();
  return type == "number" && value.is_number();
}

std::vector<std::string_view> types_of(const json::object& schema) {
  std::vector<std::string_view> types;
  const json::value* type = schema.if_contains("type");
  if (type != nullptr && type->is_string()) types.push_back(view(type->get_string()));
  if (type != nullptr && type->is_array())
    for (const json::value& one : type->get_array())
      if (one.is_string()) types.push_back(view(one.get_string()));
  return types;
}

// Of a schema that leaves it open: what its keywords are about.
std::string_view implied_type(const json::object& schema) {
  const auto has = [&](std::initializer_list<const char*> keys) {
    return std::ranges::any_of(keys, [&](const char* key) { return schema.contains(key); });
  };
  if (has({"properties", "additionalProperties", "required"})) return "object";
  if (has({"items", "minItems", "maxItems", "prefixItems"})) return "array";
  if (has({"pattern", "minLength", "maxLength", "format"})) return "string";
  if (has({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}))
    return "number";
  return {};
}

// As Jinja's dictsort orders them.
std::vector<const json::key_value_pair*> in_order(const json::object& members, bool sorts) {
  std::vector<const json::key_value_pair*> all;
  for (const json::key_value_pair& one : members) all.push_back(&one);
  const auto less = [](const json::key_value_pair* a, const json::key_value_pair* b) {
    return std::ranges::lexicographical_compare(a->key(), b->key(), {}, lower, lower);
  };
  if (sorts) std::ranges::stable_sort(all, less);
  return all;
}

}  // namespace

std::string ValueGrammar::arguments(const json::object* schema, const std::string& path) {
  references_.clear();
  root_object_ = schema;
  root_ = schema == nullptr ? json::value() : json::value(*schema);
  if (schema == nullptr) return members({}, path, Names::kArguments);
  std::string other;
  if (!has_only(*schema, {"type", "properties", "required", "additionalProperties"}, other)) {
    rules_.refuse(path + "." + other, "calls of this model's form have no place for it");
    return {};
  }
  return members(*schema, path, Names::kArguments);
}

bool ValueGrammar::has_only(const json::object& schema,
                            std::initializer_list<std::string_view> known,
                            std::string& other) const {
  for (const auto& [key, value] : schema) {
    const std::string_view name(key.data(), key.size());
    if (is_annotation(name) || std::ranges::find(known, name) != known.end()) continue;
    other = name;
    return false;
  }
  return true;
}

std::string ValueGrammar::otherwise(const json::object& schema, const std::string& path,
                                    const std::string& keyword) {
  if (syntax_.string_mark.empty()) return rules_.schema(schema, path, root_object_);
  rules_.refuse(path + "." + keyword, "there is no grammar for it in calls of this model's form");
  return {};
}

std::string ValueGrammar::value(const json::value& schema, const std::string& path) {
  if (const json::object* object = schema.if_object()) return object_value(*object, path);
  if (schema.is_bool() && schema.get_bool()) return any();
  rules_.refuse(path, "nothing can be such a value");
  return {};
}

std::string ValueGrammar::object_value(const json::object& schema, const std::string& path) {
  std::string other;
  if (const json::value* one = schema.if_contains("const"))
    return has_only(schema, {"const", "type"}, other) ? constants(json::array{*one}, schema, path)
                                                      : otherwise(schema, path, other);
  if (const json::value* all = schema.if_contains("enum"); all != nullptr && all->is_array())
    return has_only(schema, {"enum", "type"}, other) ? constants(*all, schema, path)
                                                     : otherwise(schema, path, other);
  if (schema.contains("$ref"))
    return has_only(schema, {"$ref"}, other) ? reference(schema, path)
                                             : otherwise(schema, path, other);
  for (const char* key : {"anyOf", "oneOf", "allOf"}) {
    const json::value* parts = schema.if_contains(key);
    if (parts == nullptr || !parts->is_array()) continue;
    if (!has_only(schema, {key}, other)) return otherwise(schema, path, other);
    const bool is_choice = std::string_view(key) == "anyOf" || parts->get_array().size() == 1;
    return is_choice ? either(*parts, path + "." + key) : otherwise(schema, path, key);
  }
  return types(schema, path);
}

std::string ValueGrammar::either(const json::value& schemas, const std::string& path) {
  std::string all;
  size_t number = 0;
  for (const json::value& one : schemas.get_array()) {
    if (number > 0) all += "| ";
    all += value(one, path + "[" + std::to_string(number++) + "]");
  }
  if (number == 0) rules_.refuse(path, "there is nothing to choose from");
  return rules_.add("either", all);
}

std::string ValueGrammar::reference(const json::object& schema, const std::string& path) {
  const json::value& target = schema.at("$ref");
  const std::string_view text = target.is_string() ? view(target.get_string()) : "";
  boost::system::error_code error;
  const json::value* place =
      text.starts_with('#') ? root_.find_pointer(text.substr(1), error) : nullptr;
  if (place == nullptr) {
    rules_.refuse(path + ".$ref", "it is no schema within this one");
    return {};
  }
  const auto [entry, is_new] = references_.emplace(text, std::string());
  if (!is_new) return entry->second;
  const std::string rule = entry->second = rules_.reserve("shared");
  rules_.define(rule, value(*place, path));
  return rule;
}

std::string ValueGrammar::types(const json::object& schema, const std::string& path) {
  std::vector<std::string_view> all = types_of(schema);
  if (all.empty())
    if (const std::string_view implied = implied_type(schema); !implied.empty())
      all.push_back(implied);
  if (all.empty()) {
    std::string other;
    return has_only(schema, {}, other) ? any() : otherwise(schema, path, other);
  }
  if (all.size() == 1) return type(all.front(), schema, path);
  std::string either;
  for (const std::string_view one : all) {
    if (!either.empty()) either += "| ";
    either += type(one, schema, path);
  }
  return rules_.add("either", either);
}

// A keyword says something about values of its own type only.
std::string ValueGrammar::type(std::string_view type, const json::object& schema,
                               const std::string& path) {
  if (type == "null") return rules_.literal(syntax_.null_word);
  if (type == "boolean")
    return "( " + rules_.literal(syntax_.true_word) + "| " + rules_.literal(syntax_.false_word) +
           ") ";
  if (type == "integer" || type == "number") {
    json::object number{{"type", json::string_view(type.data(), type.size())}};
    for (const char* key :
         {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
      if (const json::value* bound = schema.if_contains(key)) number[key] = *bound;
    return json_leaf(std::move(number), path);
  }
  if (type == "string") return string(schema, path);
  std::string other;
  const bool is_known =
      has_only(schema,
               {"type", "properties", "required", "additionalProperties", "items", "minItems",
                "maxItems", "pattern", "minLength", "maxLength", "format", "minimum", "maximum",
                "exclusiveMinimum", "exclusiveMaximum", "multipleOf"},
               other);
  if (!is_known) return otherwise(schema, path, other);
  if (type == "array") return array(schema, path);
  if (type == "object")
    return rules_.literal("{") + members(schema, path, Names::kMembers) + rules_.literal("}");
  rules_.refuse(path + ".type", "there is no such type");
  return {};
}

std::string ValueGrammar::string(const json::object& schema, const std::string& path) {
  json::object own{{"type", "string"}};
  for (const char* key : {"pattern", "minLength", "maxLength", "format"})
    if (const json::value* bound = schema.if_contains(key)) own[key] = *bound;
  if (syntax_.string_mark.empty()) return json_leaf(std::move(own), path);
  return rules_.literal(syntax_.string_mark) + rules_.text_until(syntax_.string_mark, &own, path);
}

std::string ValueGrammar::json_leaf(json::object schema, const std::string& path) {
  std::string& rule = leaves_[dump_json(schema)];
  if (rule.empty()) rule = rules_.add("leaf", rules_.schema(std::move(schema), path));
  return rule;
}

std::string ValueGrammar::array(const json::object& schema, const std::string& path) {
  constexpr uint64_t kMost = 1000;  // more than that becomes too many rules
  const auto bound = [&](const char* key) -> std::optional<uint64_t> {
    const json::value* value = schema.if_contains(key);
    if (value == nullptr) return std::nullopt;
    boost::system::error_code error;
    const auto number = value->to_number<uint64_t>(error);
    if (error || number > kMost) rules_.refuse(path + "." + key, "it is none from 0 to 1000");
    return error ? 0 : std::min(number, kMost);
  };
  const auto least = bound("minItems"), most = bound("maxItems");
  const std::string open = rules_.literal("["), close = rules_.literal("]");
  if (most == 0u) return open + close;
  if (most && least.value_or(0) > *most) rules_.refuse(path + ".minItems", "more than `maxItems`");
  const json::value* items = schema.if_contains("items");
  const std::string item =
      rules_.add("item", items == nullptr ? any() : value(*items, path + ".items"));
  const uint64_t at_least = least.value_or(0);
  std::string more;
  if (most != 1u) {
    more = "( " + rules_.literal(syntax_.comma) + item + "){" +
           std::to_string(at_least == 0 ? 0 : at_least - 1) + ",";
    more += (most ? std::to_string(*most - 1) : "") + "} ";
  }
  return open + (at_least == 0 ? "( " + item + more + ")? " : item + more) + close;
}

std::string ValueGrammar::name(std::string_view text, const std::string& path, Names names) {
  if (names == Names::kMembers && syntax_.quotes_names) {
    std::string quoted;
    append_json_string(quoted, text);
    return rules_.quoted(quoted) + rules_.literal(syntax_.colon);
  }
  if (text.empty() || text.find_first_of(syntax_.not_in_names) != text.npos)
    rules_.refuse(path, "calls of this model's form cannot write such a name");
  return rules_.quoted(text) +
         rules_.literal(names == Names::kArguments ? syntax_.argument_colon : syntax_.colon);
}

std::string ValueGrammar::any_name(Names names) {
  if (names == Names::kMembers && syntax_.quotes_names)
    return json_leaf({{"type", "string"}}, {}) + rules_.literal(syntax_.colon);
  std::string pattern = "/[^\\x00-\\x1f\\x7f";
  for (const char c : syntax_.not_in_names) {
    if (c >= ' ') {
      if (std::string_view(R"(\/[]^-&~)").find(c) != std::string_view::npos) pattern += '\\';
      pattern += c;
    }
  }
  return pattern + "]{1,60}/ " +
         rules_.literal(names == Names::kArguments ? syntax_.argument_colon : syntax_.colon);
}

// Without properties anything may be a member. Beside them nothing else is written, which every
// schema allows.
std::string ValueGrammar::members(const json::object& schema, const std::string& path,
                                  Names names) {
  std::vector<Member> all;
  std::set<std::string_view> required;
  if (const json::value* list = schema.if_contains("required"); list != nullptr && list->is_array())
    for (const json::value& one : list->get_array())
      if (one.is_string()) required.insert(view(one.get_string()));
  const auto add = [&](std::string_view key, const json::value& property) {
    const std::string place = path + ".properties." + std::string(key);
    // The value first: the order of rules is that of the schema's inner parts.
    const std::string text = value(property, place);
    all.push_back({rules_.add("member", name(key, place, names) + text), required.erase(key) > 0});
  };
  const json::value* properties = schema.if_contains("properties");
  if (properties != nullptr && properties->is_object())
    for (const json::key_value_pair* one : in_order(properties->get_object(), syntax_.sorts_names))
      add({one->key().data(), one->key().size()}, one->value());
  for (const std::string_view key : std::set(required)) add(key, true);
  const json::value* more = schema.if_contains("additionalProperties");
  const bool is_closed = more != nullptr && more->is_bool() && !more->get_bool();
  if (!all.empty() || is_closed) return listed(all, {});
  const std::string text = more == nullptr ? any() : value(*more, path + ".additionalProperties");
  return listed(all, rules_.add("member", any_name(names) + text));
}

// Members in their order with commas between those that are there.
std::string ValueGrammar::listed(const std::vector<Member>& members, const std::string& more) {
  const std::string comma = rules_.literal(syntax_.comma);
  // What may come where nothing, or something, is written before: from the last to the first.
  std::string none = "\"\" ", some = "\"\" ";
  if (!more.empty()) {
    none = "( " + more + "( " + comma + more + ")* )? ";
    some = {};
  }
  for (auto member = members.rbegin(); member != members.rend(); ++member) {
    const std::string rest = rules_.add("rest", some);
    if (member->required) {
      none = member->text + rest;
      some = comma + member->text + rest;
    } else {
      none = member->text + rest + "| " + rules_.add("none", none);
      some = "( " + comma + member->text + ")? " + rest;
    }
  }
  return rules_.add("members", none);
}

std::string ValueGrammar::constants(const json::value& values, const json::object& schema,
                                    const std::string& path) {
  const auto types = types_of(schema);
  std::string all;
  for (const json::value& one : values.get_array()) {
    const bool fits = types.empty() || std::ranges::any_of(types, [&](std::string_view type) {
                        return has_type(one, type);
                      });
    if (!fits) continue;
    if (!all.empty()) all += "| ";
    all += constant(one);
  }
  if (all.empty()) rules_.refuse(path, "nothing can be such a value");
  return "( " + all + ") ";
}

std::string ValueGrammar::constant(const json::value& value) {
  if (value.is_null()) return rules_.literal(syntax_.null_word);
  if (value.is_bool())
    return rules_.literal(value.get_bool() ? syntax_.true_word : syntax_.false_word);
  if (value.is_string() && !syntax_.string_mark.empty()) {
    const std::string mark = rules_.literal(syntax_.string_mark);
    return mark + rules_.quoted(view(value.get_string())) + mark;
  }
  if (const json::array* array = value.if_array()) {
    std::string text = rules_.literal("[");
    for (size_t i = 0; i < array->size(); ++i)
      text += (i == 0 ? "" : rules_.literal(syntax_.comma)) + constant((*array)[i]);
    return text + rules_.literal("]");
  }
  if (const json::object* object = value.if_object()) {
    std::string text = rules_.literal("{");
    for (const auto& [key, member] : *object) {
      if (text.size() > rules_.literal("{").size()) text += rules_.literal(syntax_.comma);
      text += name({key.data(), key.size()}, "tools", Names::kMembers) + constant(member);
    }
    return text + rules_.literal("}");
  }
  return rules_.quoted(dump_json(value));
}

std::string ValueGrammar::any() {
  if (!any_.empty()) return any_;
  any_ = rules_.reserve("any");
  const std::string comma = rules_.literal(syntax_.comma);
  const std::string member = any_name(Names::kMembers) + any_;
  std::string all = string({}, {}) + "| " + json_leaf({{"type", "number"}}, {});
  for (const std::string_view word : {syntax_.null_word, syntax_.true_word, syntax_.false_word})
    all += "| " + rules_.literal(word);
  all += "| " + rules_.literal("[") + "( " + any_ + "( " + comma + any_ + ")* )? " +
         rules_.literal("]");
  all += "| " + rules_.literal("{") + "( " + member + "( " + comma + member + ")* )? " +
         rules_.literal("}");
  rules_.define(any_, all);
  return any_;
}

}  // namespace quire::dialects
