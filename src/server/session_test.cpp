#include "server/session.h"
#include "base/source_dir.h"

#include <gtest/gtest.h>

#include <numeric>

namespace quire::server {
namespace {

std::shared_ptr<const text::Tokenizer> tokenizer() {
  static const auto loaded = text::Tokenizer::load(source_dir() + "/tests/parity/models/qwen3");
  return loaded;
}

std::vector<int32_t> encode(std::string_view text) {
  return tokenizer()->encode(text, false).value();
}

std::string join(const std::vector<TextDelta>& deltas) {
  std::string text;
  for (const auto& delta : deltas) text += delta.text;
  return text;
}

// Runs the tokens through a session, `per_event` at a time.
std::vector<TextDelta> run(Session& session, const std::vector<int32_t>& ids, size_t per_event,
                           engine::FinishReason reason = engine::FinishReason::kLength) {
  std::vector<TextDelta> deltas;
  for (size_t at = 0; at < ids.size() && !session.finished(); at += per_event) {
    engine::TokenEvent event;
    const size_t end = std::min(ids.size(), at + per_event);
    event.tokens.assign(ids.begin() + static_cast<ptrdiff_t>(at),
                        ids.begin() + static_cast<ptrdiff_t>(end));
    for (const int32_t id : event.tokens) {
      engine::TokenLogprob logprob;
      logprob.token = id;
      logprob.logprob = -static_cast<float>(id);
      event.logprobs.push_back(logprob);
    }
    if (end == ids.size()) event.finish = reason;
    deltas.push_back(session.push(std::move(event)));
  }
  return deltas;
}

SessionOptions with_stop(std::vector<std::string> stop, bool include = false) {
  SessionOptions options;
  options.stop = std::make_shared<text::StopSet>(std::move(stop));
  options.include_stop_str_in_output = include;
  return options;
}

const std::string kText = "The naïve café: 日本語 and 🙂🙃 END of text, 12345.";

TEST(Session, DeltasMakeTheTextAndNeverSplitCharacters) {
  const auto ids = encode(kText);
  for (size_t per_event = 1; per_event <= 5; ++per_event) {
    Session session(tokenizer(), encode("Hello"), {});
    const auto deltas = run(session, ids, per_event);
    EXPECT_EQ(join(deltas), kText);
    for (const auto& delta : deltas) EXPECT_TRUE(text::is_valid_utf8(delta.text));
    EXPECT_TRUE(session.finished());
    EXPECT_EQ(session.num_output_tokens(), static_cast<int64_t>(ids.size()));
    ASSERT_TRUE(deltas.back().finish.has_value());
    EXPECT_EQ(deltas.back().finish->reason, engine::FinishReason::kLength);
  }
}

TEST(Session, StopStringsAreTheSameForEveryCut) {
  const auto ids = encode(kText);
  struct Case {
    std::vector<std::string> stop;
    bool include;
    std::string text, reason;
  };
  const Case cases[] = {
      {{"END"}, false, "The naïve café: 日本語 and 🙂🙃 ", "END"},
      {{"END"}, true, "The naïve café: 日本語 and 🙂🙃 END", "END"},
      {{"本語 a", "zzz"}, false, "The naïve café: 日", "本語 a"},
      {{"zzz", "fé:"}, false, "The naïve ca", "fé:"},
      {{"5."}, false, "The naïve café: 日本語 and 🙂🙃 END of text, 1234", "5."},
      {{"T"}, false, "", "T"},
  };
  for (const Case& c : cases) {
    for (size_t per_event = 1; per_event <= 7; ++per_event) {
      SCOPED_TRACE(c.reason + " " + std::to_string(per_event));
      Session session(tokenizer(), encode("x"), with_stop(c.stop, c.include));
      const auto deltas = run(session, ids, per_event);
      EXPECT_EQ(join(deltas), c.text);
      ASSERT_TRUE(deltas.back().finish.has_value());
      EXPECT_EQ(deltas.back().finish->reason, engine::FinishReason::kStop);
      EXPECT_EQ(std::get<std::string>(deltas.back().finish->stop_reason), c.reason);
    }
  }
}

// The tokens behind the one that completes the stop string are not the client's to pay for.
TEST(Session, CountsTokensUpToTheStopString) {
  const auto ids = encode("abcdefgh");
  const auto upto = encode("abcd");
  ASSERT_LT(upto.size(), ids.size());
  for (const size_t per_event : {size_t{1}, ids.size()}) {
    Session session(tokenizer(), encode("x"), with_stop({"d"}));
    const auto deltas = run(session, ids, per_event);
    EXPECT_EQ(session.num_output_tokens(), static_cast<int64_t>(upto.size()));
    size_t tokens = 0;
    for (const auto& delta : deltas) tokens += delta.tokens.size();
    EXPECT_EQ(tokens, upto.size());
  }
}

TEST(Session, HoldsBackAPossibleStopStringAndReleasesIt) {
  const auto ids = encode("abcX");
  ASSERT_EQ(ids.size(), 4u);
  Session session(tokenizer(), encode("x"), with_stop({"bcd"}));
  const auto deltas = run(session, ids, 1);
  EXPECT_EQ(deltas[0].text, "a");
  EXPECT_EQ(deltas[1].text, "");
  EXPECT_EQ(deltas[2].text, "");
  EXPECT_EQ(deltas[3].text, "bcX");
  // Also at the end, where nothing can complete it any more.
  Session cut(tokenizer(), encode("x"), with_stop({"bcd"}));
  EXPECT_EQ(join(run(cut, encode("abc"), 1)), "abc");
}

TEST(Session, MinTokensKeepsStopStringsFromEnding) {
  const auto ids = encode("abab");
  ASSERT_EQ(ids.size(), 4u);
  SessionOptions options = with_stop({"b"});
  options.min_tokens = 2;
  Session session(tokenizer(), encode("x"), options);
  EXPECT_EQ(join(run(session, ids, 1)), "aba");
  EXPECT_EQ(session.num_output_tokens(), 4);
}

TEST(Session, StopTokensAreNotText) {
  const int32_t eos = tokenizer()->special_token_id("eos_token").value();
  auto ids = encode("hi");
  const auto plain = ids.size();
  ids.push_back(eos);
  SessionOptions options;
  options.eos_token_ids = {eos};
  options.skip_special_tokens = false;
  Session session(tokenizer(), encode("x"), options);
  const auto deltas = run(session, ids, 1, engine::FinishReason::kStop);
  EXPECT_EQ(join(deltas), "hi");
  EXPECT_EQ(session.num_output_tokens(), static_cast<int64_t>(plain) + 1);
  EXPECT_TRUE(std::holds_alternative<std::monostate>(deltas.back().finish->stop_reason));

  options.include_stop_str_in_output = true;
  Session including(tokenizer(), encode("x"), options);
  EXPECT_EQ(join(run(including, ids, 1, engine::FinishReason::kStop)), "hi<|eos|>");

  // With ignore_eos it is a token like any other.
  options.eos_token_ids.clear();
  options.include_stop_str_in_output = false;
  Session ignoring(tokenizer(), encode("x"), options);
  EXPECT_EQ(join(run(ignoring, ids, 1)), "hi<|eos|>");
}

// A grammar may end an answer on a token that is text.
TEST(Session, LastTokenOfAGrammarIsText) {
  SessionOptions options;
  options.eos_token_ids = {tokenizer()->special_token_id("eos_token").value()};
  Session session(tokenizer(), encode("x"), options);
  EXPECT_EQ(join(run(session, encode("{}"), 1, engine::FinishReason::kStop)), "{}");
}

TEST(Session, StopTokenIdsAreReported) {
  const auto ids = encode("ab");
  SessionOptions options;
  options.stop_token_ids = {ids[1]};
  Session session(tokenizer(), encode("x"), options);
  engine::TokenEvent event;
  event.tokens = ids;
  event.finish = engine::FinishReason::kStop;
  event.stop_token = ids[1];
  const TextDelta delta = session.push(std::move(event));
  EXPECT_EQ(delta.text, "a");
  EXPECT_EQ(std::get<int32_t>(delta.finish->stop_reason), ids[1]);
}

TEST(Session, LogprobsStayWithTheirTokensAndOffsetsWithTheText) {
  const auto ids = encode(kText);
  std::vector<SessionToken> whole;
  for (size_t per_event = 1; per_event <= 4; ++per_event) {
    Session session(tokenizer(), encode("x"), with_stop({"never"}));
    std::vector<SessionToken> tokens;
    for (auto& delta : run(session, ids, per_event))
      std::move(delta.tokens.begin(), delta.tokens.end(), std::back_inserter(tokens));
    ASSERT_EQ(tokens.size(), ids.size());
    int64_t last_offset = 0;
    for (size_t i = 0; i < ids.size(); ++i) {
      EXPECT_EQ(tokens[i].id, ids[i]);
      EXPECT_EQ(tokens[i].logprob->logprob, -static_cast<float>(ids[i]));
      EXPECT_GE(tokens[i].text_offset, last_offset);
      last_offset = tokens[i].text_offset;
      if (per_event > 1) {
        EXPECT_EQ(tokens[i].text_offset, whole[i].text_offset);
      }
    }
    whole = tokens;
  }
  EXPECT_EQ(whole[0].text_offset, 0);
  // Characters, not bytes: the last token is "." and the text has one character before its end.
  const auto characters = static_cast<int64_t>(
      std::count_if(kText.begin(), kText.end(), [](char c) { return (c & 0xC0) != 0x80; }));
  EXPECT_EQ(whole.back().text_offset, characters - 1);
}

TEST(Session, EchoesThePromptBeforeTheAnswer) {
  const auto prompt = encode("né");
  SessionOptions options = with_stop({"n"});  // a stop string in the prompt stops nothing
  options.echo_text = "né";
  options.echo_tokens = true;
  Session session(tokenizer(), prompt, options);
  engine::TokenEvent event;
  event.tokens = encode("a");
  event.finish = engine::FinishReason::kLength;
  for (size_t i = 1; i < prompt.size(); ++i) {
    engine::TokenLogprob logprob;
    logprob.token = prompt[i];
    logprob.logprob = -static_cast<float>(i);
    event.prompt_logprobs.push_back(logprob);
  }
  const TextDelta delta = session.push(std::move(event));
  EXPECT_EQ(delta.text, "néa");
  ASSERT_EQ(delta.tokens.size(), prompt.size() + 1);
  EXPECT_FALSE(delta.tokens[0].logprob.has_value());
  EXPECT_TRUE(delta.tokens[0].from_prompt);
  EXPECT_EQ(delta.tokens[1].logprob->logprob, -1.0f);
  EXPECT_EQ(delta.tokens.back().text_offset, 2);
  EXPECT_FALSE(delta.tokens.back().from_prompt);
}

TEST(Session, OnlyEchoDropsTheProducedToken) {
  SessionOptions options;
  options.echo_text = "hi";
  options.only_echo = true;
  Session session(tokenizer(), encode("hi"), options);
  const auto deltas = run(session, encode("a"), 1, engine::FinishReason::kStop);
  EXPECT_EQ(join(deltas), "hi");
  EXPECT_EQ(session.num_output_tokens(), 0);
  EXPECT_EQ(deltas.back().finish->reason, engine::FinishReason::kLength);
}

TEST(Session, ErrorsAndAbortsKeepTheTextSoFar) {
  Session session(tokenizer(), encode("x"), with_stop({"bcd"}));
  std::string text = join(run(session, encode("abc"), 1, engine::FinishReason::kAbort));
  EXPECT_EQ(text, "abc");
  Session failing(tokenizer(), encode("x"), {});
  engine::TokenEvent event;
  event.finish = engine::FinishReason::kError;
  event.error = "reason";
  const TextDelta delta = failing.push(std::move(event));
  EXPECT_EQ(delta.finish->error, "reason");
}

TEST(Session, SaysNothingAfterItsEnd) {
  Session session(tokenizer(), encode("x"), with_stop({"a"}));
  run(session, encode("abc"), 3);
  ASSERT_TRUE(session.finished());
  engine::TokenEvent late;
  late.tokens = encode("zzz");
  late.finish = engine::FinishReason::kAbort;
  const TextDelta delta = session.push(std::move(late));
  EXPECT_EQ(delta.text, "");
  EXPECT_FALSE(delta.finish.has_value());
}

}  // namespace
}  // namespace quire::server
