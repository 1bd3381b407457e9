#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

namespace quire::engine {

// Least squares of a sum of `N` terms with coefficients >= 0, in relative errors: a new observation
// counts fully, older ones less and less.
template <size_t N>
class DecayedFit {
 public:
  using Terms = std::array<double, N>;

  // `keep`: what an observation still counts when the next one comes.
  explicit DecayedFit(double keep) : keep_(keep) {}
  void observe(const Terms& terms, double value);
  double predict(const Terms& terms) const;
  const Terms& coefficients() const { return coefficients_; }
  bool empty() const { return empty_; }

 private:
  double keep_;
  bool empty_ = true;
  std::array<Terms, N> products_ = {};
  Terms values_ = {}, coefficients_ = {};
};

// What one step computes, as far as its time depends on it. Decode rows feed one token each; the
// context of a token is what it attends to.
struct StepLoad {
  int64_t decode_rows = 0, decode_context = 0;    // the contexts' sum, in tokens
  int64_t prompt_tokens = 0, prompt_context = 0;  // the same of the chunks' tokens
  int64_t chunk_context = 0;                      // tokens in front of each chunk, summed

  void add_row(int64_t start) {
    ++decode_rows;
    decode_context += start + 1;
  }
  void add_chunk(int64_t start, int64_t num_tokens) {
    prompt_tokens += num_tokens;
    prompt_context += num_tokens * start + num_tokens * (num_tokens + 1) / 2;
    chunk_context += start;
  }
};

// Estimates how long a step takes from the steps seen so far:
//
//   a + b * decode_rows + c * decode_context                              the decode rows
//     + d * prompt_tokens + e * prompt_context + f * chunk_context + g    the chunks
//
// d is what the weights cost, e the attention, f the reading of a chunk's context, which is paid
// once for all of its tokens. g is what a step costs more because it has chunks, however short: on
// a GPU, which replays a recorded step of rows alone and is handed all others kernel by kernel.
// Without `has_chunk_base` it is 0. Deterministic: it knows no clock.
class StepCost {
 public:
  explicit StepCost(bool has_chunk_base = false) : has_chunk_base_(has_chunk_base) {}
  void observe(const StepLoad& load, double seconds);

  // Of a step without chunks; 0 before the first one was seen, and without rows.
  double decode_seconds(const StepLoad& load) const;
  // g: to be taken off the time for chunks before it is shared among them.
  double chunk_base_seconds() const;
  // What a chunk adds to a step that has others.
  double chunk_seconds(int64_t start, int64_t num_tokens) const;
  // How many tokens from position `start` on add at most `seconds`; 0 before any chunk was seen.
  int64_t chunk_within(double seconds, int64_t start) const;

 private:
  // A formula and a factor. The fit remembers some hundred steps: enough contexts to tell its terms
  // apart. The pace follows within some steps what changes for all terms at once: other processes,
  // the clock frequency, chunks so small that they cost more by the token.
  template <size_t N>
  struct Estimate {
    using Terms = typename DecayedFit<N>::Terms;
    DecayedFit<N> fit{0.998};
    double pace = 1.0;

    double seconds(const Terms& terms) const { return pace * fit.predict(terms); }
    void observe(const Terms& terms, double seconds);
  };

  DecayedFit<4>::Terms chunk_terms(const StepLoad& load) const;

  bool has_chunk_base_;
  Estimate<3> rows_;
  Estimate<4> chunks_;
};

}  // namespace quire::engine
