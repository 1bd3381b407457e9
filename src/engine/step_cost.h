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
//     + d * prompt_tokens + e * prompt_context + f * chunk_context        the chunks
//
// d is what the weights cost, e the attention, f the reading of a chunk's context, which is paid
// once for all of its tokens. Deterministic: it knows no clock.
class StepCost {
 public:
  void observe(const StepLoad& load, double seconds);

  // Of a step without chunks; 0 before the first one was seen, and without rows.
  double decode_seconds(const StepLoad& load) const;
  // What a chunk adds to a step.
  double chunk_seconds(int64_t start, int64_t num_tokens) const;
  // How many tokens from position `start` on add at most `seconds`; 0 before any chunk was seen.
  int64_t chunk_within(double seconds, int64_t start) const;

 private:
  // A formula and a factor. The fit remembers some hundred steps: enough contexts to tell its terms
  // apart. The pace follows within some steps what changes for all terms at once: other processes,
  // the clock frequency, chunks so small that they cost more by the token.
  struct Estimate {
    DecayedFit<3> fit{0.998};
    double pace = 1.0;

    double seconds(const DecayedFit<3>::Terms& terms) const { return pace * fit.predict(terms); }
    void observe(const DecayedFit<3>::Terms& terms, double seconds);
  };

  Estimate rows_, chunks_;
};

}  // namespace quire::engine
