#pragma once
// What threads do together. Every operation is a meeting point of the lanes that take part.
#include <algorithm>

#include "msl_types.h"
#include "threads.h"

namespace metal {

using quire::emulator::CombineLanes;
using quire::emulator::kSimdWidth;
using quire::emulator::kSlotBytes;
using quire::emulator::Lanes;
using quire::emulator::Place;

enum class mem_flags { mem_none = 0, mem_device = 1, mem_threadgroup = 2, mem_texture = 4 };
constexpr mem_flags operator|(mem_flags a, mem_flags b) {
  return static_cast<mem_flags>(static_cast<int>(a) | static_cast<int>(b));
}

inline void threadgroup_barrier(mem_flags flags, Place at = Place::current()) {
  const bool orders = (static_cast<int>(flags) & static_cast<int>(mem_flags::mem_threadgroup)) != 0;
  quire::emulator::meet_group("threadgroup_barrier", orders, at);
}
inline void simdgroup_barrier(mem_flags, Place at = Place::current()) {
  quire::emulator::meet_lanes("simdgroup_barrier", nullptr, 0, at);
}

// The values of all lanes. Simd operations take numbers of up to 32 bits, and vectors of those.
template <class T>
struct LaneValues {
  static_assert(sizeof(T) / quire::emulator::kElements<T> <= 4 || std::is_class_v<T>);
  LaneValues(const char* operation, T own, Place at, CombineLanes combine = nullptr)
      : lanes(quire::emulator::meet_lanes(operation, &own, sizeof own, at, combine)) {
    static_assert(sizeof(T) <= quire::emulator::kSlotBytes);
  }
  T operator[](uint32_t lane) const {
    T value;
    __builtin_memcpy(&value, lanes.slot(lane), sizeof value);
    return value;
  }
  uint32_t own() const { return lanes.own(); }
  Lanes lanes;
};

// A tree over all lanes, whose result each of them gets; lanes that take no part are left out.
template <class T, class Combine>
void reduce_slots(char* slots, uint32_t present) {
  T tree[kSimdWidth];
  for (uint32_t i = 0; i < kSimdWidth; ++i)
    __builtin_memcpy(&tree[i], slots + i * kSlotBytes, sizeof(T));
  for (uint32_t step = 1; step < kSimdWidth; step *= 2)
    for (uint32_t i = 0; i + step < kSimdWidth; i += 2 * step) {
      if ((present >> (i + step) & 1) == 0) continue;
      const bool both = (present >> i & 1) != 0;
      tree[i] = both ? static_cast<T>(Combine()(tree[i], tree[i + step])) : tree[i + step];
      present |= 1u << i;
    }
  for (uint32_t i = 0; i < kSimdWidth; ++i)
    __builtin_memcpy(slots + i * kSlotBytes, &tree[0], sizeof(T));
}
template <class T, class Combine>
T reduce_lanes(const char* operation, T x, Place at, Combine) {
  const LaneValues<T> values(operation, x, at, reduce_slots<T, Combine>);
  return values[values.own()];
}
#define QUIRE_REDUCTION(name, expression)                                   \
  template <class T>                                                        \
  T name(T x, Place at = Place::current()) {                                \
    return reduce_lanes(#name, x, at, [](T a, T b) { return expression; }); \
  }
QUIRE_REDUCTION(simd_sum, a + b)
QUIRE_REDUCTION(simd_product, a* b)
QUIRE_REDUCTION(simd_max, (a < b || a != a) ? b : a)
QUIRE_REDUCTION(simd_min, (b < a || a != a) ? b : a)
QUIRE_REDUCTION(simd_and, a& b)
QUIRE_REDUCTION(simd_or, a | b)
QUIRE_REDUCTION(simd_xor, a ^ b)
#undef QUIRE_REDUCTION

template <class T>
T simd_prefix_inclusive_sum(T x, Place at = Place::current()) {
  const LaneValues<T> values("simd_prefix_inclusive_sum", x, at);
  T sum = values[0];
  for (uint32_t i = 1; i <= values.own(); ++i) sum = static_cast<T>(sum + values[i]);
  return sum;
}
template <class T>
T simd_prefix_exclusive_sum(T x, Place at = Place::current()) {
  const LaneValues<T> values("simd_prefix_exclusive_sum", x, at);
  T sum = 0;
  for (uint32_t i = 0; i < values.own(); ++i) sum = static_cast<T>(sum + values[i]);
  return sum;
}
template <class T>
T simd_prefix_inclusive_product(T x, Place at = Place::current()) {
  const LaneValues<T> values("simd_prefix_inclusive_product", x, at);
  T product = values[0];
  for (uint32_t i = 1; i <= values.own(); ++i) product = static_cast<T>(product * values[i]);
  return product;
}
template <class T>
T simd_prefix_exclusive_product(T x, Place at = Place::current()) {
  const LaneValues<T> values("simd_prefix_exclusive_product", x, at);
  T product = 1;
  for (uint32_t i = 0; i < values.own(); ++i) product = static_cast<T>(product * values[i]);
  return product;
}

template <class T>
T simd_broadcast(T x, ushort lane, Place at = Place::current()) {
  return LaneValues<T>("simd_broadcast", x, at)[lane];
}
template <class T>
T simd_broadcast_first(T x, Place at = Place::current()) {
  const LaneValues<T> values("simd_broadcast_first", x, at);
  uint32_t lane = 0;
  while (!values.lanes.has(lane)) ++lane;
  return values[lane];
}
template <class T>
T simd_shuffle(T x, ushort lane, Place at = Place::current()) {
  return LaneValues<T>("simd_shuffle", x, at)[lane];
}
template <class T>
T simd_shuffle_xor(T x, ushort mask, Place at = Place::current()) {
  const LaneValues<T> values("simd_shuffle_xor", x, at);
  return values[values.own() ^ mask];
}
// The lanes at the end keep their own.
template <class T>
T simd_shuffle_down(T x, ushort delta, Place at = Place::current()) {
  const LaneValues<T> values("simd_shuffle_down", x, at);
  return values.own() + delta < kSimdWidth ? values[values.own() + delta] : x;
}
template <class T>
T simd_shuffle_up(T x, ushort delta, Place at = Place::current()) {
  const LaneValues<T> values("simd_shuffle_up", x, at);
  return values.own() >= delta ? values[values.own() - delta] : x;
}
template <class T>
T simd_shuffle_rotate_down(T x, ushort delta, Place at = Place::current()) {
  const LaneValues<T> values("simd_shuffle_rotate_down", x, at);
  return values[(values.own() + delta) % kSimdWidth];
}
template <class T>
T simd_shuffle_rotate_up(T x, ushort delta, Place at = Place::current()) {
  const LaneValues<T> values("simd_shuffle_rotate_up", x, at);
  return values[(values.own() + kSimdWidth - delta % kSimdWidth) % kSimdWidth];
}
template <class T>
T simd_shuffle_and_fill_up(T x, T filling, ushort delta, ushort modulo = kSimdWidth,
                           Place at = Place::current()) {
  const LaneValues<T> values("simd_shuffle_and_fill_up", x, at);
  const LaneValues<T> fill("simd_shuffle_and_fill_up", filling, at);
  const uint32_t in_part = values.own() % modulo, first = values.own() - in_part;
  return in_part >= delta ? values[values.own() - delta] : fill[first + modulo - delta + in_part];
}
template <class T>
T simd_shuffle_and_fill_down(T x, T filling, ushort delta, ushort modulo = kSimdWidth,
                             Place at = Place::current()) {
  const LaneValues<T> values("simd_shuffle_and_fill_down", x, at);
  const LaneValues<T> fill("simd_shuffle_and_fill_down", filling, at);
  const uint32_t in_part = values.own() % modulo, first = values.own() - in_part;
  return in_part + delta < modulo ? values[values.own() + delta]
                                  : fill[first + in_part + delta - modulo];
}

struct simd_vote {
  using vote_t = uint64_t;
  explicit constexpr simd_vote(vote_t v) : votes(v) {}
  constexpr operator vote_t() const { return votes; }
  vote_t votes;
};
inline simd_vote simd_ballot(bool x, Place at = Place::current()) {
  const LaneValues<bool> values("simd_ballot", x, at);
  uint64_t votes = 0;
  for (uint32_t i = 0; i < kSimdWidth; ++i)
    if (values.lanes.has(i) && values[i]) votes |= uint64_t{1} << i;
  return simd_vote(votes);
}
inline bool simd_any(bool x, Place at = Place::current()) {
  return reduce_lanes("simd_any", x, at, [](bool a, bool b) { return a || b; });
}
inline bool simd_all(bool x, Place at = Place::current()) {
  return reduce_lanes("simd_all", x, at, [](bool a, bool b) { return a && b; });
}
template <class T>
T quad_shuffle_xor(T x, ushort mask, Place at = Place::current()) {
  const LaneValues<T> values("quad_shuffle_xor", x, at);
  return values[values.own() ^ (mask & 3u)];
}
template <class T>
T quad_sum(T x, Place at = Place::current()) {
  const LaneValues<T> values("quad_sum", x, at);
  const uint32_t first = values.own() & ~3u;
  return static_cast<T>((values[first] + values[first + 1]) +
                        (values[first + 2] + values[first + 3]));
}

}  // namespace metal

inline ushort __metal_get_simdgroup_size(ushort) { return quire::emulator::kSimdWidth; }
inline ushort __metal_get_thread_index_in_simdgroup(ushort) {
  return static_cast<ushort>(quire::emulator::position().index() % quire::emulator::kSimdWidth);
}
// The compiler's own names, which MLX's overloads for bfloat call.
#define QUIRE_BUILTIN(name)     \
  template <class... T>         \
  auto __metal_##name(T... x) { \
    return metal::name(x...);   \
  }
QUIRE_BUILTIN(simd_broadcast)
QUIRE_BUILTIN(simd_max)
QUIRE_BUILTIN(simd_min)
QUIRE_BUILTIN(simd_prefix_exclusive_product)
QUIRE_BUILTIN(simd_prefix_exclusive_sum)
QUIRE_BUILTIN(simd_prefix_inclusive_product)
QUIRE_BUILTIN(simd_prefix_inclusive_sum)
QUIRE_BUILTIN(simd_product)
QUIRE_BUILTIN(simd_shuffle)
QUIRE_BUILTIN(simd_shuffle_and_fill_down)
QUIRE_BUILTIN(simd_shuffle_and_fill_up)
QUIRE_BUILTIN(simd_shuffle_down)
QUIRE_BUILTIN(simd_shuffle_rotate_down)
QUIRE_BUILTIN(simd_shuffle_rotate_up)
QUIRE_BUILTIN(simd_shuffle_up)
QUIRE_BUILTIN(simd_shuffle_xor)
QUIRE_BUILTIN(simd_sum)
#undef QUIRE_BUILTIN
template <class T>
T __metal_simd_xor(T x) {  // of floats: of their bits
  const uint32_t bits = metal::simd_xor(__builtin_bit_cast(uint32_t, static_cast<float>(x)));
  return static_cast<T>(__builtin_bit_cast(float, bits));
}
