#include "dialects/tools.h"

namespace quire::dialects {
namespace {

constexpr int kMaxSchemaDepth = 16;

std::string_view view(const json::string& text) { return {text.data(), text.size()}; }

void add_type(std::string_view name, ValueTypes& types) {
  if (name == "null") types.null = true;
  if (name == "integer") types.integer = true;
  if (name == "number") types.number = true;
  if (name == "boolean") types.boolean = true;
  if (name == "object") types.object = true;
  if (name == "array") types.array = true;
  if (name == "string") types.string = true;
}

void add_type_of(const json::value& value, ValueTypes& types) {
  if (value.is_null()) types.null = true;
  if (value.is_bool()) types.boolean = true;
  if (value.is_int64() || value.is_uint64()) types.integer = true;
  if (value.is_double()) types.number = true;
  if (value.is_object()) types.object = true;
  if (value.is_array()) types.array = true;
  if (value.is_string()) types.string = true;
}

const json::value* member(const json::value& value, std::string_view key) {
  const json::object* object = value.if_object();
  return object == nullptr ? nullptr : object->if_contains(key);
}

// What a reference within the document ("#/$defs/Name") points to.
const json::value* resolve(const json::value& root, std::string_view reference) {
  if (!reference.starts_with("#/")) return nullptr;
  boost::system::error_code error;
  return root.find_pointer(json::string_view(reference.data() + 1, reference.size() - 1), error);
}

// The types of the arguments of some tools.
class TypeCollector {
 public:
  ValueTypes collect(const json::value& root, const json::value& schema) {
    ValueTypes types;
    collect(root, schema, 0, types);
    return types;
  }

 private:
  // Looks at schemas and at values, for all tools; some milliseconds of them.
  static constexpr int64_t kMaxLooks = 100'000;

  void collect(const json::value& root, const json::value& schema, int depth, ValueTypes& types);
  void add_types(const json::value& schema, ValueTypes& types);
  bool spend(size_t looks) { return (looks_ += static_cast<int64_t>(looks)) <= kMaxLooks; }

  int64_t looks_ = 0;
};

// Those that the schema names itself.
void TypeCollector::add_types(const json::value& schema, ValueTypes& types) {
  if (const json::value* type = member(schema, "type")) {
    if (type->is_string()) add_type(view(type->get_string()), types);
    if (type->is_array() && spend(type->get_array().size()))
      for (const json::value& one : type->get_array())
        if (one.is_string()) add_type(view(one.get_string()), types);
  }
  if (const json::value* values = member(schema, "enum");
      values != nullptr && values->is_array() && spend(values->get_array().size()))
    for (const json::value& value : values->get_array()) add_type_of(value, types);
  if (const json::value* value = member(schema, "const")) add_type_of(*value, types);
}

void TypeCollector::collect(const json::value& root, const json::value& schema, int depth,
                            ValueTypes& types) {
  if (depth > kMaxSchemaDepth || !spend(1)) return;
  add_types(schema, types);
  if (const json::value* reference = member(schema, "$ref");
      reference != nullptr && reference->is_string() && spend(reference->get_string().size() / 8)) {
    const json::value* target = resolve(root, view(reference->get_string()));
    if (target != nullptr) collect(root, *target, depth + 1, types);
  }
  for (const char* key : {"anyOf", "oneOf", "allOf"}) {
    const json::value* choices = member(schema, key);
    // Nested choices may grow exponentially with depth; one level names every type in practice.
    if (choices == nullptr || !choices->is_array() || depth > 4) continue;
    for (const json::value& choice : choices->get_array()) {
      if (looks_ > kMaxLooks) return;
      collect(root, choice, depth + 2, types);
    }
  }
}

bool knows_any(const ValueTypes& types) {
  return types.null || types.integer || types.number || types.boolean || types.object ||
         types.array || types.string;
}

}  // namespace

Result<ToolSet, std::string> ToolSet::parse(const json::value& tools) {
  if (!tools.is_array()) return Err{std::string("the tools must be a list")};
  ToolSet set;
  auto& known = set.tools_.emplace();
  TypeCollector collector;
  for (const json::value& tool : tools.get_array()) {
    const json::value* function = member(tool, "function");
    if (function == nullptr) function = &tool;
    const json::value* name = member(*function, "name");
    if (name == nullptr || !name->is_string())
      return Err{std::string("a tool must be an object with a `function` that has a `name`")};
    Arguments& arguments = known[std::string(view(name->get_string()))];
    const json::value* schema = member(*function, "parameters");
    if (schema == nullptr) continue;
    const json::value* properties = member(*schema, "properties");
    if (properties == nullptr || !properties->is_object()) continue;
    for (const auto& [key, property] : properties->get_object()) {
      const ValueTypes types = collector.collect(*schema, property);
      if (knows_any(types)) arguments[std::string(key)] = types;
    }
  }
  return set;
}

bool ToolSet::offers(std::string_view name) const {
  return !name.empty() && (!tools_ || tools_->find(name) != tools_->end());
}

std::optional<ValueTypes> ToolSet::types(std::string_view tool, std::string_view argument) const {
  if (!tools_) return std::nullopt;
  const auto found = tools_->find(tool);
  if (found == tools_->end()) return std::nullopt;
  const auto types = found->second.find(argument);
  return types == found->second.end() ? std::nullopt : std::optional(types->second);
}

size_t ToolSet::bytes() const {
  constexpr size_t kEntryBytes = 160;  // of a tree's node with a string and what belongs to it
  size_t bytes = 0;
  if (!tools_) return bytes;
  for (const auto& [name, arguments] : *tools_) {
    bytes += kEntryBytes + name.size();
    for (const auto& [argument, types] : arguments) bytes += kEntryBytes + argument.size();
  }
  return bytes;
}

}  // namespace quire::dialects
