#include "ops/linear/gguf/gguf_one_row_cpu.h"

#define QUIRE_FOUR_LANES  // for the headers alone: see below
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/linear/gguf/gguf_one_row_cpu.cpp"
#include "ops/cpu/highway.h"
// After it, because their code is per target too.
#include "ops/linear/gguf/gguf_exact-inl.h"
#include "ops/linear/linear_epilogue-inl.h"

HWY_BEFORE_NAMESPACE();
namespace quire::ops::HWY_NAMESPACE {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
namespace {

constexpr int64_t kPanel = QuantisedLayout::kPanel, kBlock = QuantisedLayout::kBlock;
// Vectors of outputs that are computed at once: with two chains each, enough to fill the time in
// which a chain waits for itself. They are of one panel, or of two.
constexpr int kVectors = 2;
constexpr int kPanels = static_cast<int>(kVectors * kLanes / kPanel);
constexpr int kVectorsOfPanel = kVectors / kPanels;
// Bytes of weights to fetch ahead, into the L2 cache: L1 waits for few lines at a time.
constexpr int64_t kRowAhead = 16384;

// In assembly, or gcc moves all of a loop's to its front, where they wait for each other.
HWY_INLINE void ask_for_weights(const uint8_t* at) {
  asm volatile("prefetcht1 %0" : : "m"(at[kRowAhead]));
}

// Scales of a block of each of kPanels panels, 2^16 times as large (gguf_exact-inl.h). Codes stay
// where they are in their words: scale i is for byte i, and the highest byte is shifted down, but
// for codes of 4 bits.
template <GgufFormat kFormat>
struct RowScales {
  static constexpr GgufLayout kLayout = gguf_layout(kFormat);
  static constexpr bool kNibbles = kLayout.bits == 4 && !kLayout.from_table;
  static constexpr int kGroups = static_cast<int>(kBlock / kLayout.group);
  static constexpr int kScales = kNibbles ? 4 : 3;
  struct Group {
    HWY_ALIGN float scale[kVectors][kScales][kLanes], bias[kVectors][kLanes];
  };
  Group groups[kGroups];

  HWY_INLINE void load(const uint8_t* const (&blocks)[kPanels]) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      FloatVec scale[kGroups], bias[kGroups];
      const uint8_t* block = blocks[v / kVectorsOfPanel];
#pragma GCC unroll 8
      for (int g = 0; g < kGroups; ++g) {
        load_gguf_scales(kFormat, block, g, v % kVectorsOfPanel * kLanes, scale[g], bias[g]);
        // Bytes of the table are 128 higher.
        if (kLayout.from_table) bias[g] = hn::Mul(scale[g], hn::Set(kFloats, -128.0f));
      }
#pragma GCC unroll 8
      for (int g = 0; g < kGroups; ++g) {
        const FloatVec up = hn::Set(kFloats, 65536.0f);
        hn::Store(hn::Mul(bias[g], up), kFloats, groups[g].bias[v]);
        FloatVec s = hn::Mul(scale[g], up);
#pragma GCC unroll 4
        for (int i = 0; i < kScales; ++i) {
          hn::Store(s, kFloats, groups[g].scale[v][i]);
          s = hn::Mul(s, hn::Set(kFloats, 0x1p-8f));
        }
      }
    }
  }
};

// One row by two panels, or one, with weights in kFormat.
template <GgufFormat kFormat, bool kTurned>
class OneRow {
 public:
  explicit OneRow(const LinearParams& p)
      : layout_(quantised_layout(p)), data_(static_cast<const uint8_t*>(p.w)) {
    layout_.turned = true;  // blocks that are not read as they are, are turned before
  }

  // acc [32]
  HWY_NOINLINE void multiply(const float* HWY_RESTRICT x, int64_t panel, int64_t panels,
                             float* HWY_RESTRICT acc) {
    const uint8_t* from = data_ + layout_.offset(panel, 0);
    for (int64_t i = 0; i < 2 * kPanel; i += kLanes) hn::Store(hn::Zero(kFloats), kFloats, acc + i);
    for (int64_t k = 0; k < layout_.k; k += kBlock, x += kBlock) {
      for (int64_t i = 0; i < panels; i += kPanels) {
        const uint8_t* blocks[kPanels];
        bool exact = true;
        for (int64_t j = 0; j < kPanels; ++j) {
          blocks[j] = from + HWY_MIN(i + j, panels - 1) * kBlockBytes;  // the last one again
          exact &= gguf_is_exact(kFormat, blocks[j]);
        }
        exact ? add_exact(blocks, x, acc + i * kPanel) : add_any(blocks, x, acc + i * kPanel);
      }
      from += panels * kBlockBytes;
    }
  }

 private:
  using Scales = RowScales<kFormat>;
  static constexpr GgufLayout kLayout = gguf_layout(kFormat);
  static constexpr int64_t kBlockBytes = kLayout.scale_bytes + 2 * kBlock * kLayout.bits;

  static HWY_INLINE void add_exact(const uint8_t* const (&blocks)[kPanels],
                                   const float* HWY_RESTRICT x, float* HWY_RESTRICT acc) {
    Scales scales;
    scales.load(blocks);
    int halves = 2;
    asm("" : "+r"(halves));  // or gcc unrolls them, which takes as long as all else to compile
    for (int half = 0; half < halves; ++half)
      add_half(blocks, half, scales.groups + half * (Scales::kGroups / 2), x + half * 64,
               blocks[0] + half * (kPanels * kBlockBytes / 2), acc);
  }

  // acc += 64 k, in the order of linear.h. Asks for what follows `next`, as many bytes.
  static HWY_INLINE void add_half(const uint8_t* const (&blocks)[kPanels], int half,
                                  const typename Scales::Group* groups, const float* HWY_RESTRICT x,
                                  const uint8_t* next, float* HWY_RESTRICT acc) {
    constexpr int kLines = static_cast<int>((kPanels * kBlockBytes / 2 + 63) / 64);
    constexpr int kWords = static_cast<int>(kLayout.group / 4);  // that share a scale
#pragma GCC unroll 2
    for (int chunk = 0; chunk < 2; ++chunk) {
      FloatVec sums[kVectors][2];
#pragma GCC unroll 4
      for (auto& chains : sums) chains[0] = chains[1] = hn::Zero(kFloats);
#pragma GCC unroll 8
      for (int word = 8 * chunk; word < 8 * chunk + 8; ++word) {
#pragma GCC unroll 8
        for (int i = word * kLines / 16; i < (word + 1) * kLines / 16; ++i)
          ask_for_weights(next + 64 * i);
        // Scales are read again for each word: registers are for the sums.
        const typename Scales::Group* group = groups + word / kWords;
        asm("" : "+r"(group));
        add_word(blocks, half, word, *group, x + 4 * word, sums);
      }
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        float* to = acc + v * kLanes;
        hn::Store(hn::Add(hn::Load(kFloats, to), hn::Add(sums[v][0], sums[v][1])), kFloats, to);
      }
    }
  }

  // The even and the odd ones of four k meet their chains.
  static HWY_INLINE void add_word(const uint8_t* const (&blocks)[kPanels], int half, int word,
                                  const typename Scales::Group& group, const float* HWY_RESTRICT x,
                                  FloatVec (&sums)[kVectors][2]) {
    GgufWords words[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v)
      words[v] = codes_of(blocks[v / kVectorsOfPanel] + kLayout.scale_bytes, half, word,
                          v % kVectorsOfPanel * kLanes);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const bool shifted = i == Scales::kScales;
      const FloatVec one = hn::Set(kFloats, x[i]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        constexpr uint32_t kMask = Scales::kNibbles ? 15 : 255;
        const auto code = shifted ? hn::ShiftRight<24>(words[v])
                                  : hn::And(words[v], hn::Set(UintTag(), kMask << (8 * i)));
        const FloatVec p =
            hn::MulAdd(gguf_floats(code), hn::Load(kFloats, group.scale[v][shifted ? 0 : i]),
                       hn::Load(kFloats, group.bias[v]));
        const FloatVec w = hn::Sub(hn::Mul(p, hn::Set(kFloats, 1.0f + 0x1p-16f)), p);
        sums[v][i % 2] = hn::MulAdd(one, w, sums[v][i % 2]);
      }
    }
  }

  // Codes of four k in the bytes of words; those of 4 bits are the low halves of their bytes.
  static HWY_INLINE GgufWords codes_of(const uint8_t* codes, int half, int word, int64_t lane) {
    if constexpr (Scales::kNibbles) {
      const auto words = plane_words<4>(codes + half * 512, word / 2, word % 2, lane);
      return plane_shift<4>(word / 2) ? hn::ShiftRight<4>(words) : words;
    } else {
      return bytes_of_word<kFormat, kTurned>(codes, half, word, lane);
    }
  }

  // A block with its planes turned.
  static HWY_NOINLINE const uint8_t* turn(const uint8_t* block, uint8_t* out) {
    __builtin_memcpy(out, block, kLayout.scale_bytes);
    for (int64_t at = kLayout.scale_bytes; at < kBlockBytes; at += 128)
      for (int64_t i = 0; i < 128; i += 4)
        __builtin_memcpy(out + at + i % 8 * 16 + i / 8 * 4, block + at + i, 4);
    asm("" : "+r"(out));  // or gcc warns of what code for other formats would read
    return out;
  }

  // The same for blocks that are not exact.
  HWY_NOINLINE void add_any(const uint8_t* const (&blocks)[kPanels], const float* HWY_RESTRICT x,
                            float* HWY_RESTRICT acc) {
    constexpr GgufForm kForm = kLayout.from_table  ? GgufForm::kTable
                               : kLayout.bits == 4 ? GgufForm::kFour
                                                   : GgufForm::kPlanes;
    using Source = GgufSource<kForm, Scales::kGroups>;
    HWY_ALIGN float wide[kPanel * 32];
    HWY_ALIGN uint8_t copy[kTurned ? 1 : kBlockBytes];
    for (const uint8_t* at : blocks) {
      transpose_block<Source>(layout_, kTurned ? at : turn(at, copy), block_);
      for (int64_t chunk = 0; chunk < 4; ++chunk) {
        dequantise_chunk<Bf16, Source, true>(block_, chunk, wide);
        for (int64_t lane = 0; lane < kPanel; lane += kLanes) {
          FloatVec sums[2] = {hn::Zero(kFloats), hn::Zero(kFloats)};
          for (int64_t k = 0; k < 32; ++k)
            sums[k % 2] = hn::MulAdd(
                hn::Set(kFloats, x[chunk * 32 + k]),
                hn::Load(kFloats, wide + k / 2 * 32 + 2 * lane + k % 2 * kLanes), sums[k % 2]);
          hn::Store(hn::Add(hn::Load(kFloats, acc + lane), hn::Add(sums[0], sums[1])), kFloats,
                    acc + lane);
        }
      }
      acc += kPanel;
    }
  }

  QuantisedLayout layout_;
  const uint8_t* data_;
  QuantisedBlock block_;
};

template <GgufFormat kFormat, bool kTurned>
void multiply(const LinearRowBatch& batch, const LinearBlock& block) {
  HWY_ALIGN float acc[2 * kPanel];
  OneRow<kFormat, kTurned> row(batch.params);
  for (int64_t panel = block.panel_begin; panel < block.panel_end; panel += 2) {
    const int64_t panels = HWY_MIN(2, block.panel_end - panel);
    row.multiply(batch.packed_x, panel, panels, acc);
    finish_outputs(batch.params, acc, 2 * kPanel, 0, 1, panel, panels);
  }
}

}  // namespace

// Planes that are not turned are those of units for bfloat16, beside which there is AVX-512.
constexpr bool kReadsUnturned = HWY_TARGET == HWY_AVX3;
bool GgufOneRowServes(const LinearParams& p) { return p.turned || (kReadsUnturned && p.bits != 4); }

void GgufOneRow(const LinearRowBatch& batch, const LinearBlock& block) {
  with_gguf_layout(batch.params.gguf, [&]<GgufFormat kFormat>() HWY_ATTR {
    if constexpr (kReadsUnturned && gguf_layout(kFormat).bits != 4)
      if (!batch.params.turned) return multiply<kFormat, false>(batch, block);
    multiply<kFormat, true>(batch, block);
  });
}
#else
bool GgufOneRowServes(const LinearParams&) { return false; }
void GgufOneRow(const LinearRowBatch&, const LinearBlock&) {}
#endif

}  // namespace quire::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quire::ops {
HWY_EXPORT(GgufOneRowServes);
HWY_EXPORT(GgufOneRow);
bool serves_gguf_one_row_cpu(const LinearParams& p) {
  return gguf_layout(p.gguf).bits != 0 && p.rows == 1 && p.type == FloatType::kBf16 &&
         p.k % QuantisedLayout::kBlock == 0 && HWY_DYNAMIC_DISPATCH(GgufOneRowServes)(p);
}
void gguf_one_row_cpu(const LinearRowBatch& batch, const LinearBlock& block) {
  HWY_DYNAMIC_DISPATCH(GgufOneRow)(batch, block);
}
}  // namespace quire::ops
#endif
