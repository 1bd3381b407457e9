#include "cli/adapter_flags.h"

#include <algorithm>
#include <ranges>
#include <string_view>

#include "base/error.h"
#include "base/json.h"
#include "base/printable.h"
#include "base/trimmed.h"

namespace quire::cli {
namespace {

[[noreturn]] void refuse(const std::string& text, const std::string& why) {
  throw LoadError("--lora-modules: " + printable(text) + " " + why);
}

std::string text_of(const json::object& object, const char* key, const std::string& text) {
  const json::value* value = object.if_contains(key);
  if (!value || !value->is_string()) refuse(text, "has no text under \"" + std::string(key) + "\"");
  return std::string(value->get_string());
}

// vLLM also takes base_model_name there, for people.
NamedAdapter parse_object(const std::string& text) {
  const auto parsed = parse_json(text);
  if (!parsed || !parsed->is_object()) refuse(text, "is no JSON object");
  const json::object& object = parsed->get_object();
  for (const auto& entry : object)
    if (entry.key() != "name" && entry.key() != "path" && entry.key() != "base_model_name")
      refuse(text, "has a key that is not known: " + printable(std::string(entry.key())));
  return {text_of(object, "name", text), text_of(object, "path", text)};
}

NamedAdapter parse_pair(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos) refuse(text, "is not NAME=FOLDER");
  return {text.substr(0, equals), text.substr(equals + 1)};
}

// An object, or pairs with commas between them, as a file or a variable has them.
std::vector<NamedAdapter> parse_text(const std::string& text) {
  if (text.starts_with('{')) return {parse_object(text)};
  if (text.empty()) refuse(text, "is empty");
  std::vector<NamedAdapter> adapters;
  for (const auto part : std::views::split(text, ','))
    adapters.push_back(parse_pair(std::string(trimmed({part.begin(), part.end()}))));
  return adapters;
}

}  // namespace

void add_adapter_flags(CLI::App& command, AdapterFlags& flags) {
  command
      .add_option("--lora-modules", flags.modules,
                  "Adapters (LoRA, as PEFT saves them), which requests choose by NAME as their "
                  "`model`; also NAME=DIR,NAME=DIR and {\"name\": NAME, \"path\": DIR}. On the CPU "
                  "only")
      ->type_name("NAME=DIR");
  command
      .add_option("--max-loras", flags.max_loras,
                  "Most different adapters among running requests; others wait; 0: no limit")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 16))
      ->capture_default_str();
  command
      .add_option("--max-lora-rank", flags.max_rank,
                  "Adapters of a higher rank are refused; 0: no limit")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 16))
      ->capture_default_str();
}

std::vector<NamedAdapter> parse_adapters(const AdapterFlags& flags) {
  std::vector<NamedAdapter> adapters;
  for (const std::string& text : flags.modules)
    for (NamedAdapter& adapter : parse_text(text)) {
      if (adapter.name.empty() || adapter.path.empty()) refuse(text, "lacks a name or a folder");
      if (printable(adapter.name) != adapter.name)
        refuse(text, "gives a name with characters that no log can show");
      if (std::ranges::find(adapters, adapter.name, &NamedAdapter::name) != adapters.end())
        refuse(text, "gives a name that another adapter has");
      adapters.push_back(std::move(adapter));
    }
  if (adapters.empty() && (flags.max_loras > 0 || flags.max_rank > 0))
    throw LoadError("--max-loras and --max-lora-rank do nothing without --lora-modules");
  return adapters;
}

}  // namespace quire::cli
