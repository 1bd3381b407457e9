#pragma once
#include <cstddef>
#include <map>
#include <optional>

namespace quire::ops {

// Places for pieces of one range of memory, whose size is not known before: each piece gets the
// first gap that is large enough.
class MemoryPlan {
 public:
  static constexpr size_t kAlign = 256;

  // Where the piece begins, a multiple of kAlign.
  size_t take(size_t bytes);
  // The same in a range of `limit` bytes; absent: it has no such gap.
  std::optional<size_t> take_within(size_t bytes, size_t limit);
  bool is_empty() const { return pieces_.empty(); }
  // False: no piece begins there.
  bool give_back(size_t begin);
  // How long the range has to be for all pieces so far.
  size_t peak() const { return peak_; }

 private:
  size_t gap_for(size_t size) const;

  std::map<size_t, size_t> pieces_;  // sizes by beginnings
  size_t peak_ = 0;
};

}  // namespace quire::ops
