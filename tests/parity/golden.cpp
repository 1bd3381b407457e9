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

json::value read_json(const std::string& path) {
  std::ifstream file(path);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  auto parsed = parse_json(text);
  if (!parsed) throw std::runtime_error(path + ": " + parsed.error());
  return std::move(*parsed);
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
  if (const auto* list = from.if_contains("rounded_logprobs"))
    c.rounded_logprobs = numbers<float>(*list);
  if (const auto* rule = from.if_contains("longrope"))
    if (rule->is_string()) c.longrope = std::string(rule->as_string());
  return c;
}

}  // namespace

std::string checkpoint_dir(const std::string& name) {
  return (std::filesystem::path(models_dir()) / name).string();
}

std::vector<std::string> checkpoint_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(models_dir()))
    if (entry.is_directory()) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

Golden read_golden(const std::string& checkpoint) {
  const json::value parsed = read_json(checkpoint_dir(checkpoint) + "/golden.json");
  const json::object& root = parsed.as_object();
  Golden golden;
  golden.family = std::string(root.at("family").as_string());
  golden.is_bfloat16 = root.at("weights_dtype").as_string() == "bfloat16";
  if (const auto* loss = root.at("rounding").as_object().if_contains("bfloat16"))
    golden.bfloat16_loss = loss->to_number<double>();
  for (const auto& item : root.at("cases").as_array())
    golden.cases.push_back(read_case(item.as_object()));
  return golden;
}

std::vector<PooledCase> read_pooled_cases() {
  std::vector<PooledCase> cases;
  const json::value parsed = read_json(source_dir() + "/tests/parity/pooling.json");
  for (const auto& item : parsed.as_array()) {
    cases.push_back({.checkpoint = std::string(item.at("checkpoint").as_string()),
                     .prompt = numbers<int32_t>(item.at("prompt")),
                     .last = numbers<float>(item.at("last")),
                     .mean = numbers<float>(item.at("mean"))});
  }
  return cases;
}

std::vector<SuppressedCase> read_suppressed_cases() {
  std::vector<SuppressedCase> cases;
  const json::value parsed = read_json(source_dir() + "/tests/parity/suppressed.json");
  for (const auto& item : parsed.as_array()) {
    cases.push_back({.checkpoint = std::string(item.at("checkpoint").as_string()),
                     .suppressed = numbers<int64_t>(item.at("suppressed")),
                     .prompt = numbers<int32_t>(item.at("prompt")),
                     .tokens = numbers<int32_t>(item.at("tokens")),
                     .logprobs = numbers<float>(item.at("logprobs"))});
  }
  return cases;
}

}  // namespace quire::parity
