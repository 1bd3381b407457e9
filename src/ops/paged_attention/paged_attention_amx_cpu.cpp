#include "ops/paged_attention/paged_attention_amx.h"

#if defined(__AMX_BF16__)
#include "ops/paged_attention/attention_in_place-inl.h"

// Attention with many query rows for each key: rows, keys and values are packed into tiles once per
// chunk and used for all rows of the item. Rows go in tiles of 32 (the heads of a group are
// neighbours); while the softmax of one tile runs, the matrix unit computes the scores of the next
// and the sums over values of the one before. Of items of few tiles, as a dozen tokens of a prompt
// beside other sequences are, keys of bfloat16 are not packed but multiplied where they lie; their
// items have several kv heads, which share what is fetched with each key.
namespace quire::ops {
namespace {

// Rows of an int8 pool come in pairs: the high and the low part of a query, then of its
// probabilities; the pair's maximum, sum and total are at its first row. Tiles are of bytes, and so
// hold twice as many elements of D, or tokens, in a row; their sums are integers, in the places of
// the floats.
template <KvType kType>
class Prefill {
  static constexpr bool kCodes = is_quantised(kType);
  static constexpr bool kInt8 = kType == KvType::kInt8;
  static constexpr int64_t kPair = kInt8 ? 2 : 1;
  static constexpr int64_t kBytes = kCodes ? 1 : 2;      // of an element of the pool
  static constexpr int64_t kPacked = kInt8 ? 2 : 1;      // elements in 16 bits of a tile
  static constexpr int64_t kUnit = kBlock * kPacked;     // tokens of a tile of values
  static constexpr int64_t kUnitTiles = kChunk / kUnit;  // of a chunk
  // Times that a tile's rows are gone over, for as many columns as a slot has: a row once, a pair
  // to join its scores, for its probabilities and for their integers.
  static constexpr int64_t kRowSlots = kInt8 ? 3 * kTileRows / 2 : kTileRows;
  using Scores = Products<kInt8 ? TileKind::kSigned : TileKind::kBf16>;
  using Values = Products<kInt8 ? TileKind::kUnsigned : TileKind::kBf16>;

 public:
  Prefill(const AttentionKernelParams& params, const AttentionItem& it, void* scratch, float* kept)
      : p(params), item(it), partials(kept) {
    group = p.heads / p.kv_heads;
    span = group * kPair;
    rows = item.tokens * span;
    tiles = (rows + kTileRows - 1) / kTileRows;
    dim = round_up(p.key_dim, 32 * kPacked) / kPacked;
    width = round_up(p.value_dim, 32 * kPacked);
    in_place = kType == KvType::kBf16 && tiles <= kFewTiles && p.key_dim % 32 == 0 &&
               p.block_size % kRunTokens == 0;
    all.place(static_cast<char*>(scratch), dim, width, tiles * kTileRows, item.kv_heads);
  }

  void run() {
    TileConfig config;
    load_tile_config(config);
    for (int64_t h = 0; h < item.kv_heads; ++h) {
      use_head(h);
      pack_queries();
      if (item.chunks == 0) see_nothing();
    }
    for (int64_t c = 0; c < item.chunks; ++c) {
      find_slots(item.chunk + c);
      for (int64_t h = 0; h < item.kv_heads; ++h) {
        use_head(h);
        pack_chunk();
        attend_chunk(item.partials < 0 ? c : 0);
        if (item.partials >= 0) keep_partial(c);
      }
    }
    for (int64_t h = 0; h < item.kv_heads && item.partials < 0; ++h) {
      use_head(h);
      finish();
    }
    _tile_release();
  }

 private:
  static int64_t clamp(int64_t x, int64_t lo, int64_t hi) { return x < lo ? lo : x > hi ? hi : x; }

  // The keys that token i of the item sees.
  int64_t key_begin(int64_t i) const { return p.first_key(item.position + i); }
  int64_t key_end(int64_t i) const {
    const int64_t end = item.position + i + p.window_right + 1;
    return p.window_right < 0 || end > item.context ? item.context : end;
  }
  // Of row g among those of a token.
  int64_t query_head(int64_t g) const { return (item.kv_head + head) * group + g / kPair; }

  void use_head(int64_t h) {
    head = h;
    buffers = all.of_head(h, dim, width, tiles * kTileRows);
  }

  // ---- packing ----

  // A pool's row from element d on: up to 32 as bfloat16, 0 beyond n.
  static __attribute__((always_inline)) __m512i pool_row(const void* pool, int64_t at, int64_t n) {
    if constexpr (!kCodes) {
      return load_row(static_cast<const uint16_t*>(pool) + at, n);
    } else {
      const auto mask = first_lanes<__mmask32>(n);
      return bf16_of_fp8(_mm256_maskz_loadu_epi8(mask, static_cast<const uint8_t*>(pool) + at));
    }
  }

  // Packs a query's two parts.
  void pack_pair(int64_t r, const uint16_t* q) {
    const CodeScale scale = r < rows ? query_scale(q, p.key_dim) : CodeScale{0.0f, 0.0f};
    buffers.query_scales[r / 2] = scale.scale;
    auto* to = reinterpret_cast<uint8_t*>(buffers.queries + r / 16 * 16 * dim + r % 16 * 32);
    for (int64_t d = 0; d < 2 * dim; d += 64, to += 2 * kTileHalves)
      for (int64_t i = 0; i < 64; i += 16) {
        const bool some = r < rows && d + i < p.key_dim;
        const QueryParts parts = query_parts(
            some ? float_row(q + d + i, p.key_dim - d - i) : _mm512_setzero_ps(), scale);
        store_bytes(to + i, parts.high);
        store_bytes(to + 64 + i, parts.low);
      }
  }

  void turn_queries() {
    for (int64_t first = 0; first < tiles * kTileRows; first += 16) {
      const uint16_t* row[16] = {};
      const int64_t n = clamp(rows - first, 0, 16);
      for (int64_t i = 0; i < n; ++i) {
        const int64_t r = first + i, token = item.token + r / span;
        row[i] = static_cast<const uint16_t*>(p.q) +
                 (token * p.heads + query_head(r % span)) * p.key_dim;
      }
      pack_turned(row, n, dim, first / 16 % 2,
                  buffers.queries + first / kTileRows * kTileRows * dim);
    }
  }

  void pack_queries() {
    const auto* q = static_cast<const uint16_t*>(p.q);
    if constexpr (kPair == 2) {
      for (int64_t r = 0; r < tiles * kTileRows; r += 2) {
        const int64_t token = item.token + r / span;
        const int64_t at = token * p.heads + query_head(r % span);
        pack_pair(r, q + at * p.key_dim);
      }
      return;
    }
    if (in_place) return turn_queries();
    for (int64_t r = 0; r < tiles * kTileRows; ++r) {
      const int64_t token = item.token + r / span, at = token * p.heads + query_head(r % span);
      uint16_t* to = buffers.queries + r / 16 * 16 * dim + r % 16 * 32;
      for (int64_t d = 0; d < dim; d += 32)
        _mm512_store_si512(
            to + d / 32 * kTileHalves,
            r < rows ? load_row(q + at * p.key_dim + d, p.key_dim - d) : _mm512_setzero_si512());
    }
  }

  // The columns [begin, end) of a chunk that some row sees, and the slots of their tokens; columns
  // around them, up to whole units, get a neighbour's.
  void find_slots(int64_t chunk) {
    start = chunk * kChunk;
    begin = clamp(key_begin(0) - start, 0, kChunk);
    end = clamp(key_end(item.tokens - 1) - start, 0, kChunk);
    int64_t* slots = all.slots;
    for (int64_t t = begin; t < end;) {
      const int64_t block = (start + t) / p.block_size, offset = (start + t) % p.block_size;
      const int64_t stop = t + p.block_size - offset < end ? t + p.block_size - offset : end;
      const int64_t slot = item.block_table[block] * p.block_size + offset - t;
      for (; t < stop; ++t) slots[t] = slot + t;
    }
    for (int64_t t = begin / kUnit * kUnit; t < begin; ++t) slots[t] = slots[begin];
    for (int64_t t = end; t % kUnit != 0; ++t) slots[t] = slots[end - 1];
  }

  // Packs those columns; the others up to whole units have any finite scores, which are not used,
  // and values of 0.
  void pack_chunk() {
    const int64_t first = begin / kUnit * kUnit;
    const int64_t* slots = buffers.slots;
    for (int64_t t = first; kCodes && t < round_up(end, kUnit); ++t) {
      buffers.key_scales[t] = p.k_scale[slots[t] * p.kv_heads + item.kv_head + head];
      buffers.value_scales[t] = p.v_scale[slots[t] * p.kv_heads + item.kv_head + head];
    }
    // Rows of one head are short runs far apart, which the hardware does not foresee: they are
    // asked for a block ahead. Values in keys have come with these.
    ask_for(p.k, p.key_dim, first, first + kBlock);
    for (int64_t t = first; t < end; t += 16) {
      if (t + kBlock < end)
        ask_for(p.k, p.key_dim, t + kBlock, t + kBlock + 16);
      else if (!p.values_in_keys)
        ask_for(p.v, p.value_dim, first + t % kBlock, first + t % kBlock + 16);
      if (!in_place) pack_keys(t);
    }
    for (int64_t t = first; t < end; t += kUnit) {
      if (t + kUnit < end && !p.values_in_keys) ask_for(p.v, p.value_dim, t + kUnit, t + 2 * kUnit);
      if constexpr (kInt8)
        pack_byte_values(t);
      else
        pack_values(t);
    }
  }

  void ask_for(const void* pool, int64_t length, int64_t from, int64_t to) const {
    const int64_t bytes = length * kBytes;
    const char* base = static_cast<const char*>(pool) + (item.kv_head + head) * bytes;
    for (int64_t t = from; t < to; ++t)
      for (int64_t at = 0; at < bytes; at += 64)
        ask_for_line(base + buffers.slots[t] * p.kv_heads * bytes + at);
  }

  void pack_keys(int64_t t) {
    const int64_t first = (item.kv_head + head) * p.key_dim, stride = p.kv_heads * p.key_dim;
    uint16_t* to = buffers.keys + t * dim;
    for (int64_t d = 0; d < dim * kPacked; d += 32 * kPacked, to += kTileHalves) {
      __m512i square[16];
      for (int i = 0; i < 16; ++i) {
        const int64_t at = first + buffers.slots[t + i] * stride + d;
        if constexpr (kInt8)
          square[i] = load_bytes(static_cast<const uint8_t*>(p.k) + at, p.key_dim - d);
        else
          square[i] = pool_row(p.k, at, p.key_dim - d);
      }
      transpose(square);
      for (int i = 0; i < 16; ++i) _mm512_store_si512(to + i * 32, square[i]);
    }
  }

  // 64 tokens of codes, four to a 32-bit word; all are finite.
  void pack_byte_values(int64_t block) {
    const auto* v = static_cast<const uint8_t*>(p.v) + (item.kv_head + head) * p.value_pitch();
    const int64_t stride = p.kv_heads * p.value_pitch();
    for (int64_t t = block; t < block + kUnit; t += 4) {
      const uint8_t* row[4];
      for (int64_t j = 0; j < 4; ++j) row[j] = v + buffers.slots[t + j] * stride;
      uint16_t* to = buffers.values + block / kUnit * kTileHalves + (t - block) / 4 * 32;
      for (int64_t d = 0; d < width; d += 64, to += 4 * kUnitTiles * kTileHalves)
        interleave_bytes(row, d, p.value_dim - d, to, kUnitTiles * 2 * kTileHalves);
    }
    for (int64_t t = block; t < block + kUnit; t += kBlock) finite[t / kBlock] = true;
  }

  void pack_values(int64_t block) {
    const int64_t pitch = p.value_pitch(), first = (item.kv_head + head) * pitch;
    const int64_t stride = p.kv_heads * pitch;
    __m512i largest = _mm512_setzero_si512();
    const __m512i magnitude = _mm512_set1_epi16(0x7FFF);
    for (int64_t t = block; t < block + kBlock; t += 2) {
      uint16_t* to = buffers.values + block / kBlock * kTileHalves + (t - block) / 2 * 32;
      const bool even = t >= begin && t < end, odd = t + 1 >= begin && t + 1 < end;
      for (int64_t d = 0; d < width; d += 32, to += 2 * kBlocks * kTileHalves) {
        const int64_t n = p.value_dim - d;
        const __m512i zero = _mm512_setzero_si512();
        const __m512i a = even ? pool_row(p.v, first + buffers.slots[t] * stride + d, n) : zero;
        const __m512i b = odd ? pool_row(p.v, first + buffers.slots[t + 1] * stride + d, n) : zero;
        largest = _mm512_max_epu16(largest, _mm512_and_si512(a, magnitude));
        largest = _mm512_max_epu16(largest, _mm512_and_si512(b, magnitude));
        _mm512_store_si512(to, _mm512_unpacklo_epi16(a, b));
        _mm512_store_si512(to + kBlocks * kTileHalves, _mm512_unpackhi_epi16(a, b));
      }
    }
    finite[block / kBlock] = _mm512_cmpge_epu16_mask(largest, _mm512_set1_epi16(0x7F80)) == 0;
  }

  // ---- a tile ----

  // The part of the chunk that the tile's rows see.
  void open(Tile& t, int64_t index) {
    t.index = index;
    t.rows = rows - index * kTileRows < kTileRows ? rows - index * kTileRows : kTileRows;
    t.queries = buffers.queries + index * kTileRows * dim;
    t.scores = buffers.scores[index % 2];
    int64_t token = index * kTileRows / span, g = index * kTileRows % span;
    const int64_t last_token = (index * kTileRows + kTileRows - 1) / span;
    if (t.rows == kTileRows && key_begin(last_token) <= start && key_end(token) >= start + kChunk) {
      for (int64_t r = 0; r < kTileRows; ++r) t.begin[r] = 0, t.end[r] = kChunk;
      return found(t, 0, kChunk, kChunk);
    }
    int64_t first = kChunk, last = 0, common = t.rows == kTileRows ? kChunk : 0;
    for (int64_t r = 0; r < kTileRows; ++r) {
      int64_t lo = 0, hi = 0;
      if (token < item.tokens) {
        lo = clamp(key_begin(token) - start, 0, kChunk);
        hi = clamp(key_end(token) - start, lo, kChunk);
      }
      t.begin[r] = static_cast<int32_t>(lo);
      t.end[r] = static_cast<int32_t>(hi);
      if (lo < hi) {
        first = lo < first ? lo : first;
        last = hi > last ? hi : last;
      }
      common = hi < common ? hi : common;
      if (++g == span) g = 0, ++token;
    }
    found(t, first, last, common);
  }
  // `common`: columns from t.first to here are seen by all rows, if they begin there.
  void found(Tile& t, int64_t first, int64_t last, int64_t common) {
    t.first = first / kUnit * kUnit;
    t.last = last > t.first ? round_up(last, kUnit) : t.first;
    t.common = common / kBlock * kBlock;
    for (int64_t r = 0; r < kTileRows; ++r)
      if (t.begin[r] > t.first) t.common = t.first;
    t.by_hand = false;
    for (int64_t b = t.first / kBlock; b < t.last / kBlock; ++b) t.by_hand |= !finite[b];
  }

  // Scores of the tile: 32 tokens at a time, 32 elements of D a step (64 of bytes).
  Scores scores_of(const Tile& t) const {
    const int64_t depth = dim / 32;
    return {.a = t.queries,
            .b = buffers.keys + t.first * dim,
            .a_lower = depth * kTileHalves,
            .a_step = kTileHalves,
            .b_right = depth * kTileHalves,
            .b_step = kTileHalves,
            .b_next = 2 * depth * kTileHalves,
            .out = t.scores + t.first * kTileSpread,
            .out_lower = kLowerScores,
            .out_next = kBlock * kTileSpread,
            .depth = depth,
            .steps = depth * ((t.last - t.first) / kBlock)};
  }

  // The 16 keys from the chunk's column t on, or those at `other` if nobody sees one of them.
  const uint16_t* keys_at(int64_t t, int64_t other) const {
    if (t >= end || t + kRunTokens <= begin) t = other;
    const int64_t seen = t < begin ? begin : t;
    return static_cast<const uint16_t*>(p.k) + (item.kv_head + head) * p.key_dim +
           (buffers.slots[seen] - (seen - t)) * p.kv_heads * p.key_dim;
  }
  // The same with keys in the pool. Vectors take tiles apart a block after these were stored.
  void score_in_place(const Tile& t) const {
    TurnedScores turned[2];
    const int64_t stride = p.kv_heads * p.key_dim * 2;
    for (int64_t at = t.first; at <= t.last; at += kBlock) {
      if (at < t.last)
        score_turned(t.queries, keys_at(at, at + kRunTokens), keys_at(at + kRunTokens, at), stride,
                     dim, turned[at / kBlock % 2]);
      if (at > t.first) turned[(at / kBlock + 1) % 2].turn(t.scores + (at - kBlock) * kTileSpread);
    }
  }

  // Sums over values: 32 columns of V at a time, 32 tokens a step (64 of bytes).
  Values values_of(const Tile& t) const {
    const int64_t depth = (t.last - t.first) / kUnit;
    return {.a = reinterpret_cast<const uint16_t*>(t.scores) + t.first * kProbabilitySpread,
            .b = buffers.values + t.first / kUnit * kTileHalves,
            .a_lower = 2 * kLowerScores,
            .a_step = kUnit * kProbabilitySpread,
            .b_right = kUnitTiles * kTileHalves,
            .b_step = kTileHalves,
            .b_next = 2 * kUnitTiles * kTileHalves,
            .out = buffers.sums,
            .out_lower = 512,
            .out_next = 32 * kTileRows,
            .depth = depth,
            .steps = depth * (width / 32)};
  }

  // The maxima of several rows come first: probabilities that wait for one would stall those of the
  // next.
  void find_maxima(Tile& t, int64_t first_row, int64_t n, Feed<kInt8>& feed) const {
    for (int64_t r = first_row; r < first_row + n; r += kPair) {
      float* scores = t.row(r);
      if constexpr (kInt8) {
        t.m[r] = join_scores(t, r, feed);
        if (p.softcap <= 0 && p.alibi == nullptr) continue;
      }
      if constexpr (kType == KvType::kFp8)
        scale_scores<kTileSpread>(buffers.key_scales, scores, t.begin[r], t.end[r]);
      if (p.softcap > 0) cap_scores<kTileSpread>(p, scores, t.begin[r], t.end[r]);
      if (p.alibi != nullptr) bias_row(t, r);
      t.m[r] = max_visible<kTileSpread>(scores, t.begin[r], t.end[r]);
    }
  }

  void bias_row(const Tile& t, int64_t r) const {
    const int64_t row = t.index * kTileRows + r;
    const float slope = p.alibi[item.sequence * p.alibi_stride + query_head(row % span)];
    const int64_t position = item.position + row / span - start;
    bias_scores<kTileSpread>(slope, p.score_scale, static_cast<float>(position), t.row(r),
                             t.begin[r], t.end[r]);
  }

  float join_scores(const Tile& t, int64_t r, Feed<kInt8>& feed) const {
    const __m512 lowest = _mm512_set1_ps(kNegativeInfinity);
    JoinRow row{.scores = t.row(r),
                .key_scales = buffers.key_scales,
                .begin = t.begin[r],
                .end = t.end[r],
                .factor = _mm512_set1_ps(buffers.query_scales[(t.index * kTileRows + r) / 2]),
                .peak = {lowest, lowest}};
    const int64_t last = t.last;
    for (int64_t c = t.first; c < last; c += kSlotColumns)
      feed.slot([&](int i) __attribute__((always_inline)) {
        if (c + i * kBlock < last) row.columns(c + i * kBlock);
      });
    return _mm512_reduce_max_ps(_mm512_max_ps(row.peak[0], row.peak[1]));
  }

  // The probabilities of a pair, and then its integers.
  void softmax_pair(Tile& t, int64_t r, Feed<kInt8>& feed) const {
    float* scores = t.row(r);
    WeightRowOf<kTileSpread> row{.scores = scores,
                                 .weights = buffers.value_scales,
                                 .begin = t.begin[r],
                                 .end = t.end[r],
                                 .peak = _mm512_set1_ps(t.m[r]),
                                 .scale = _mm512_set1_ps(p.exponent_scale),
                                 .sum = _mm512_setzero_ps(),
                                 .largest = _mm512_setzero_si512()};
    const int64_t last = t.last;
    for (int64_t c = t.first; c < last; c += kSlotColumns)
      feed.slot([&](int i) __attribute__((always_inline)) {
        if (c + i * kBlock < last) row.columns(c + i * kBlock);
      });
    const CodeScale scale = scale_of(largest(row.largest), kMaxProbability16);
    for (int64_t c = t.first; c < last; c += kSlotColumns)
      feed.slot([&](int i) __attribute__((always_inline)) {
        const int64_t at = c + i * kBlock;
        if (at >= last) return;
        float* weights = scores + at * kTileSpread;
        auto* high = reinterpret_cast<uint8_t*>(scores + at / 64 * 64 * kTileSpread) + at % 64;
        split_weights<kTileSpread>(weights, scale, high, high + 64);
      });
    const bool sees = t.begin[r] < t.end[r];
    t.factor[r] = sees ? scale.scale : 0.0f;
    t.l[r] = sees ? fold(row.sum) : 0.0f;
    t.m[r] = sees ? t.m[r] * p.exponent_scale : kNegativeInfinity;
    t.l[r + 1] = 0.0f;
    t.m[r + 1] = kNegativeInfinity;
  }
  void softmax(Tile& t, int64_t r, Feed<kInt8>& feed) const {
    SoftmaxRow<kCodes, kTileSpread> row{.scores = t.row(r),
                                        .probabilities = reinterpret_cast<uint16_t*>(t.row(r)),
                                        .begin = t.begin[r],
                                        .end = t.end[r],
                                        .peak = _mm512_set1_ps(t.m[r]),
                                        .scale = _mm512_set1_ps(p.exponent_scale),
                                        .sum = _mm512_setzero_ps(),
                                        .weights = buffers.value_scales};
    const int64_t last = t.last;
    for (int64_t c = t.first; c < last; c += kSlotColumns)
      feed.slot([&](int i) __attribute__((always_inline)) {
        if (c + i * kBlock < last) row.columns(c + i * kBlock);
      });
    const bool sees = t.begin[r] < t.end[r];
    t.l[r] = sees ? fold(row.sum) : 0.0f;
    t.m[r] = sees ? t.m[r] * p.exponent_scale : kNegativeInfinity;
  }

  // ---- merging ----

  // The tile whose sums are being added to the totals.
  struct Merge {
    const Tile* tile = nullptr;
    bool is_first = false;       // chunk of the item
    int64_t group = 0, row = 0;  // the next 32 columns, of the next row
    Weights weights;
  };
  // Adds 32 columns of a row's sums to its total; the first chunk finds no total yet.
  __attribute__((always_inline)) void merge_columns(const Merge& merge, int64_t r,
                                                    int64_t column) const {
    const Tile& t = *merge.tile;
    float* to = buffers.total + (t.index * kTileRows + r) * width + column;
    const float* from = buffers.sums_of(r, column);
    const __m512 keeps = _mm512_set1_ps(merge.weights.keep[r]);
    const __m512 adds = _mm512_set1_ps(merge.weights.add[r]);
    const auto sum_at = [&](int64_t d) __attribute__((always_inline)) {
      if constexpr (!kInt8) return _mm512_load_ps(from + d * 16);
      const __m512 sum = join_parts(from + d * 16, from + d * 16 + 16);
      return _mm512_mul_ps(sum, _mm512_set1_ps(t.factor[r]));
    };
    if (merge.is_first) {
      for (int64_t d = 0; d < 32; d += 16) {
        const __m512 kept = _mm512_mul_ps(_mm512_setzero_ps(), keeps);
        const __m512 sum = _mm512_fmadd_ps(sum_at(d), adds, kept);
        _mm512_store_ps(to + d, t.l[r] != 0 ? sum : _mm512_setzero_ps());
      }
    } else if (t.l[r] != 0) {
      for (int64_t d = 0; d < 32; d += 16) {
        const __m512 kept = _mm512_mul_ps(_mm512_load_ps(to + d), keeps);
        _mm512_store_ps(to + d, _mm512_fmadd_ps(sum_at(d), adds, kept));
      }
    }
  }
  // Merges up to n rows of those columns whose sums are done.
  __attribute__((always_inline)) void merge_some(Merge& merge, const Values& values,
                                                 int64_t n) const {
    for (; n > 0 && merge.group < values.groups_done; --n) {
      merge_columns(merge, merge.row, merge.group * 32);
      if ((merge.row += kPair) < merge.tile->rows) continue;
      merge.row = 0;
      ++merge.group;
    }
  }

  void begin_totals() const {
    const bool sinks = p.sinks && item.partials < 0;  // else merging begins with them
    for (int64_t r = 0; r < tiles * kTileRows; ++r) {
      buffers.m[r] = sinks ? p.sinks[query_head(r % span)] * kLog2E : kNegativeInfinity;
      buffers.l[r] = sinks ? 1.0f : 0.0f;
    }
  }

  // Puts the totals, which are of chunk c alone, where paged_attention_merge_cpu looks for them.
  void keep_partial(int64_t c) const {
    const int64_t n = rows / kPair, all = item.rows(p), stride = padded_value_dim(p);
    float* chunk = partials + item.partials + c * chunk_result_size(p, all);
    float* m = chunk + all * stride + head * n;
    keep_totals<kInt8>(buffers, n, width, chunk + head * n * stride, stride, m, m + all);
  }

  void finish() const {
    auto* out = static_cast<uint16_t*>(p.out);
    for (int64_t r = 0; r < rows; r += kPair) {
      const int64_t token = item.token + r / span, query = query_head(r % span);
      if (p.lse != nullptr)
        p.lse[query * p.lse_stride + token] = attention_lse(buffers.m[r], buffers.l[r]);
      const int64_t at = token * p.heads + query;
      if constexpr (kInt8)
        for (int64_t d = 0; d < width; d += 64) in_byte_order(buffers.total + r * width + d);
      const auto finish = kInt8 ? finish_ordered_row : finish_row;
      finish(buffers.total + r * width, buffers.l[r], out + at * p.value_dim, p.value_dim);
    }
  }

  // ---- the pipeline over the tiles of a chunk ----

  void attend_chunk(int64_t c) {
    if (c == 0) begin_totals();
    // Tiles that see nothing of the chunk lie before and after those that do.
    int64_t from = 0, to = tiles;
    Tile tile[3];
    const auto opened = [&](int64_t index) -> Tile& {
      open(tile[index % 3], index);
      return tile[index % 3];
    };
    for (; from < to && opened(from).last == opened(from).first; ++from) skip(from, c);
    for (; to > from && opened(to - 1).last == opened(to - 1).first; --to) skip(to - 1, c);
    if (from == to) return;
    in_place ? score_in_place(opened(from)) : scores_of(opened(from)).run();
    for (int64_t i = from; i <= to; ++i) {
      Tile* now = i < to ? &tile[i % 3] : nullptr;
      Tile* next = i + 1 < to ? &opened(i + 1) : nullptr;
      Feed<kInt8> feed;
      Merge merge;
      if (i > from) begin_close(tile[(i - 1) % 3], c, feed, merge);
      if (next && !in_place)
        feed.scores = scores_of(*next);  // in the place of the probabilities of the one before
      if (now) softmax_either(*now, feed, merge);
      feed.values.run();
      merge_some(merge, feed.values, kTileRows * width);
      feed.scores.run();
      if (next && in_place) score_in_place(*next);
    }
  }

  // The probabilities of a tile whose rows see the same columns but for the last: the usual case,
  // almost without masks. kLook: scores are as they are, so that a row's maximum can be taken
  // beside the probabilities of an earlier one. `shared` is copied, because what is in memory would
  // be read again after each store.
  template <bool kLook>
  void softmax_plain(Tile& now, Feed<kInt8>& shared, Merge& merge) {
    Feed<kInt8> feed = shared;
    const int64_t first = now.first, common = now.common, merges = width / 32 * 2;
    feed.steps = feed.values.steps + feed.scores.steps;
    feed.slots = (common - first + kSlotColumns - 1) / kSlotColumns * kTileRows;
    if constexpr (kLook) find_maxima(now, 0, kMaximaAhead, shared);
    for (int64_t r = 0; r < kTileRows; ++r) {
      if (!kLook && r % 8 == 0) find_maxima(now, r, 8, shared);
      // The last rows have none to look at, and look at themselves: what they find is not used.
      const bool looks = kLook && r + kMaximaAhead < kTileRows;
      const int64_t later = looks ? r + kMaximaAhead : r;
      PlainRow<kLook, kCodes> row{.scores = now.row(r),
                                  .later = now.row(later),
                                  .weights = buffers.value_scales,
                                  .peak = _mm512_set1_ps(now.m[r]),
                                  .scale = _mm512_set1_ps(p.exponent_scale),
                                  .sum = _mm512_setzero_ps(),
                                  .later_peak = _mm512_set1_ps(kNegativeInfinity)};
      for (int64_t c = first; c < common; c += kSlotColumns)
        feed.slot([&](int i) __attribute__((always_inline)) {
          if (c + i * kBlock >= common) return;
          row.look(c + i * kBlock, 0xFFFF, 0xFFFF);
          row.columns(c + i * kBlock, 0xFFFF, 0xFFFF);
        });
      for (int64_t t = common; t < now.last; t += kBlock) {
        row.look(t, lanes_in(t, 0, now.end[later]), lanes_in(t + 16, 0, now.end[later]));
        row.columns(t, lanes_in(t, 0, now.end[r]), lanes_in(t + 16, 0, now.end[r]));
      }
      now.l[r] = fold(row.sum);
      now.m[r] *= p.exponent_scale;
      if (looks) now.m[later] = _mm512_reduce_max_ps(row.later_peak);
      merge_some(merge, feed.values, merges);
    }
    shared = feed;
  }

  void softmax_either(Tile& now, Feed<kInt8>& feed, Merge& merge) {
    if constexpr (!kInt8) {
      const bool as_they_are = !kCodes && p.softcap <= 0 && p.alibi == nullptr;
      if (now.common > now.first)
        return as_they_are ? softmax_plain<true>(now, feed, merge)
                           : softmax_plain<false>(now, feed, merge);
    }
    softmax_tile(now, feed, merge);
  }

  // The probabilities of a tile, while the matrix unit works on its neighbours.
  void softmax_tile(Tile& now, Feed<kInt8>& feed, Merge& merge) {
    feed.steps = feed.values.steps + feed.scores.steps;
    feed.slots = (now.last - now.first + kSlotColumns - 1) / kSlotColumns * kRowSlots;
    // Rows of columns to merge, for each row while their sums come in.
    const int64_t merges = width / 32 * 2;
    for (int64_t r = 0; r < kTileRows; r += kPair) {
      if (r % 8 == 0) find_maxima(now, r, 8, feed);
      if constexpr (kPair == 2)
        softmax_pair(now, r, feed);
      else
        softmax(now, r, feed);
      merge_some(merge, feed.values, merges);
    }
  }

  // The sums of a tile, to be merged as they come.
  void begin_close(const Tile& t, int64_t c, Feed<kInt8>& feed, Merge& merge) const {
    merge.tile = &t;
    merge.is_first = c == 0;
    begin_merge(t, buffers, merge.weights);
    if (!t.by_hand) {
      feed.values = values_of(t);
      return;
    }
    add_values_by_hand(t, buffers, width);
    feed.values.groups_done = width / 32;  // all are done
  }

  void see_nothing() const {
    begin_totals();
    for (int64_t i = 0; i < tiles; ++i) skip(i, 0);
  }

  // A tile that sees nothing of the first chunk begins with totals of 0.
  void skip(int64_t index, int64_t c) const {
    if (c > 0) return;
    float* to = buffers.total + index * kTileRows * width;
    for (int64_t i = 0; i < kTileRows * width; ++i) to[i] = 0;
  }

  const AttentionKernelParams& p;
  const AttentionItem& item;
  float* partials;
  Buffers all, buffers;                          // of the item, and of `head`
  bool in_place;                                 // keys are not packed
  int64_t group, span, rows, tiles, dim, width;  // span: rows of a token
  int64_t head = 0;                              // of the item's kv heads
  int64_t begin = 0, end = 0;                    // the chunk's columns that some row sees
  int64_t start = 0;                             // position of the chunk's first column
  bool finite[kBlocks];                          // all values of these 32 tokens
};

}  // namespace

int64_t attention_amx_scratch(const AttentionKernelParams& params, int64_t rows, int64_t heads) {
  return Buffers().place(nullptr, round_up(params.key_dim, 64), round_up(params.value_dim, 64),
                         round_up(rows * rows_per_query(params), kTileRows), heads);
}

void paged_attention_amx(const AttentionKernelParams& params, const AttentionItem& item,
                         void* scratch, float* partials) {
  switch (params.kv_type) {
    case KvType::kInt8:
      return Prefill<KvType::kInt8>(params, item, scratch, partials).run();
    case KvType::kFp8:
      return Prefill<KvType::kFp8>(params, item, scratch, partials).run();
    default:
      return Prefill<KvType::kBf16>(params, item, scratch, partials).run();
  }
}

}  // namespace quire::ops
#endif
