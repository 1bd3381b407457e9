#include "ops/layout/kept_tables.h"

#include <algorithm>

namespace quire::ops {
namespace {

// What a table gets that has to move: so much more than it has, in whole cache lines.
int64_t room_for(int64_t count) { return (count + count / 8 + 31) / 16 * 16; }

}  // namespace

void KeptTables::forget() {
  places_.clear();
  offsets_.clear();
  end_ = 0;
}

void KeptTables::write(const LentTable& table, Place& place, int32_t* to) {
  const int64_t known = place.id == table.id && table.id != 0 ? place.count : 0;
  if (known < table.count)
    std::copy(table.blocks + known, table.blocks + table.count, to + place.begin + known);
  written_ += std::max<int64_t>(0, table.count - known);
  place.id = table.id;
  place.count = table.count;
}

// Whether all have to move, to the front: those that grow go to the end and leave gaps.
bool KeptTables::needs_order(std::span<const LentTable> tables, int64_t room) const {
  if (places_.size() != tables.size()) return true;
  int64_t end = end_, used = 0;
  for (size_t s = 0; s < tables.size(); ++s) {
    const bool moves = tables[s].count > places_[s].room;
    const int64_t mine = moves ? room_for(tables[s].count) : places_[s].room;
    end += moves ? mine : 0;
    used += mine;
  }
  return end > room || end > 2 * used;
}

bool KeptTables::write(std::span<const LentTable> tables, int32_t* to, int64_t room) {
  if (needs_order(tables, room)) {
    forget();
    places_.resize(tables.size());
  }
  for (size_t s = 0; s < tables.size(); ++s) {
    Place& place = places_[s];
    if (tables[s].count > place.room) {
      place = {.begin = end_, .room = room_for(tables[s].count)};
      end_ += place.room;
      if (end_ > room) {
        forget();
        return false;
      }
    }
    write(tables[s], place, to);
  }
  offsets_.resize(places_.size() + 1);
  std::ranges::transform(places_, offsets_.begin(), &Place::begin);
  offsets_.back() = end_;
  return true;
}

}  // namespace quire::ops
