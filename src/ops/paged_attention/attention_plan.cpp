#include "ops/paged_attention/attention_plan.h"

#include <algorithm>

namespace quire::ops {
namespace {

// Rows of an item: enough that packing a key costs little against using it, few enough that their
// scores and accumulators (1.5 KB a row at D = 128) stay in L2.
constexpr int64_t kMaxRows = 256;
// The same with a unit, where packing costs more: the buffers of 1,024 rows of D = 128 are 1 MB,
// which AMX likes to have. Without tiles half of that is better, or the CPU's L2 overflows.
constexpr int64_t kMaxUnitRows = 1024;
constexpr int64_t kMaxAmxBytes = int64_t{1} << 20;
constexpr int64_t kMaxVectorBytes = int64_t{1} << 19;
constexpr int64_t kMinUnitRows = 128;
// Below this many rows of a kv head an item is bound by reading its keys and values.
constexpr int64_t kFewRows = 16;
// With AMX up to so many are still short of arithmetic. Their items have several heads, whose rows
// lie side by side: as many as have so many bytes in a chunk, for which L2 has room.
constexpr int64_t kShortRows = 128;
constexpr int64_t kShortBytes = int64_t{1} << 19;
// Items for each thread, so that uneven ones even out.
constexpr int64_t kItemsPerThread = 4;
// How much longer reading takes if the heads are cut in two: rows of half the length, more items.
constexpr double kCutCost = 0.05;
// Rows of a merge: enough work for a thread to be woken for.
constexpr int64_t kMergeRows = 8;
// Partial results are not worth more memory than this.
constexpr int64_t kMaxPartials = int64_t{1} << 25;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// How the sequence is cut; an item gets at most so many of each.
struct Cut {
  int64_t tokens, kv_heads, parts;  // parts: pieces of the range of chunks
};

class Planner {
 public:
  Planner(const AttentionKernelParams& params, const BatchLayout& layout, int num_threads)
      : params_(params),
        layout_(layout),
        threads_(num_threads),
        group_(params.heads / params.kv_heads) {
    const bool amx = params.unit == AttentionUnit::kAmx;
    const int64_t parts = amx ? rows_per_query(params) : 1;
    const int64_t row_bytes = parts * (2 * params.key_dim + 4 * params.value_dim);
    const int64_t bytes = amx ? kMaxAmxBytes : kMaxVectorBytes;
    unit_rows_ = std::clamp(bytes / row_bytes / 32 * 32, kMinUnitRows, kMaxUnitRows);
  }

  AttentionPlan plan() {
    const int num_threads = threads_;
    int64_t items = 0;
    for (int64_t s = 0; s < layout_.num_sequences; ++s) items += count(s, largest(s));
    const int64_t wanted = kItemsPerThread * num_threads;
    const int64_t pieces = num_threads == 1 || items == 0 ? 1 : ceil_div(wanted, items);
    if (num_threads > 1) {
      share_few_rows(num_threads);
      share_many_rows(pieces, num_threads);
    }
    // Many-row sequences first: their items take longest.
    for (const bool many : {true, false})
      for (int64_t s = 0; s < layout_.num_sequences; ++s)
        if (!few(s) == many) add(s, finer(s, largest(s), pieces));
    return std::move(plan_);
  }

 private:
  int64_t tokens(int64_t s) const { return layout_.cu_seqlens[s + 1] - layout_.cu_seqlens[s]; }

  // So few rows that reading the keys and values is what takes time: those of the units' kernels
  // for few rows.
  bool few(int64_t s) const {
    const bool products = params_.unit == AttentionUnit::kAvx512Bf16;
    const bool own = products || params_.unit == AttentionUnit::kAmx;
    return tokens(s) * group_ <= (own ? max_few_rows(params_) : kFewRows);
  }
  // More than few, but so few that reading takes as long as the arithmetic of the kernels for AMX,
  // and that a result of each chunk is not too much to keep.
  bool is_short(int64_t s) const {
    if (params_.unit != AttentionUnit::kAmx || few(s)) return false;
    return tokens(s) * group_ <= kShortRows && results(s) <= kMaxPartials;
  }
  // Whether those are cut by chunks: if heads do not go round.
  bool cuts_short() const { return threads_ > params_.kv_heads; }
  int64_t short_heads() const {
    if (!cuts_short()) return std::max<int64_t>(1, params_.kv_heads / (2 * threads_));
    const int64_t element = is_quantised(params_.kv_type) ? 1 : 2;
    const int64_t value_dim = params_.values_in_keys ? 0 : params_.value_dim;
    return std::max<int64_t>(
        1, kShortBytes / (kAttentionChunk * (params_.key_dim + value_dim) * element));
  }
  // Floats of the results of all chunks and heads.
  int64_t results(int64_t s) const {
    return item(s, 0, tokens(s)).chunks * chunk_result_size(params_, tokens(s) * params_.heads);
  }
  // Many rows, for which a unit's kernel packs keys and values.
  bool packs(int64_t s) const { return params_.unit != AttentionUnit::kVectors && !few(s); }
  bool on_unit() const {
    switch (params_.unit) {
      case AttentionUnit::kVectors:
        return false;
      case AttentionUnit::kAvx512Vnni:
      case AttentionUnit::kAvx512Bf16:
      case AttentionUnit::kAmx:
        return true;
    }
    return false;
  }

  // Sets how many chunks and heads an item of few rows has: an equal share of all such sequences'
  // chunks, and only if there are too few of them to go round, of their heads (whose rows are then
  // shorter runs of memory). Short ones that are cut by chunks get the same share.
  void share_few_rows(int num_threads) {
    int64_t chunks = 0;
    bool all = true;
    for (int64_t s = 0; s < layout_.num_sequences; ++s) {
      if (few(s) || (is_short(s) && cuts_short())) chunks += item(s, 0, tokens(s)).chunks;
      all &= few(s);
    }
    const int64_t wanted = kItemsPerThread * num_threads;
    chunks_each_ = std::max<int64_t>(1, ceil_div(chunks, wanted));
    if (!all || chunks == 0 || chunks >= wanted) return;
    double best = 0;
    for (int64_t cuts = 1; cuts <= params_.kv_heads; cuts *= 2) {
      const double time = slowest_thread(num_threads, cuts) * (1 + kCutCost * (cuts - 1));
      if (cuts == 1 || time < best) {
        best = time;
        head_cuts_ = cuts;
      }
    }
  }

  // Sets into how many ranges of chunks an item of many rows is cut: into one, unless some threads
  // would get none of these items, because results of each chunk cost memory and a merge.
  void share_many_rows(int64_t pieces, int num_threads) {
    int64_t items = 0;
    for (int64_t s = 0; s < layout_.num_sequences; ++s)
      if (!few(s) && !is_short(s)) items += count(s, finer(s, largest(s), pieces));
    if (items > 0 && items < num_threads)
      many_parts_ = ceil_div(kItemsPerThread * num_threads, items);
  }

  // Tokens that a thread reads, if each takes the next item when it is done with one, of items of
  // one chunk and 1 / cuts of the heads.
  double slowest_thread(int num_threads, int64_t cuts) const {
    std::vector<int64_t> busy(static_cast<size_t>(num_threads));
    for (int64_t s = 0; s < layout_.num_sequences; ++s) {
      const AttentionItem whole = item(s, 0, tokens(s));
      for (int64_t i = 0; i < whole.chunks * cuts; ++i) {
        const int64_t start = (whole.chunk + i / cuts) * kAttentionChunk;
        *std::min_element(busy.begin(), busy.end()) +=
            std::min(whole.context - start, kAttentionChunk);
      }
    }
    return static_cast<double>(*std::max_element(busy.begin(), busy.end())) /
           static_cast<double>(cuts);
  }

  int64_t count(int64_t s, const Cut& cut) const {
    return ceil_div(tokens(s), cut.tokens) * ceil_div(params_.kv_heads, cut.kv_heads);
  }

  Cut largest(int64_t s) const {
    if (is_short(s)) return {.tokens = tokens(s), .kv_heads = short_heads(), .parts = 1};
    if (packs(s))
      return {.tokens = std::clamp<int64_t>(unit_rows_ / group_, 1, tokens(s)),
              .kv_heads = 1,
              .parts = 1};
    const int64_t n = std::clamp<int64_t>(kMaxRows / group_, 1, std::max<int64_t>(1, tokens(s)));
    return {.tokens = n,
            .kv_heads = std::clamp<int64_t>(kMaxRows / (n * group_), 1, params_.kv_heads),
            .parts = 1};
  }

  // Cuts few rows by chunks (each piece still reads whole runs of memory) and heads, as
  // share_few_rows has it; many rows into about `pieces` times as many items, by heads, then by
  // tokens and then by chunks, as share_many_rows has it.
  Cut finer(int64_t s, Cut cut, int64_t pieces) const {
    const int64_t chunks = item(s, 0, tokens(s)).chunks;
    const bool keeps = results(s) <= kMaxPartials;
    if (is_short(s)) {
      if (chunks_each_ > 0 && cuts_short()) cut.parts = ceil_div(chunks, chunks_each_);
      return cut;
    }
    if (few(s)) {
      if (chunks_each_ > 0 && keeps) cut.parts = ceil_div(chunks, chunks_each_);
      cut.kv_heads = std::min(cut.kv_heads, ceil_div(params_.kv_heads, head_cuts_));
      return cut;
    }
    for (; pieces > 1 && cut.kv_heads > 1; pieces = ceil_div(pieces, 2))
      cut.kv_heads = ceil_div(cut.kv_heads, 2);
    const int64_t least = packs(s) ? kMinUnitRows : kFewRows;
    for (; pieces > 1 && cut.tokens * group_ > least; pieces = ceil_div(pieces, 2))
      cut.tokens = ceil_div(cut.tokens, 2);
    if (keeps) cut.parts = many_parts_;
    return cut;
  }

  // All heads and chunks of some tokens of a sequence.
  AttentionItem item(int64_t s, int64_t first, int64_t n) const {
    const int64_t token = layout_.cu_seqlens[s] + first;
    AttentionItem result{.block_table = layout_.block_table(s),
                         .sequence = s,
                         .token = token,
                         .tokens = n,
                         .position = n > 0 ? layout_.positions[token] : 0,
                         .context = layout_.seq_lens[s],
                         .kv_heads = params_.kv_heads,
                         .on_unit = on_unit()};
    const int64_t begin = params_.first_key(result.position);
    const int64_t end = params_.window_right < 0
                            ? result.context
                            : std::min(result.position + n + params_.window_right, result.context);
    if (n > 0 && begin < end) {
      result.chunk = begin / kAttentionChunk;
      result.chunks = ceil_div(end, kAttentionChunk) - result.chunk;
    }
    return result;
  }

  void add(int64_t s, const Cut& cut) {
    // The last tokens see the most keys: longest first.
    for (int64_t block = ceil_div(tokens(s), cut.tokens) - 1; block >= 0; --block) {
      const int64_t first = block * cut.tokens;
      AttentionItem whole = item(s, first, std::min(cut.tokens, tokens(s) - first));
      for (int64_t h = 0; h < params_.kv_heads; h += cut.kv_heads) {
        whole.kv_head = h;
        whole.kv_heads = std::min(cut.kv_heads, params_.kv_heads - h);
        add_parts(whole, std::min(cut.parts, whole.chunks));
      }
    }
  }

  void add_parts(AttentionItem whole, int64_t parts) {
    const int64_t rows = whole.rows(params_);
    // Merging needs the buffers of paged_attention_cpu too.
    if (!whole.on_unit || parts > 1) plan_.max_rows = std::max(plan_.max_rows, rows);
    if (parts <= 1) return plan_.items.push_back(whole);
    whole.partials = plan_.partials;
    plan_.partials += whole.chunks * chunk_result_size(params_, rows);
    for (int64_t part = 0; part < parts; ++part) {
      const int64_t from = whole.chunks * part / parts, to = whole.chunks * (part + 1) / parts;
      AttentionItem piece = whole;
      piece.chunk += from;
      piece.chunks = to - from;
      piece.partials += from * chunk_result_size(params_, rows);
      plan_.items.push_back(piece);
    }
    const int64_t each = std::max(group_, std::min(kMergeRows, whole.tokens * group_));
    for (int64_t row = 0; row < rows; row += each)
      plan_.merges.push_back({whole, row, std::min(each, rows - row)});
  }

  const AttentionKernelParams& params_;
  const BatchLayout& layout_;
  const int threads_;
  const int64_t group_;
  int64_t unit_rows_;
  int64_t chunks_each_ = 0;  // of an item of few rows; 0: all
  int64_t head_cuts_ = 1;    // items of the same few rows and chunks
  int64_t many_parts_ = 1;   // ranges of chunks of an item of many rows
  AttentionPlan plan_;
};

}  // namespace

AttentionPlan plan_attention(const AttentionKernelParams& params, const BatchLayout& layout,
                             int num_threads) {
  return Planner(params, layout, num_threads).plan();
}

}  // namespace quire::ops
