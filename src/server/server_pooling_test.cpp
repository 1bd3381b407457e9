// Embeddings, reranking and scores over real sockets, with a scripted engine: the state of a text
// is {3, 4, 0, its first id}.
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "server/test_eventually.h"
#include "server/test_server.h"

namespace quire::server {
namespace {

// The tiny tokenizer has no words: the letters n and y say no and yes.
ModelText reranker(const std::string& tokens = "ny") {
  ModelText text = model_text();
  text.rerank.chat_template =
      text::ChatTemplate::parse("{{ instruction }}{{ query }}|{{ document }}", {}).value();
  text.rerank.tokens = {tokens.substr(0, 1), tokens.substr(1)};
  return text;
}

std::vector<float> floats(const json::value& list) {
  std::vector<float> out;
  for (const auto& value : list.as_array()) out.push_back(value.to_number<float>());
  return out;
}

using PoolingServer = ServerTest;

TEST_F(PoolingServer, EmbeddingsComeInTheOrderOfTheirTexts) {
  start();
  const auto response = post("/v1/embeddings", R"({"model": "tiny", "normalize": false,
      "input": [[0], [7, 8], [9]]})");
  ASSERT_EQ(response.status, 200) << response.body;
  const json::value body = response.json();
  EXPECT_EQ(body.at("object").as_string(), "list");
  EXPECT_EQ(body.at("model").as_string(), "tiny");
  EXPECT_EQ(body.at("usage").at("prompt_tokens").as_int64(), 4);
  EXPECT_EQ(body.at("usage").at("total_tokens").as_int64(), 4);
  const auto& data = body.at("data").as_array();
  ASSERT_EQ(data.size(), 3u);
  for (size_t i = 0; i < data.size(); ++i) {
    EXPECT_EQ(data[i].at("index").as_int64(), static_cast<int64_t>(i));
    EXPECT_EQ(data[i].at("object").as_string(), "embedding");
  }
  EXPECT_EQ(floats(data[1].at("embedding")), (std::vector<float>{3, 4, 0, 7}));
  EXPECT_EQ(engine_->last_pooling()->kind, engine::Pooling::Kind::kLast);
  EXPECT_EQ(engine_->last_sampling().max_tokens, 0);
}

TEST_F(PoolingServer, DimensionsAndBase64) {
  start();
  const auto response = post("/v1/embeddings", R"({"input": [5], "dimensions": 2,
      "encoding_format": "base64", "pooling": "mean"})");
  ASSERT_EQ(response.status, 200) << response.body;
  // 0.6f and 0.8f, little-endian: 9a 99 19 3f cd cc 4c 3f.
  EXPECT_EQ(response.json().at("data").at(0).at("embedding").as_string(), "mpkZP83MTD8=");
  EXPECT_EQ(engine_->last_pooling()->kind, engine::Pooling::Kind::kMean);
}

TEST_F(PoolingServer, TheModelSaysHowItPools) {
  ModelText text = model_text();
  text.pooling.kind = engine::Pooling::Kind::kMean;
  start({}, std::move(text));
  EXPECT_EQ(post("/v1/embeddings", R"({"input": "a"})").status, 200);
  EXPECT_EQ(engine_->last_pooling()->kind, engine::Pooling::Kind::kMean);
}

// All 512 tokens of the context are the text's; one more is too much, unless it is cut.
TEST_F(PoolingServer, TextsMayFillTheContext) {
  start();
  const auto ids = [](size_t count) {
    std::string list = "[5";
    for (size_t i = 1; i < count; ++i) list += ",6";
    return list + "]";
  };
  EXPECT_EQ(post("/v1/embeddings", "{\"input\": " + ids(512) + "}").status, 200);
  const auto refused = post("/v1/embeddings", "{\"input\": " + ids(513) + "}");
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(refused.json().at("error").at("code").as_string(), "context_length_exceeded");
  EXPECT_EQ(post("/v1/embeddings", "{\"truncate_prompt_tokens\": -1, \"input\": " + ids(513) + "}")
                .status,
            200);
  EXPECT_EQ(engine_->last_prompt().size(), 512u);
}

TEST_F(PoolingServer, LargeBatchesAreWrittenInPieces) {
  start();
  std::string input = "[1]";
  for (int i = 1; i < 2048; ++i) input += ",[" + std::to_string(i % 300) + "]";
  const auto response =
      post("/v1/embeddings", "{\"normalize\": false, \"input\": [" + input + "]}");
  ASSERT_EQ(response.status, 200) << response.body;
  const json::value body = response.json();
  const auto& data = body.at("data").as_array();
  ASSERT_EQ(data.size(), 2048u);
  EXPECT_EQ(floats(data[1234].at("embedding"))[3], 1234 % 300);
  EXPECT_EQ(post("/v1/embeddings", "{\"input\": [" + input + ",[1]]}").status, 400);
  EXPECT_TRUE(engine_->wait_for([&] { return held() == 0; })) << "something of it is kept";
}

TEST_F(PoolingServer, RerankingSortsByHowLikelyYesIs) {
  start({}, reranker());
  const auto response = post("/v1/rerank", R"({"model": "tiny", "query": "q",
      "documents": ["aaaa", "bb", {"text": "cccccc"}], "instruction": "i"})");
  ASSERT_EQ(response.status, 200) << response.body;
  const json::value body = response.json();
  const auto& results = body.at("results").as_array();
  ASSERT_EQ(results.size(), 3u);
  // A longer prompt's yes is less likely.
  const int64_t order[] = {1, 0, 2};
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(results[i].at("index").as_int64(), order[i]);
  EXPECT_EQ(results[2].at("document").at("text").as_string(), "cccccc");
  const double length = static_cast<double>(encode("iq|bb").size());
  EXPECT_NEAR(results[0].at("relevance_score").as_double(), 1 / (1 + std::exp(length - 1)), 1e-9);
  const auto pooling = engine_->last_pooling();
  EXPECT_EQ(pooling->tokens, (std::vector<int32_t>{encode("n")[0], encode("y")[0]}));
  EXPECT_GT(body.at("usage").at("total_tokens").as_int64(), 0);
}

// 2,048 documents, each with the query: seconds of text from a small body.
TEST_F(PoolingServer, ManyPairsDoNotStandBeforeSmallRequests) {
  ModelText text = reranker();
  text.rerank.chat_template =
      text::ChatTemplate::parse("{% for i in range(100000) %}{% endfor %}{{ query }}", {}).value();
  start(
      [](FakeEngine::Script&, ServerOptions& options) {
        options.http.worker_threads = 2;  // one for small requests
        options.http.max_text_time = std::chrono::minutes(10);
      },
      std::move(text));
  std::string documents = R"("a")";
  for (int i = 1; i < 2048; ++i) documents += R"(,"a")";
  TestClient many(port_);
  many.send(TestClient::post_text("/v1/rerank",
                                  R"({"query": "which of them has the answer to this question",
                                      "documents": [)" +
                                      documents + "]}"));
  ASSERT_TRUE(eventually([&] { return held("documents") > 0; }));
  EXPECT_EQ(complete(R"("max_tokens": 1)").status, 200);
  EXPECT_FALSE(engine_->last_pooling()) << "the pairs were read first";
}

TEST_F(PoolingServer, RerankingHasOtherPathsAndOptions) {
  start({}, reranker());
  for (const char* path : {"/rerank", "/v1/rerank", "/v2/rerank"}) {
    const auto response = post(path, R"({"query": "q", "documents": ["aaaa", "bb"], "top_n": 1,
        "return_documents": false})");
    ASSERT_EQ(response.status, 200) << response.body;
    const json::value body = response.json();
    const auto& results = body.at("results").as_array();
    ASSERT_EQ(results.size(), 1u);
    EXPECT_EQ(results[0].at("index").as_int64(), 1);
    EXPECT_FALSE(results[0].as_object().contains("document"));
  }
}

TEST_F(PoolingServer, ScoresKeepTheOrderOfTheirPairs) {
  start({}, reranker());
  for (const char* path : {"/score", "/v1/score"}) {
    const auto response = post(path, R"({"text_1": ["q", "qqq"], "text_2": ["aaaa", "b"]})");
    ASSERT_EQ(response.status, 200) << response.body;
    const json::value body = response.json();
    const auto& data = body.at("data").as_array();
    ASSERT_EQ(data.size(), 2u);
    EXPECT_EQ(data[0].at("object").as_string(), "score");
    for (size_t i = 0; i < 2; ++i) {
      const auto length = static_cast<double>(encode(i == 0 ? "q|aaaa" : "qqq|b").size());
      EXPECT_NEAR(data[i].at("score").to_number<double>(), 1 / (1 + std::exp(length - 1)), 1e-9);
    }
  }
}

TEST_F(PoolingServer, AModelThatCannotJudgeSaysWhy) {
  start();
  const auto response = post("/v1/rerank", R"({"query": "q", "documents": ["a"]})");
  EXPECT_EQ(response.status, 400);
  EXPECT_NE(response.body.find("--rerank-tokens"), std::string::npos) << response.body;
  EXPECT_EQ(engine_->num_submitted(), 0u);
}

// The prompt of Qwen3-Reranker's model card, word for word.
TEST_F(PoolingServer, WithoutATemplateThePromptIsQwens) {
  ModelText text = model_text();
  if (!text.tokenizer->token_to_id("<|im_start|>")) GTEST_SKIP() << "no such token here";
  text.rerank.tokens = {"n", "y"};
  start({}, std::move(text));
  ASSERT_EQ(post("/v1/score", R"({"text_1": "Q", "text_2": "D"})").status, 200);
  const std::string expected =
      "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query "
      "and "
      "the Instruct provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n"
      "<|im_start|>user\n<Instruct>: Given a web search query, retrieve relevant passages that "
      "answer the query\n<Query>: Q\n<Document>: D<|im_end|>\n<|im_start|>assistant\n<think>\n\n"
      "</think>\n\n";
  EXPECT_EQ(engine_->last_prompt(), encode(expected));
}

// The tiny tokenizer, with a token put before a text and one behind it.
std::shared_ptr<const text::Tokenizer> tokenizer_with_ends() {
  const auto part = [](const char* kind, const char* id) {
    return json::object{{kind, json::object{{"id", id}, {"type_id", 0}}}};
  };
  const auto token = [](const char* name) {
    const int32_t id = model_text().tokenizer->token_to_id(name).value();
    return json::object{{"id", name}, {"ids", json::array{id}}, {"tokens", json::array{name}}};
  };
  std::stringstream original;
  original << std::ifstream(kModelDir + "/tokenizer.json").rdbuf();
  json::value file = parse_json(original.str()).value();
  file.get_object()["post_processor"] =
      json::object{{"type", "TemplateProcessing"},
                   {"single", json::array{part("SpecialToken", "<|bos|>"), part("Sequence", "A"),
                                          part("SpecialToken", "<|eos|>")}},
                   {"pair", json::array{part("Sequence", "A"), part("Sequence", "B")}},
                   {"special_tokens",
                    json::object{{"<|bos|>", token("<|bos|>")}, {"<|eos|>", token("<|eos|>")}}}};
  std::string folder = (std::filesystem::temp_directory_path() / "quire-XXXXXX").string();
  EXPECT_NE(mkdtemp(folder.data()), nullptr);
  std::ofstream(folder + "/tokenizer.json") << dump_json(file);
  auto tokenizer = text::Tokenizer::load(folder);
  std::filesystem::remove_all(folder);
  return tokenizer;
}

// Qwen3-Reranker's prompt is tokenised as it is, by its model card; templates for vLLM get what the
// tokenizer adds.
TEST_F(PoolingServer, OnlyGivenTemplatesGetSpecialTokens) {
  for (const bool is_given : {false, true}) {
    ModelText text = is_given ? reranker() : model_text();
    text.tokenizer = tokenizer_with_ends();
    text.rerank.tokens = {"n", "y"};
    const auto tokenizer = text.tokenizer;
    start({}, std::move(text));
    ASSERT_EQ(post("/v1/score", R"({"text_1": "Q", "text_2": "D"})").status, 200);
    const std::vector<int32_t> prompt = engine_->last_prompt();
    const int32_t bos = *tokenizer->token_to_id("<|bos|>"),
                  eos = *tokenizer->token_to_id("<|eos|>");
    EXPECT_EQ(prompt.front() == bos && prompt.back() == eos, is_given);
    EXPECT_EQ(std::ranges::count(prompt, bos) + std::ranges::count(prompt, eos), is_given ? 2 : 0);
    if (is_given) {
      EXPECT_EQ(prompt, *tokenizer->encode("Q|D", true));
    }
    server_.reset();
  }
}

TEST_F(PoolingServer, AModelWithoutAHeadCannotJudge) {
  ModelText text = reranker();
  text.rerank.has_head = false;
  start({}, std::move(text));
  const auto response = post("/v1/rerank", R"({"query": "q", "documents": ["a"]})");
  EXPECT_EQ(response.status, 400);
  EXPECT_NE(response.body.find("no head"), std::string::npos) << response.body;
  EXPECT_EQ(post("/v1/embeddings", R"({"input": "a"})").status, 200);
}

TEST_F(PoolingServer, ARunnerLeavesTheOtherEndpointsOut) {
  start([](auto&, ServerOptions& options) { options.runner = Runner::kPooling; }, reranker());
  EXPECT_EQ(complete("\"max_tokens\": 2").status, 404);
  EXPECT_EQ(chat("\"max_tokens\": 2").status, 404);
  EXPECT_EQ(post("/v1/embeddings", R"({"input": "a"})").status, 200);
  EXPECT_EQ(post("/tokenize", R"({"prompt": "a"})").status, 200);
  server_.reset();
  start([](auto&, ServerOptions& options) { options.runner = Runner::kGenerate; });
  EXPECT_EQ(complete("\"max_tokens\": 2").status, 200);
  EXPECT_EQ(post("/v1/embeddings", R"({"input": "a"})").status, 404);
}

TEST_F(PoolingServer, LimitsAndKeysAreThoseOfChats) {
  start([](auto&, ServerOptions& options) {
    options.api_keys = {"secret", "other"};
    options.client_limits.max_generations = 2;
  });
  const std::string two = R"({"input": ["a", "b"]})", three = R"({"input": ["a", "b", "c"]})";
  EXPECT_EQ(post("/v1/embeddings", two).status, 401);
  EXPECT_EQ(post("/v1/embeddings", two, "Authorization: Bearer secret\r\n").status, 200);
  EXPECT_NE(engine_->last_cache_salt(), "") << "a key's own cached prefixes";
  EXPECT_EQ(post("/v1/embeddings", three, "Authorization: Bearer secret\r\n").status, 400);
}

// An engine that ends a request early has no value for it.
TEST_F(PoolingServer, WhatWasAbortedIsAnError) {
  start(
      [](FakeEngine::Script& script, ServerOptions&) {
        script.fail_after = 0;
        script.failure = engine::FinishReason::kAbort;
      },
      reranker());
  for (const auto& [path, body] :
       {std::pair{"/v1/embeddings", R"({"input": ["a", "b"]})"},
        std::pair{"/v1/score", R"({"text_1": "q", "text_2": "d"})"},
        std::pair{"/v1/rerank", R"({"query": "q", "documents": ["a", "b"]})"}}) {
    const auto response = post(path, body);
    EXPECT_EQ(response.status, 503) << response.body;
    EXPECT_NE(response.body.find("aborted"), std::string::npos) << response.body;
  }
}

TEST_F(PoolingServer, FailuresAndRefusalsAreErrors) {
  start([](FakeEngine::Script& script, ServerOptions&) { script.fail_after = 0; });
  EXPECT_EQ(post("/v1/embeddings", R"({"input": "a"})").status, 500);
  engine_->refuse_with({engine::RequestError::Kind::kOverloaded, "full", "", 3});
  const auto refused = post("/v1/embeddings", R"({"input": "a"})");
  EXPECT_EQ(refused.status, 429);
}

}  // namespace
}  // namespace quire::server
