#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "ops/layout/batch_layout.h"

namespace quire::ops {

// Block tables in memory that stays: from one step to the next most sequences have the block that
// they had, so what is written is what is new.
class KeptTables {
 public:
  // Puts the tables into `to`, of `room` blocks, where those of the last call are unless forget()
  // was called: then it may have anything. False, with everything forgotten, if they do not fit.
  bool write(std::span<const LentTable> tables, int32_t* to, int64_t room);
  void forget();

  // Where each table begins, and the end of what `to` has.
  const std::vector<int64_t>& offsets() const { return offsets_; }
  int64_t end() const { return offsets_.empty() ? 0 : offsets_.back(); }
  int64_t written() const { return written_; }  // blocks, by all calls

 private:
  struct Place {
    uint64_t id = 0;
    int64_t begin = 0, count = 0, room = 0;
  };

  void write(const LentTable& table, Place& place, int32_t* to);
  bool needs_order(std::span<const LentTable> tables, int64_t room) const;

  std::vector<Place> places_;     // of each sequence
  std::vector<int64_t> offsets_;  // [S + 1]
  int64_t end_ = 0, written_ = 0;
};

}  // namespace quire::ops
