#include "server/pooling/parse.h"

#include <gtest/gtest.h>

namespace quire::server::pooling {
namespace {

openai::ParseContext context() {
  openai::ParseContext context;
  context.vocab_size = 320;
  context.hidden_size = 64;
  context.limits.max_pooled_texts = 3;
  return context;
}

TEST(ParseEmbeddings, TextsAndIdsInAllForms) {
  const auto prompts = [](const std::string& input) {
    return parse_embeddings("{\"input\": " + input + "}", context()).value().prompts;
  };
  EXPECT_EQ(prompts(R"("a")"), std::vector<openai::Prompt>{"a"});
  EXPECT_EQ(prompts(R"(["a", "b"])"), (std::vector<openai::Prompt>{"a", "b"}));
  const openai::Prompt ids = std::vector<int32_t>{1, 2}, other = std::vector<int32_t>{3};
  EXPECT_EQ(prompts("[1, 2]"), std::vector<openai::Prompt>{ids});
  EXPECT_EQ(prompts("[[1, 2], [3]]"), (std::vector<openai::Prompt>{ids, other}));
}

TEST(ParseEmbeddings, OptionsAreRead) {
  const auto request = parse_embeddings(
      R"({"input": "a", "encoding_format": "base64", "dimensions": 8, "pooling": "mean",
          "normalize": false, "truncate_prompt_tokens": -1, "user": "me"})",
      context());
  ASSERT_TRUE(request.ok()) << request.error().message;
  EXPECT_TRUE(request->as_base64);
  EXPECT_EQ(request->dimensions, 8);
  EXPECT_EQ(request->kind, engine::Pooling::Kind::kMean);
  EXPECT_FALSE(request->normalises);
  EXPECT_EQ(request->truncate_prompt_tokens, -1);
  EXPECT_EQ(request->sampling.max_tokens, 0);
  EXPECT_TRUE(request->unknown_fields.names.empty());
}

// Body, and the field to blame.
struct Wrong {
  const char* body;
  const char* param;
};

TEST(ParseEmbeddings, ErrorsNameTheField) {
  for (const Wrong& wrong : {Wrong{"{}", "input"},
                             {R"({"input": []})", "input"},
                             {R"({"input": {}})", "input"},
                             {R"({"input": ["a", 1]})", "input"},
                             {R"({"input": [320]})", "input"},
                             {R"({"input": ["a", "b", "c", "d"]})", "input"},
                             {R"({"input": "a", "dimensions": 0})", "dimensions"},
                             {R"({"input": "a", "dimensions": 65})", "dimensions"},
                             {R"({"input": "a", "encoding_format": "int8"})", "encoding_format"},
                             {R"({"input": "a", "pooling": "cls"})", "pooling"},
                             {R"({"input": "a", "embed_dtype": "float16"})", "embed_dtype"},
                             {R"({"input": "a", "temperature": 1})", "temperature"},
                             {R"({"messages": []})", "messages"}}) {
    const auto request = parse_embeddings(wrong.body, context());
    ASSERT_FALSE(request.ok()) << wrong.body;
    EXPECT_EQ(request.error().param, wrong.param) << wrong.body;
    EXPECT_EQ(request.error().status, 400);
  }
}

TEST(ParseRerank, DocumentsAreTextsOrObjectsWithOne) {
  const auto request = parse_rerank(
      R"({"query": "q", "documents": ["a", {"text": "b"}], "top_n": 1, "instruction": "do",
          "return_documents": false})",
      context());
  ASSERT_TRUE(request.ok()) << request.error().message;
  EXPECT_TRUE(request->is_rerank);
  EXPECT_EQ(request->queries, std::vector<std::string>{"q"});
  EXPECT_EQ(request->documents, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(request->top_n, 1u);
  EXPECT_EQ(request->instruction, "do");
  EXPECT_FALSE(request->returns_documents);
}

TEST(ParseScore, OneTextWithManyOrPairs) {
  const auto many = parse_score(R"({"text_1": "q", "text_2": ["a", "b"]})", context());
  ASSERT_TRUE(many.ok());
  EXPECT_EQ(many->queries.size(), 1u);
  const auto pairs = parse_score(R"({"queries": ["q", "r"], "documents": ["a", "b"]})", context());
  ASSERT_TRUE(pairs.ok());
  EXPECT_EQ(pairs->queries, (std::vector<std::string>{"q", "r"}));
}

TEST(ParseRerank, ErrorsNameTheField) {
  for (const Wrong& wrong :
       {Wrong{R"({"documents": ["a"]})", "query"},
        {R"({"query": "q"})", "documents"},
        {R"({"query": "q", "documents": []})", "documents"},
        {R"({"query": "q", "documents": ["a", "b", "c", "d"]})", "documents"},
        {R"({"query": "q", "documents": [{"image": "a"}]})", "documents"},
        {R"({"query": "q", "documents": [{"text": "a", "image": "b"}]})", "documents"},
        {R"({"query": "q", "documents": ["a"], "top_n": -1})", "top_n"}}) {
    const auto request = parse_rerank(wrong.body, context());
    ASSERT_FALSE(request.ok()) << wrong.body;
    EXPECT_EQ(request.error().param, wrong.param) << wrong.body;
  }
  for (const Wrong& wrong : {Wrong{R"({"text_1": ["a", "b"], "text_2": ["c"]})", "text_1"},
                             {R"({"queries": ["a", "b"], "documents": ["c"]})", "queries"},
                             {R"({"text_1": "a", "queries": "b", "text_2": "c"})", "queries"},
                             {R"({"text_1": "a"})", "text_2"}}) {
    const auto request = parse_score(wrong.body, context());
    ASSERT_FALSE(request.ok()) << wrong.body;
    EXPECT_EQ(request.error().param, wrong.param) << wrong.body;
  }
}

}  // namespace
}  // namespace quire::server::pooling
