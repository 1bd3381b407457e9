#include <gtest/gtest.h>

#include "server/openai/parse.h"

namespace quire::server::openai {
namespace {

Result<ChatRequest, ApiError> parse(const std::string& fields) {
  return parse_chat(R"({"messages": [{"role": "user", "content": "x"}], )" + fields + "}", {});
}

TEST(ParseReasoning, RefusesWhatContradictsOrIsNotSupported) {
  const std::pair<const char*, const char*> cases[] = {
      {R"("reasoning_effort": "very")", "reasoning_effort"},
      {R"("reasoning_effort": 3)", "reasoning_effort"},
      {R"("think": 1)", "think"},
      {R"("think": "loud")", "think"},
      {R"("enable_thinking": "no")", "enable_thinking"},
      {R"("enable_thinking": false, "think": true)", "think"},
      {R"("reasoning_effort": "low", "think": "high")", "think"},
      {R"("thinking": {})", "thinking.type"},
      {R"("thinking": {"type": "maybe"})", "thinking.type"},
      {R"("thinking": {"type": "enabled", "budget_tokens": -5})", "thinking.budget_tokens"},
      {R"("reasoning": {"effort": "loud"})", "reasoning.effort"},
      {R"("reasoning": {"enabled": 1})", "reasoning.enabled"},
      {R"("reasoning": {"max_tokens": -5})", "reasoning.max_tokens"},
      {R"("reasoning": {"depth": 5})", "reasoning.depth"},
      {R"("thinking": {"type": "enabled", "depth": 5})", "thinking.depth"},
      {R"("reasoning": {"exclude": 5})", "reasoning.exclude"},
  };
  for (const auto& [fields, param] : cases) {
    const auto parsed = parse(fields);
    ASSERT_FALSE(parsed.ok()) << fields;
    EXPECT_EQ(parsed.error().param, param);
  }
}

TEST(ParseReasoning, ReadsWishesUnderEveryName) {
  const auto wish = [](const std::string& fields) {
    auto parsed = parse(fields);
    EXPECT_TRUE(parsed.ok()) << fields << ": " << parsed.error().message;
    return parsed.ok() ? parsed->chat.reasoning : ReasoningWish();
  };
  EXPECT_EQ(wish(R"("think": true)").thinking, true);
  EXPECT_EQ(wish(R"("think": "high")").effort, "high");
  EXPECT_EQ(wish(R"("enable_thinking": false)").thinking, false);
  EXPECT_EQ(wish(R"("thinking": {"type": "disabled"})").thinking_field, "thinking.type");
  EXPECT_EQ(wish(R"("reasoning": {"effort": "low"})").effort_field, "reasoning.effort");
  EXPECT_EQ(wish(R"("reasoning": {"enabled": true}, "think": true)").thinking, true);
  EXPECT_EQ(wish(R"("reasoning": {})").effort, std::nullopt);
  // A budget is kept, whatever else is said.
  const std::string budget = R"("thinking": {"type": "enabled", "budget_tokens": 3})";
  EXPECT_EQ(wish(budget + R"(, "reasoning": {"enabled": true})").budget, 3);
  EXPECT_EQ(wish(budget).budget_field, "thinking.budget_tokens");
  EXPECT_EQ(wish(budget + R"(, "reasoning": {"max_tokens": 3})").budget, 3);
}

TEST(ParseReasoning, BudgetsThatContradictNameWhatWasSent) {
  const std::string budget = R"("thinking": {"type": "enabled", "budget_tokens": 3})";
  for (const auto& [other, param] :
       {std::pair(R"(, "reasoning": {"max_tokens": 9})", "reasoning.max_tokens"),
        std::pair(R"(, "thinking_token_budget": 7)", "thinking.budget_tokens")}) {
    const auto parsed = parse(budget + other);
    ASSERT_FALSE(parsed.ok()) << other;
    EXPECT_EQ(parsed.error().param, param);
    EXPECT_NE(parsed.error().message.find("contradicts"), std::string::npos);
  }
}

}  // namespace
}  // namespace quire::server::openai
