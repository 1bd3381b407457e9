#include "ops/linear/affine_int8_cpu.h"

#include "ops/linear/int8_rows_cpu.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/linear/affine_int8_cpu.cpp"
#include "ops/highway.h"
// After it, because their code is per target too.
#include "ops/linear/affine_integers-inl.h"
#include "ops/linear/linear_epilogue-inl.h"

HWY_BEFORE_NAMESPACE();
namespace quire::ops::HWY_NAMESPACE {

constexpr int64_t kPanel = AffineLayout::kPanel, kBlock = AffineLayout::kBlock;
constexpr int64_t kRows = 16;  // of x at a time

// One panel as the kernel walks it.
struct Panel {
  AffineLayout layout;
  const uint8_t* data;  // block 0
  int64_t stride;
  const uint8_t* block(int64_t k) const { return data + k / kBlock * stride; }
  const uint8_t* values(int64_t k) const { return block(k) + layout.scale_bytes(); }
  void scale(int64_t k, int64_t row, float& scale, float& bias) const {
    load_scale(layout, block(k), k % kBlock / layout.group_size, row, scale, bias);
  }
};

Panel make_panel(const LinearParams& p, int64_t panel) {
  const AffineLayout layout = affine_layout(p);
  return {layout, static_cast<const uint8_t*>(p.w) + layout.offset(panel, 0), layout.stride(panel)};
}

// acc [16 rows][stride] += one group of one panel, for `count` rows: sums over k in the lanes.
HWY_INLINE void add_group(const Int8Slab& s, const Panel& panel, int64_t k, int64_t first,
                          int64_t count, float* acc) {
  const int64_t group = panel.layout.group_size, groups = s.params.k / group, g = k / group;
  for (int64_t n = 0; n < kPanel; ++n) {
    FloatVec sums[kInt8UnpackRows];
    for (int64_t r = 0; r < count; ++r) sums[r] = hn::Zero(kFloats);
    for (int64_t i = 0; i < group; i += kLanes) {
      const FloatVec q = load_integers(panel.layout.bits, panel.values(k), n, k % kBlock + i);
      for (int64_t r = 0; r < count; ++r)
        sums[r] =
            hn::MulAdd(q, hn::LoadU(kFloats, s.x + (first + r) * s.params.k + k + i), sums[r]);
    }
    float scale, bias;
    panel.scale(k, n, scale, bias);
    for (int64_t r = 0; r < count; ++r) {
      const int64_t at = (first + r) * groups + g;
      const FloatVec sum = hn::SumOfLanes(kFloats, sums[r]);
      float& to = acc[r * 2 * kPanel + n];
      const FloatVec added = hn::MulAdd(hn::Mul(sum, hn::Set(kFloats, s.scale[at])),
                                        hn::Set(kFloats, scale), hn::Set(kFloats, to));
      to = hn::GetLane(hn::MulAdd(hn::Set(kFloats, s.sum[at]), hn::Set(kFloats, bias), added));
    }
  }
}

// The integers of a panel as floats, [K][16].
void unpack_panel(const Panel& panel, int64_t k_count, float* out) {
  HWY_ALIGN float lanes[kLanes];
  for (int64_t k = 0; k < k_count; k += kLanes) {
    for (int64_t n = 0; n < kPanel; ++n) {
      hn::Store(load_integers(panel.layout.bits, panel.values(k), n, k % kBlock), kFloats, lanes);
      for (int64_t i = 0; i < kLanes; ++i) out[(k + i) * kPanel + n] = lanes[i];
    }
  }
}

// The same with outputs in the lanes, from an unpacked panel: four rows share its loads.
template <int kCount>
HWY_INLINE void add_unpacked(const Int8Slab& s, const Panel& panel, const float* w, int64_t first,
                             float* acc) {
  constexpr int64_t kVectors = kPanel / kLanes;
  const int64_t group = panel.layout.group_size, groups = s.params.k / group;
  HWY_ALIGN float scales[kPanel], biases[kPanel];
  for (int64_t k = 0; k < s.params.k; k += group) {
    for (int64_t n = 0; n < kPanel; ++n) panel.scale(k, n, scales[n], biases[n]);
    FloatVec sums[kCount][kVectors];
    for (auto& row : sums)
      for (auto& sum : row) sum = hn::Zero(kFloats);
    for (int64_t i = k; i < k + group; ++i) {
      for (int64_t v = 0; v < kVectors; ++v) {
        const FloatVec q = hn::LoadU(kFloats, w + i * kPanel + v * kLanes);
        for (int r = 0; r < kCount; ++r)
          sums[r][v] =
              hn::MulAdd(q, hn::Set(kFloats, s.x[(first + r) * s.params.k + i]), sums[r][v]);
      }
    }
    for (int r = 0; r < kCount; ++r) {
      const int64_t at = (first + r) * groups + k / group;
      for (int64_t v = 0; v < kVectors; ++v) {
        float* to = acc + r * 2 * kPanel + v * kLanes;
        const FloatVec added =
            hn::MulAdd(hn::Mul(sums[r][v], hn::Set(kFloats, s.scale[at])),
                       hn::Load(kFloats, scales + v * kLanes), hn::LoadU(kFloats, to));
        hn::StoreU(
            hn::MulAdd(hn::Set(kFloats, s.sum[at]), hn::Load(kFloats, biases + v * kLanes), added),
            kFloats, to);
      }
    }
  }
}

void Panels(const Int8Slab& s, int64_t panel, int64_t panels, int64_t begin, int64_t end,
            float* scratch) {
  const LinearParams& p = s.params;
  const bool unpack = end - begin >= kInt8UnpackRows;
  const Panel both[2] = {make_panel(p, panel), make_panel(p, panel + panels - 1)};
  if (unpack)
    for (int64_t i = 0; i < panels; ++i) unpack_panel(both[i], p.k, scratch + i * p.k * kPanel);
  HWY_ALIGN float acc[kRows * 2 * kPanel];
  for (int64_t row = begin; row < end; row += kRows) {
    const int64_t rows = HWY_MIN(kRows, end - row);
    for (float& value : acc) value = 0;
    for (int64_t i = 0; i < panels; ++i) {
      if (!unpack) {
        for (int64_t k = 0; k < p.k; k += both[i].layout.group_size)
          add_group(s, both[i], k, row, rows, acc + i * kPanel);
        continue;
      }
      int64_t r = 0;
      const float* w = scratch + i * p.k * kPanel;
      for (; r + 4 <= rows; r += 4)
        add_unpacked<4>(s, both[i], w, row + r, acc + r * 2 * kPanel + i * kPanel);
      for (; r < rows; ++r)
        add_unpacked<1>(s, both[i], w, row + r, acc + r * 2 * kPanel + i * kPanel);
    }
    finish_outputs(p, acc, 2 * kPanel, row, rows, panel, panels);
  }
}

void PackRow(const Int8Slab& s, int64_t row, void* scratch) {
  const LinearParams& p = s.params;
  auto* q = static_cast<int8_t*>(scratch);
  const int64_t groups = p.k / p.group_size;
  quantize_row_int8_cpu(p.type, linear_row(p, row, q + p.k), p.k, p.group_size,
                        {.q = q, .scale = s.scale + row * groups, .sum = s.sum + row * groups});
  for (int64_t k = 0; k < p.k; ++k) s.x[row * p.k + k] = q[k];
}

}  // namespace quire::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quire::ops {
HWY_EXPORT(Panels);
HWY_EXPORT(PackRow);
void int8_panels_cpu(const Int8Slab& slab, int64_t panel, int64_t panels, int64_t begin,
                     int64_t end, float* scratch) {
  HWY_DYNAMIC_DISPATCH(Panels)(slab, panel, panels, begin, end, scratch);
}
void int8_pack_row_cpu(const Int8Slab& slab, int64_t row, void* scratch) {
  HWY_DYNAMIC_DISPATCH(PackRow)(slab, row, scratch);
}
}  // namespace quire::ops
#endif
