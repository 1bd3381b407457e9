#include <algorithm>

#include "harness.h"
#include "ops/sample/philox.h"
#include "ops/sample/sample_cuda.h"

namespace quire::ops::cuda_test {
namespace {

// A row and its lists, as a request states them.
struct Request {
  SampleCudaRow row;
  std::vector<SampleCudaCount> history = {};
  std::vector<std::pair<int32_t, float>> bias = {};
  std::vector<int32_t> banned = {};
  std::vector<uint32_t> mask = {};
};

struct Token {
  double value;
  int32_t id;
};

// Tokens in rank order after all rules but the draw, with their probabilities.
std::vector<std::pair<Token, double>> kept_tokens(const Request& q, std::vector<double> x,
                                                  int32_t pending) {
  const SampleCudaRow& r = q.row;
  auto history = q.history;
  if (pending >= 0) {
    auto found = std::find_if(history.begin(), history.end(),
                              [&](const auto& c) { return c.token == pending; });
    if (found == history.end()) found = history.insert(history.end(), {pending, 0, 0});
    ++found->in_output;
  }
  for (const auto& c : history) {
    double& v = x[static_cast<size_t>(c.token)];
    v = v > 0 ? v / r.repetition_penalty : v * r.repetition_penalty;
    if (c.in_output > 0) v -= r.frequency_penalty * c.in_output + r.presence_penalty;
  }
  for (const auto& [id, b] : q.bias) x[static_cast<size_t>(id)] += b;
  for (size_t i = 0; i < x.size() && !q.mask.empty(); ++i)
    if ((q.mask[i / 32] >> (i % 32) & 1u) == 0) x[i] = -INFINITY;
  for (const int32_t id : q.banned) x[static_cast<size_t>(id)] = -INFINITY;
  std::vector<std::pair<Token, double>> tokens;
  for (size_t i = 0; i < x.size(); ++i)
    if (x[i] > -INFINITY) tokens.push_back({{x[i], static_cast<int32_t>(i)}, 0});
  std::stable_sort(tokens.begin(), tokens.end(),
                   [](const auto& a, const auto& b) { return a.first.value > b.first.value; });
  if (r.top_k > 0 && tokens.size() > static_cast<size_t>(r.top_k))
    tokens.resize(static_cast<size_t>(r.top_k));
  double sum = 0;
  for (auto& t : tokens)
    sum += t.second = std::exp((t.first.value - tokens[0].first.value) / r.temperature);
  double reached = 0;
  for (size_t i = 0; i < tokens.size() && r.top_p < 1; ++i)
    if ((reached += tokens[i].second) >= r.top_p * sum) tokens.resize(i + 1);
  const double most = tokens[0].second;
  std::erase_if(tokens, [&](const auto& t) { return t.second < r.min_p * most; });
  return tokens;
}

struct Drawn {
  std::vector<int32_t> tokens, ranks, top_ids;
  std::vector<float> logprobs, top_logprobs;
};

Drawn run(CudaStream stream, const std::vector<Request>& requests, const std::vector<float>& logits,
          int64_t vocab, int64_t width) {
  std::vector<SampleCudaRow> rows;
  std::vector<SampleCudaCount> history;
  std::vector<SampleCudaBias> bias;
  std::vector<int32_t> banned;
  std::vector<uint32_t> masks;
  for (const Request& q : requests) {
    SampleCudaRow row = q.row;
    row.history_begin = static_cast<int32_t>(history.size());
    history.insert(history.end(), q.history.begin(), q.history.end());
    row.history_end = static_cast<int32_t>(history.size());
    row.bias_begin = static_cast<int32_t>(bias.size());
    for (const auto& [id, b] : q.bias) {
      bias.push_back({id, b});
    }
    row.bias_end = static_cast<int32_t>(bias.size());
    row.banned_begin = static_cast<int32_t>(banned.size());
    banned.insert(banned.end(), q.banned.begin(), q.banned.end());
    row.banned_end = static_cast<int32_t>(banned.size());
    if (!q.mask.empty()) {
      row.mask = static_cast<int64_t>(masks.size());
      masks.insert(masks.end(), q.mask.begin(), q.mask.end());
    }
    rows.push_back(row);
  }
  const auto count = static_cast<int64_t>(rows.size());
  const DeviceBytes dl(logits), dr(rows), dh(history), dbias(bias), db(banned), dm(masks),
      previous(std::vector<int32_t>{3, 11});
  const DeviceBytes scratch(logits.size() * 4), tokens(count * 4), logprobs(count * 4),
      ranks(count * 4), ids(count * width * 4), tops(count * width * 4);
  SampleCudaParams p = {.rows = count,
                        .vocab = vocab,
                        .width = width,
                        .logits = dl.as<float>(),
                        .previous = previous.as<int32_t>(),
                        .row = dr.as<SampleCudaRow>()};
  p.history = dh.as<SampleCudaCount>();
  p.bias = dbias.as<SampleCudaBias>();
  p.banned = db.as<int32_t>();
  p.masks = dm.as<uint32_t>();
  p.scratch = scratch.as<float>();
  p.tokens = tokens.as<int32_t>();
  p.logprobs = logprobs.as<float>();
  p.ranks = ranks.as<int32_t>();
  p.top_ids = ids.as<int32_t>();
  p.top_logprobs = tops.as<float>();
  sample_cuda(stream, p);
  return {tokens.read<int32_t>(), ranks.read<int32_t>(), ids.read<int32_t>(),
          logprobs.read<float>(), tops.read<float>()};
}

// What the inverse CDF in id order gives, or a neighbour that rounding may give instead.
bool is_drawn(std::vector<std::pair<Token, double>> kept, double uniform, int32_t token) {
  std::sort(kept.begin(), kept.end(),
            [](const auto& a, const auto& b) { return a.first.id < b.first.id; });
  double total = 0, sum = 0;
  for (const auto& t : kept) total += t.second;
  for (const auto& t : kept) {
    const double before = sum / total, after = (sum += t.second) / total;
    if (t.first.id == token) return uniform > before - 1e-5 && uniform < after + 1e-5;
  }
  return false;
}

// One request of each kind of rule, four times with other seeds.
std::vector<Request> make_requests(int64_t vocab) {
  std::vector<Request> requests;
  const auto add = [&](SampleCudaRow row) -> Request& {
    row.seed = 77 + requests.size();
    row.position = static_cast<int64_t>(1000 * requests.size());
    requests.push_back({row});
    return requests.back();
  };
  add({.temperature = 1});
  add({.temperature = 0.7f, .top_k = 5});
  add({.temperature = 1.3f, .top_p = 0.8f});
  add({.temperature = 1, .top_p = 0.5f, .top_k = 20});
  add({.temperature = 1, .min_p = 0.1f});
  add({.temperature = 2, .top_p = 0.9f, .min_p = 0.05f, .top_k = 30});
  add({.temperature = 1, .top_p = 0.0f});
  add({.temperature = 1, .top_p = 0.9f}).bias = {{7, 9.0f}, {9, 8.5f}, {7, -1.0f}};
  Request& penalised = add({.temperature = 1,
                            .top_k = 8,
                            .repetition_penalty = 1.5f,
                            .presence_penalty = 0.5f,
                            .frequency_penalty = 0.25f,
                            .pending_row = 1});
  penalised.history = {{3, 2, 0}, {5, 0, 1}, {11, 1, 1}};
  Request& masked = add({.temperature = 1, .top_p = 0.95f});
  masked.mask.assign(static_cast<size_t>((vocab + 31) / 32), 0x11111111u);
  masked.banned = {0, 4, 8};
  const size_t each = requests.size();
  for (int copy = 1; copy < 4; ++copy)
    for (size_t i = 0; i < each; ++i) {
      Request again = requests[i];
      again.row.seed += static_cast<uint64_t>(1000 * copy);
      requests.push_back(again);
    }
  return requests;
}

void check(CudaStream stream, int64_t vocab) {
  std::vector<Request> requests = make_requests(vocab);
  auto logits = random_floats(requests.size() * static_cast<size_t>(vocab), FloatType::kF16, 9,
                              2.0f);  // has ties
  for (auto& q : requests) q.row.num_top_logprobs = 4;
  const Drawn got = run(stream, requests, logits, vocab, 5);
  int wrong = 0, wrong_top = 0;
  double worst = 0;
  for (size_t r = 0; r < requests.size(); ++r) {
    const std::vector<double> x(logits.begin() + static_cast<long>(r * vocab),
                                logits.begin() + static_cast<long>((r + 1) * vocab));
    const auto kept = kept_tokens(requests[r], x, requests[r].row.pending_row >= 0 ? 11 : -1);
    if (!is_drawn(kept, sample_uniform(requests[r].row.seed, requests[r].row.position),
                  got.tokens[r])) {
      ++wrong;
      std::printf("  row %zu token %d of %zu\n", r, got.tokens[r], kept.size());
      continue;
    }
    const double most = *std::max_element(x.begin(), x.end());
    double sum = 0;
    for (const double v : x) sum += std::exp(v - most);
    const auto logprob = [&](int32_t id) {
      return x[static_cast<size_t>(id)] - most - std::log(sum);
    };
    worst = std::max(worst, std::abs(got.logprobs[r] - logprob(got.tokens[r])));
    const auto greater = std::count_if(
        x.begin(), x.end(), [&](double v) { return v > x[static_cast<size_t>(got.tokens[r])]; });
    std::vector<int32_t> order(static_cast<size_t>(vocab));
    for (int64_t i = 0; i < vocab; ++i) order[i] = static_cast<int32_t>(i);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return x[a] > x[b]; });
    const bool same = std::equal(order.begin(), order.begin() + 4,
                                 got.top_ids.begin() + static_cast<long>(r * 5)) &&
                      got.top_ids[r * 5 + 4] == -1;
    wrong_top += !same || got.ranks[r] != greater + 1;
    for (int i = 0; i < 4; ++i)
      worst = std::max(worst, std::abs(got.top_logprobs[r * 5 + i] - logprob(order[i])));
  }
  const std::string what = "sample vocabulary " + std::to_string(vocab);
  report(wrong == 0, what + " tokens", wrong, 0);
  report(wrong_top == 0, what + " ranks and top lists", wrong_top, 0);
  report(worst < 1e-5, what + " logprobs", worst, 1e-5);
  // Each row alone: the same.
  int different = 0;
  for (const size_t r : {size_t{0}, size_t{5}, size_t{8}, size_t{9}}) {
    const Drawn alone = run(stream, {requests[r]},
                            {logits.begin() + static_cast<long>(r * vocab),
                             logits.begin() + static_cast<long>((r + 1) * vocab)},
                            vocab, 5);
    different += alone.tokens[0] != got.tokens[r] || alone.logprobs[0] != got.logprobs[r] ||
                 alone.ranks[0] != got.ranks[r];
  }
  report(different == 0, what + " alone bits", different, 0);
}

// Greedy, forced, nothing finite.
void check_edges(CudaStream stream, int64_t vocab) {
  const std::string what = "sample vocabulary " + std::to_string(vocab);
  std::vector<float> special(static_cast<size_t>(4 * vocab), -INFINITY);
  special[static_cast<size_t>(vocab - 2)] = special[5] = 3.0f;
  special[3] = NAN;
  special[static_cast<size_t>(vocab + 9)] = INFINITY;
  special[static_cast<size_t>(3 * vocab + 1)] = 2.0f;
  const Drawn edge = run(stream,
                         {{{.temperature = 0}},
                          {{.temperature = 1, .forced_token = 9, .num_top_logprobs = 0}},
                          {{.temperature = 1}},
                          {{.temperature = 1, .top_p = 0.3f, .top_k = 50, .num_top_logprobs = 3}}},
                         special, vocab, 3);
  report(edge.tokens == std::vector<int32_t>({5, 9, -1, 1}) && edge.logprobs[1] == 0 &&
             edge.ranks[1] == 1 && edge.top_ids[9] == 1 && edge.top_ids[10] == -1,
         what + " edges", 0, 0);
}

// How long `rows` rows take that are all sampled in the same way.
void print_time(CudaStream stream, int64_t rows) {
  const int64_t vocab = 151936;
  const auto logits = random_floats(static_cast<size_t>(rows * vocab), FloatType::kF32, 1, 3.0f);
  for (const SampleCudaRow& row : {SampleCudaRow{.temperature = 0}, SampleCudaRow{.temperature = 1},
                                   SampleCudaRow{.temperature = 1, .top_p = 0.95f, .top_k = 50},
                                   SampleCudaRow{.temperature = 1, .top_p = 0.9f}}) {
    const DeviceBytes dl(logits), dr(std::vector<SampleCudaRow>(rows, row)), a(rows * 4),
        b(rows * 4), c(rows * 4), d(rows * 4), e(rows * 4);
    SampleCudaParams p = {
        .rows = rows, .vocab = vocab, .logits = dl.as<float>(), .row = dr.as<SampleCudaRow>()};
    p.tokens = a.as<int32_t>();
    p.logprobs = b.as<float>();
    p.ranks = c.as<int32_t>();
    p.top_ids = d.as<int32_t>();
    p.top_logprobs = e.as<float>();
    const double us = time_us(stream, [&](CudaStream s) { sample_cuda(s, p); }, 3);
    std::printf("sample %lld x 151936 temperature %.0f top_k %d top_p %.2f  %8.1f us\n",
                static_cast<long long>(rows), row.temperature, row.top_k, row.top_p, us);
  }
}

}  // namespace

void check_sample(CudaStream stream) {
  for (const int64_t vocab : {40, 1000, 32000, 151936}) {
    if (few && vocab > 1000) return;
    check(stream, vocab);
    check_edges(stream, vocab);
  }
  for (const int64_t rows : {1, 8, 64}) print_time(stream, rows);
}

}  // namespace quire::ops::cuda_test
