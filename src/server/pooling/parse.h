#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/openai/parse.h"

namespace quire::server::pooling {

// Texts that become vectors.
struct EmbeddingRequest : openai::GenerationRequest {
  std::vector<openai::Prompt> prompts;
  std::optional<engine::Pooling::Kind> kind;  // absent: the model's
  bool normalises = true;
  std::optional<int64_t> dimensions;  // the first ones; absent: all
  bool as_base64 = false;
};

// Pairs of texts that a model judges: of /v1/rerank one query and its documents, of /v1/score also
// a document for each query.
struct ScoreRequest : openai::GenerationRequest {
  std::vector<std::string> queries, documents;  // one query, or as many as documents
  std::string instruction;                      // empty: the template's own
  bool is_rerank = false;
  size_t top_n = 0;  // of a rerank's results; 0: all
  bool returns_documents = true;
};

// Errors name the field. See openai/parse.h.
Result<EmbeddingRequest, ApiError> parse_embeddings(std::string_view body,
                                                    const openai::ParseContext& context);
Result<ScoreRequest, ApiError> parse_rerank(std::string_view body,
                                            const openai::ParseContext& context);
Result<ScoreRequest, ApiError> parse_score(std::string_view body,
                                           const openai::ParseContext& context);

}  // namespace quire::server::pooling
