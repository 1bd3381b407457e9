#include "golden.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "base/json.h"
#include "base/source_dir.h"

namespace quire::parity {
namespace {

std::string models_dir() { return source_dir() + "/tests/parity/models"; }

template <class T>
std::vector<T> numbers(const json::value& list) {
  std::vector<T> result;
  for (const auto& item : list.as_array()) result.push_back(item.to_number<T>());
  return result;
}

GoldenCase read_case(const json::object& from) {
  GoldenCase c;
  c.prompt = numbers<int32_t>(from.at("prompt"));
  c.tokens = numbers<int32_t>(from.at("tokens"));
  c.logprobs = numbers<float>(from.at("logprobs"));
  for (const auto& step : from.at("top").as_array()) {
    auto& best = c.top.emplace_back();
    for (const auto& entry : step.as_array())
      best.emplace_back(entry.as_array().at(0).to_number<int32_t>(),
                        entry.as_array().at(1).to_number<float>());
  }
  if (const auto* list = from.if_contains("prompt_logprobs"))
    if (!list->is_null()) c.prompt_logprobs = numbers<float>(*list);
  if (const auto* rule = from.if_contains("longrope"))
    if (rule->is_string()) c.longrope = std::string(rule->as_string());
  return c;
}

}  // namespace

std::string checkpoint_dir(const std::string& name) { return models_dir() + "/" + name; }

std::vector<std::string> checkpoint_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(models_dir()))
    if (entry.is_directory()) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

Golden read_golden(const std::string& checkpoint) {
  const std::string path = checkpoint_dir(checkpoint) + "/golden.json";
  std::ifstream file(path);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const auto parsed = parse_json(text);
  if (!parsed) throw std::runtime_error(path + ": " + parsed.error());
  const json::object& root = parsed->as_object();
  Golden golden;
  golden.family = std::string(root.at("family").as_string());
  golden.is_bfloat16 = root.at("weights_dtype").as_string() == "bfloat16";
  if (const auto* loss = root.at("rounding").as_object().if_contains("bfloat16"))
    golden.bfloat16_loss = loss->to_number<double>();
  for (const auto& item : root.at("cases").as_array())
    golden.cases.push_back(read_case(item.as_object()));
  return golden;
}

}  // namespace quire::parity
