#include "dialects/dialect.h"

#include <algorithm>

#include "dialects/json_text.h"
#include "dialects/table/table.h"

namespace quire::dialects {

const std::vector<const Dialect*>& all_dialects() {
  static const std::vector<const Dialect*> all = {
      &hermes(),          &qwen3_coder(),   &qwen3_5(),     &llama3_json(),  &pythonic(),
      &llama4_pythonic(), &mistral_v3(),    &mistral_v11(), &mistral_v13(),  &phi4_mini(),
      &gemma3_prompted(), &functiongemma(), &gemma4(),      &harmony(),      &glm45(),
      &glm47(),           &deepseek_r1(),   &deepseek_v3(), &deepseek_v31(), &deepseek_v32(),
      &granite3(),        &granite4(),      &smollm3(),     &exaone4(),      &olmo3(),
      &seed_oss(),        &lfm2(),          &minimax_m2(),  &kimi_k2(),      &nemotron_nano_v2(),
      &nemotron3(),       &hunyuan_a13b(),  &command_r(),   &command_a(),
  };
  return all;
}

const Dialect* find_dialect(std::string_view name) {
  for (const Dialect* dialect : all_dialects()) {
    const auto& aliases = dialect->aliases;
    if (dialect->name == name || std::ranges::find(aliases, name) != aliases.end()) return dialect;
  }
  return nullptr;
}

namespace {

bool fits(const Dialect::Signs& signs, std::string_view text) {
  const auto holds = [text](std::string_view sign) { return text.find(sign) != text.npos; };
  return std::ranges::none_of(signs.none, holds) &&
         std::ranges::any_of(signs.rows,
                             [&](const auto& row) { return std::ranges::all_of(row, holds); });
}

// Templates of models that reason mention it: they open it, or cut it out of older turns.
bool shows_reasoning(const Dialect& dialect, std::string_view text) {
  if (dialect.message != nullptr) return true;
  return std::ranges::any_of(dialect.reasoning, [text](const Dialect::Reasoning& reasoning) {
    return text.find(reasoning.open) != text.npos || text.find(reasoning.close) != text.npos;
  });
}

}  // namespace

DialectChoice detect_dialect(std::string_view chat_template) {
  DialectChoice choice;
  for (const Dialect* dialect : all_dialects()) {
    if (!fits(dialect->signs, chat_template)) continue;
    if (choice.calls == nullptr || dialect->signs.rank < choice.calls->signs.rank)
      choice.calls = dialect;
  }
  if (choice.calls != nullptr && shows_reasoning(*choice.calls, chat_template)) {
    choice.reasoning = choice.calls;
    return choice;
  }
  for (const Dialect* dialect : all_dialects()) {
    if (dialect->message != nullptr || !shows_reasoning(*dialect, chat_template)) continue;
    choice.reasoning = dialect;
    break;
  }
  return choice;
}

std::vector<std::string_view> marker_texts(const DialectChoice& choice) {
  std::vector<std::string_view> texts;
  const auto add = [&texts](const auto& list) {
    texts.insert(texts.end(), list.begin(), list.end());
  };
  for (const Dialect* dialect : {choice.calls, choice.reasoning}) {
    if (dialect == nullptr) continue;
    add(dialect->frames);
    add(dialect->message_ends);
    add(dialect->inner);
    if (dialect == choice.reasoning) {
      for (const auto& [open, close] : dialect->reasoning) texts.insert(texts.end(), {open, close});
    }
    if (dialect != choice.calls) continue;
    for (const Dialect::Block& block : dialect->blocks) texts.push_back(block.opening);
    add(dialect->strays);
  }
  return texts;
}

bool starts_in_reasoning(const Dialect& dialect, std::string_view prompt, size_t continued) {
  const std::string_view end = trimmed(prompt);
  const std::string_view answer = prompt.substr(prompt.size() - std::min(continued, prompt.size()));
  for (const auto& [open, close] : dialect.reasoning) {
    if (end.ends_with(open)) return true;
    const size_t opened = answer.rfind(open);
    if (opened != answer.npos && answer.find(close, opened) == answer.npos) return true;
  }
  return false;
}

}  // namespace quire::dialects
