#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "server/answer_format.h"

namespace quire::server::pooling {

// What an answer says about itself.
struct AnswerInfo {
  std::string id;
  std::string model;
  int64_t created = 0;  // seconds since 1970
};

// The first `dimensions` values, brought to length 1 if that is asked for (zeros stay zeros).
std::vector<float> finished_embedding(std::span<const float> state, size_t dimensions,
                                      bool normalises);
// How likely the second of two tokens is where there are only these two.
double score_of(std::span<const float> logprobs);

// What the formats below have in common: they have no streams, and a value is there or not.
class PooledFormat : public AnswerFormat {
 public:
  bool takes_aborted() const override { return false; }
  std::string events(int64_t, const Session&, const TextDelta&, const Usage&) override;
  std::string last_events(const Usage&) override;
  std::string error_events(const ApiError&) override;
};

// {"object": "list", "data": [{"object": "embedding", "index", "embedding"}], "model", "usage"}
class EmbeddingFormat final : public PooledFormat {
 public:
  struct Shape {
    size_t dimensions = 0;
    bool normalises = true, as_base64 = false;
  };

  EmbeddingFormat(AnswerInfo info, Shape shape) : info_(std::move(info)), shape_(shape) {}
  AnswerBody body(const std::vector<std::unique_ptr<Session>>& sessions,
                  const std::vector<TextDelta>& choices, const Usage& usage) const override;

 private:
  const AnswerInfo info_;
  const Shape shape_;
};

// {"object": "list", "data": [{"object": "score", "index", "score"}], "model", "usage"}
class ScoreFormat final : public PooledFormat {
 public:
  explicit ScoreFormat(AnswerInfo info) : info_(std::move(info)) {}
  AnswerBody body(const std::vector<std::unique_ptr<Session>>& sessions,
                  const std::vector<TextDelta>& choices, const Usage& usage) const override;

 private:
  const AnswerInfo info_;
};

// {"results": [{"index", "document": {"text"}, "relevance_score"}]}, the best first.
class RerankFormat final : public PooledFormat {
 public:
  // `documents`: empty if they are not to be in the answer. `top_n` 0: all.
  RerankFormat(AnswerInfo info, std::vector<std::string> documents, size_t top_n)
      : info_(std::move(info)), documents_(std::move(documents)), top_n_(top_n) {}
  AnswerBody body(const std::vector<std::unique_ptr<Session>>& sessions,
                  const std::vector<TextDelta>& choices, const Usage& usage) const override;

 private:
  const AnswerInfo info_;
  const std::vector<std::string> documents_;
  const size_t top_n_;
};

}  // namespace quire::server::pooling
