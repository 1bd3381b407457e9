// Requests that run together know nothing of each other: each has a secret word of its own, and no
// answer holds another's.
#include <gtest/gtest.h>

#include "base/json.h"
#include "base/source_dir.h"
#include "engine_harness.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace quire::engine {
namespace {

const char* const kWords[] = {"zorblat7", "plum",    "kettle",  "vexil",   "marigold", "quonset",
                              "tundra",   "bramble", "oxide",   "walnut",  "fjord",    "gizmo",
                              "lantern",  "pebble",  "saffron", "thistle", "umbra",    "velvet",
                              "wicket",   "yonder",  "zephyr",  "anvil",   "cobalt",   "drizzle"};

class Isolation : public testing::TestWithParam<const char*> {
 protected:
  Isolation()
      : tokenizer_(text::Tokenizer::load(dir())), chat_template_(text::ChatTemplate::load(dir())) {}

  static std::string dir() { return source_dir() + "/" + GetParam(); }

  // All prompts begin alike, so that they share cached blocks up to the word.
  Job ask(const std::string& word) const {
    const json::array messages = {
        json::object{{"role", "system"}, {"content", "You are a helpful assistant."}},
        json::object{{"role", "user"}, {"content", "My secret word is " + word + "."}},
        json::object{{"role", "assistant"}, {"content", "Okay, I will remember it."}},
        json::object{{"role", "user"}, {"content", "What is my secret word?"}}};
    const std::string text = dump_json(messages);
    const auto rendered = chat_template_->render(
        {.messages = text, .tools = {}, .documents = {}, .kwargs = {}, .now = {}});
    EXPECT_TRUE(rendered.ok());
    Job job{.prompt = *tokenizer_->encode(*rendered, false), .sampling = {}};
    job.sampling.temperature = 0.0f;
    job.sampling.max_tokens = 48;
    job.sampling.ignore_eos = true;  // goes on after the answer: outgrows a tight pool
    return job;
  }

  std::string text_of(const Answer& answer) const {
    return *tokenizer_->decode(answer.tokens, true);
  }

  std::shared_ptr<const text::Tokenizer> tokenizer_;
  std::shared_ptr<const text::ChatTemplate> chat_template_;
};

TEST_P(Isolation, NoAnswerHoldsAnothersWord) {
  std::vector<Job> jobs;
  for (const char* word : kWords) jobs.push_back(ask(word));
  const auto solo = run_solo({.checkpoint = GetParam()}, jobs);
  int recalled = 0;
  for (size_t i = 0; i < jobs.size(); ++i)
    recalled += text_of(solo[i]).find(kWords[i]) != std::string::npos;
  ASSERT_GE(recalled, static_cast<int>(jobs.size()) * 3 / 4)
      << "the demo model does not recall words: the test is blind";

  int64_t cached = 0, preemptions = 0;
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    std::vector<Job> round = jobs;
    for (size_t i = 0; i < round.size(); ++i)
      if ((i + seed) % 5 == 0) round[i].abort_after = static_cast<int>(i % 7);
    const Arrangement setup{.checkpoint = GetParam(),
                            .threads = 2,
                            .block_size = 4,
                            .num_blocks = seed % 2 == 0 ? 50 : 0,  // every other round: far too few
                            .max_num_batched_tokens = seed % 3 == 0 ? 32 : 2048,
                            .max_model_len = 200,
                            .checkpoint_interval = 8,
                            .min_checkpoint_tokens = 4,
                            .prefix_caching = true,
                            .lookahead = true};
    const auto answers = run_jobs(setup, round, seed);
    ASSERT_EQ(answers.size(), jobs.size());
    for (size_t i = 0; i < jobs.size(); ++i) {
      const std::string text = text_of(answers[i]);
      for (size_t other = 0; other < jobs.size(); ++other) {
        // A word that the model makes up alone, too, is no leak.
        if (other == i || text_of(solo[i]).find(kWords[other]) != std::string::npos) continue;
        EXPECT_EQ(text.find(kWords[other]), std::string::npos)
            << kWords[i] << " was answered: " << text;
      }
      if (answers[i].finish != FinishReason::kAbort) {
        EXPECT_EQ(answers[i].tokens, solo[i].tokens) << text;
      }
      cached += answers[i].stats.cached_tokens;
      preemptions += answers[i].stats.preemptions;
    }
  }
  EXPECT_GT(cached, 0) << "no prefix was shared";
  EXPECT_GT(preemptions, 0) << "nobody was preempted";
}

// With different salts even equal prompts share nothing.
TEST_P(Isolation, SaltsSeparateTheCache) {
  Job job = ask("plum");
  const auto engine =
      make_engine({.checkpoint = GetParam(), .min_checkpoint_tokens = 1, .prefix_caching = true});
  job.cache_salt = "alice";
  EXPECT_EQ(run_jobs(*engine, {job}).at(0).stats.cached_tokens, 0);
  EXPECT_GT(run_jobs(*engine, {job}).at(0).stats.cached_tokens, 0);
  job.cache_salt = "bob";
  EXPECT_EQ(run_jobs(*engine, {job}).at(0).stats.cached_tokens, 0);
}

// A dense model, and one with recurrent state.
INSTANTIATE_TEST_SUITE_P(Models, Isolation,
                         testing::Values("models/quire-demo", "models/quire-demo-hybrid"),
                         model_name);

}  // namespace
}  // namespace quire::engine
