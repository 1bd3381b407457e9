#pragma once
// The attributes of a kernel's parameters that say where a thread is.
#include "msl_types.h"
#include "threads.h"

namespace quire::emulator {

// Takes the type of the parameter: a number is the first coordinate.
struct PlaceArgument {
  uint32_t x, y, z;
  operator uint3() const { return {x, y, z}; }
  operator uint2() const { return {x, y}; }
  operator uint() const { return x; }
  operator ushort3() const { return {short_of(x), short_of(y), short_of(z)}; }
  operator ushort2() const { return {short_of(x), short_of(y)}; }
  operator ushort() const { return short_of(x); }
  static ushort short_of(uint32_t v) { return static_cast<ushort>(v); }
};
struct IndexArgument {
  uint32_t value;
  operator uint() const { return value; }
  operator ushort() const { return static_cast<ushort>(value); }
};

struct Where {
  static PlaceArgument threadgroup_position_in_grid() {
    const Position& p = position();
    return {p.group[0], p.group[1], p.group[2]};
  }
  static PlaceArgument threadgroups_per_grid() {
    const Position& p = position();
    return {p.groups[0], p.groups[1], p.groups[2]};
  }
  static PlaceArgument thread_position_in_threadgroup() {
    const Position& p = position();
    return {p.thread[0], p.thread[1], p.thread[2]};
  }
  static PlaceArgument threads_per_threadgroup() {
    const Position& p = position();
    return {p.threads[0], p.threads[1], p.threads[2]};
  }
  static PlaceArgument thread_position_in_grid() {
    const Position& p = position();
    return {p.group[0] * p.threads[0] + p.thread[0], p.group[1] * p.threads[1] + p.thread[1],
            p.group[2] * p.threads[2] + p.thread[2]};
  }
  static PlaceArgument threads_per_grid() {
    const Position& p = position();
    return {p.groups[0] * p.threads[0], p.groups[1] * p.threads[1], p.groups[2] * p.threads[2]};
  }
  static IndexArgument thread_index_in_threadgroup() { return {position().index()}; }
  static IndexArgument thread_index_in_simdgroup() { return {position().index() % kSimdWidth}; }
  static IndexArgument simdgroup_index_in_threadgroup() {
    return {position().index() / kSimdWidth};
  }
  static IndexArgument quadgroup_index_in_threadgroup() { return {position().index() / 4}; }
  static IndexArgument thread_index_in_quadgroup() { return {position().index() % 4}; }
  static IndexArgument threads_per_simdgroup() { return {kSimdWidth}; }
  static IndexArgument simdgroups_per_threadgroup() {
    const Position& p = position();
    return {(p.threads[0] * p.threads[1] * p.threads[2] + kSimdWidth - 1) / kSimdWidth};
  }
};

}  // namespace quire::emulator
