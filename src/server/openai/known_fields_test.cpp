#include "server/openai/known_fields.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "server/anthropic/parse.h"
#include "server/openai/parse.h"
#include "server/pooling/parse.h"
#include "server/responses/parse.h"

namespace quire::server::openai {
namespace {

ParseContext context() {
  ParseContext context;
  context.vocab_size = 320;
  context.hidden_size = 64;
  return context;
}

struct Endpoint {
  EndpointBit bit;
  const char* required;  // fields of a valid body
};
constexpr Endpoint kEndpoints[] = {
    {kCompletion, R"("prompt": "x")"},
    {kChat, R"("messages": [{"role": "user", "content": "x"}])"},
    {kTokenize, R"("prompt": "x")"},
    {kTokenize, R"("messages": [{"role": "user", "content": "x"}])"},
    {kDetokenize, R"("tokens": [1])"},
    {kMessages, R"("max_tokens": 5, "messages": [{"role": "user", "content": "x"}])"},
    {kResponses, R"("input": "x")"},
    {kEmbedding, R"("input": "x")"},
    {kRerank, R"("query": "x", "documents": ["y"])"},
    {kScore, R"("text_1": "x", "text_2": "y")"},
    {kScore, R"("queries": "x", "documents": "y")"},
};
const Endpoint kGenerating[] = {kEndpoints[0], kEndpoints[1], kEndpoints[5], kEndpoints[6]};

struct Outcome {
  std::optional<ApiError> error;
  UnknownFields unknown;
};

template <class Parsed>
Outcome outcome_of(const Parsed& parsed) {
  if (!parsed) return {parsed.error(), {}};
  if constexpr (requires { parsed->unknown_fields; }) return {{}, parsed->unknown_fields};
  if constexpr (requires { parsed->unused_fields; }) return {{}, parsed->unused_fields};
  return {};
}

// Of a body with one more field; where that is one of the required ones it takes their place.
Outcome parse(const Endpoint& endpoint, std::string_view name, const std::string& value) {
  const std::string field = "\"" + std::string(name) + "\": " + value;
  const std::string body = "{" + std::string(endpoint.required) + ", " + field + "}";
  switch (endpoint.bit) {
    case kCompletion:
      return outcome_of(parse_completion(body, context()));
    case kChat:
      return outcome_of(parse_chat(body, context()));
    case kTokenize:
      return outcome_of(parse_tokenize(body, context()));
    case kDetokenize:
      return outcome_of(parse_detokenize(body, context()));
    case kMessages:
      return outcome_of(anthropic::parse_messages(body, context()));
    case kResponses:
      return outcome_of(responses::parse_responses(body, context()));
    case kEmbedding:
      return outcome_of(pooling::parse_embeddings(body, context()));
    case kRerank:
      return outcome_of(pooling::parse_rerank(body, context()));
    case kScore:
      return outcome_of(pooling::parse_score(body, context()));
  }
  return {};
}

bool blames(const Outcome& outcome, std::string_view name) {
  return outcome.error && outcome.error->status == 400 &&
         (outcome.error->param == name ||
          outcome.error->param.starts_with(std::string(name) + "."));
}

TEST(KnownFields, AreNamedOnceForAnEndpoint) {
  std::set<std::pair<std::string_view, EndpointBit>> names;
  for (const KnownField& field : known_fields()) {
    for (const EndpointBit bit : {kCompletion, kChat, kTokenize, kDetokenize, kMessages, kResponses,
                                  kEmbedding, kRerank, kScore}) {
      if ((field.endpoints & bit) == 0) continue;
      EXPECT_TRUE(names.insert({field.name, bit}).second) << field.name;
    }
  }
}

// A field that a parser looks at cannot have just any value: some of these must be refused.
TEST(KnownFields, ReadFieldsAreReallyRead) {
  for (const KnownField& field : known_fields()) {
    if (field.use != FieldUse::kRead) continue;
    for (const Endpoint& endpoint : kEndpoints) {
      if ((field.endpoints & endpoint.bit) == 0) continue;
      bool refused = false;
      for (const char* absurd : {R"({"absurd": [1]})", R"("absurd")", "-12345.5", "[{}]"})
        refused |= blames(parse(endpoint, field.name, absurd), field.name);
      EXPECT_TRUE(refused) << field.name << " at endpoint " << endpoint.bit;
    }
  }
}

TEST(KnownFields, UnsupportedFieldsAreRefusedByNameUnlessHarmless) {
  for (const KnownField& field : known_fields()) {
    if (field.use != FieldUse::kUnsupported) continue;
    for (const Endpoint& endpoint : kEndpoints) {
      if ((field.endpoints & endpoint.bit) == 0) continue;
      SCOPED_TRACE(field.name);
      for (const char* value : {R"({"a": 1})", R"("x")", "17"}) {
        const Outcome outcome = parse(endpoint, field.name, value);
        ASSERT_TRUE(blames(outcome, field.name)) << value;
        EXPECT_TRUE(outcome.error->code == "unsupported_parameter" ||
                    outcome.error->code == "unsupported_value");
        EXPECT_NE(outcome.error->message.find(field.instead), std::string::npos);
      }
      EXPECT_FALSE(parse(endpoint, field.name, "null").error);
      if (field.harmless.empty()) continue;
      const auto harmless = parse_json(field.harmless);
      ASSERT_TRUE(harmless.ok()) << harmless.error();
      for (const auto& value : harmless->as_array()) {
        const Outcome outcome = parse(endpoint, field.name, dump_json(value));
        EXPECT_FALSE(outcome.error) << outcome.error->message;
      }
    }
  }
}

TEST(KnownFields, FieldsWithoutEffectAreAcceptedAndNotCalledUnknown) {
  for (const KnownField& field : known_fields()) {
    if (field.use != FieldUse::kNoEffect) continue;
    for (const Endpoint& endpoint : kEndpoints) {
      if ((field.endpoints & endpoint.bit) == 0) continue;
      const Outcome outcome = parse(endpoint, field.name, R"("x")");
      EXPECT_FALSE(outcome.error) << field.name;
      EXPECT_EQ(outcome.unknown.total, 0u) << field.name;
    }
  }
}

TEST(KnownFields, FieldsOfTheOtherEndpointAreRefused) {
  const auto has = [](std::string_view name, EndpointBit bit) {
    return std::ranges::any_of(known_fields(), [&](const KnownField& field) {
      return field.name == name && (field.endpoints & bit) != 0;
    });
  };
  for (const KnownField& field : known_fields()) {
    for (const Endpoint& endpoint : kGenerating) {
      if (has(field.name, endpoint.bit)) continue;
      const Outcome outcome = parse(endpoint, field.name, "[]");
      ASSERT_TRUE(blames(outcome, field.name)) << field.name;
      // It is sent nowhere where it would be refused, too.
      const bool is_read = std::ranges::any_of(known_fields(), [&](const KnownField& other) {
        return other.name == field.name && other.use == FieldUse::kRead &&
               (other.endpoints & ~(kTokenize | kDetokenize)) != 0;
      });
      EXPECT_EQ(outcome.error->message.find("belongs to") != std::string::npos, is_read)
          << outcome.error->message;
    }
  }
  // A chat's body counts its prompt as it is; the log says what changed nothing.
  const Outcome outcome = parse(kEndpoints[2], "temperature", "0");
  EXPECT_FALSE(outcome.error);
  EXPECT_EQ(outcome.unknown.text(), R"("temperature")");
}

TEST(KnownFields, UnknownFieldsAreListedWithinBounds) {
  for (const Endpoint& endpoint : kGenerating) {
    const Outcome one = parse(endpoint, "of_the_future", R"({"a": 1})");
    EXPECT_FALSE(one.error);
    EXPECT_EQ(one.unknown.text(), R"("of_the_future")");
    const Outcome escaped = parse(endpoint, R"(a\u001b[2J\n)", "1");
    EXPECT_EQ(escaped.unknown.text(), R"("a\x1b[2J\n")");
    std::string many = "1";
    for (int i = 0; i < 5000; ++i)
      many += ", \"" + std::to_string(i) + std::string(100, 'x') + "\": 1";
    const Outcome all = parse(endpoint, "first", many);
    EXPECT_EQ(all.unknown.total, 5001u);
    EXPECT_LT(all.unknown.text().size(), 1000u);
    EXPECT_TRUE(all.unknown.text().ends_with(" and 4993 more")) << all.unknown.text();
  }
}

TEST(KnownFields, UnknownOnesOfATokenisationAreRefused) {
  for (const Endpoint& endpoint : {kEndpoints[2], kEndpoints[3], kEndpoints[4]}) {
    EXPECT_TRUE(blames(parse(endpoint, "of_the_future", "1"), "of_the_future"));
    EXPECT_FALSE(parse(endpoint, "of_the_future", "null").error);
    const Outcome outcome = parse(endpoint, std::string(1000, 'x'), "1");
    ASSERT_TRUE(outcome.error);
    EXPECT_LT(outcome.error->message.size(), 200u);
  }
}

}  // namespace
}  // namespace quire::server::openai
