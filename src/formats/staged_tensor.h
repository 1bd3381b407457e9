#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/parallel.h"
#include "formats/file_snapshot.h"
#include "formats/raw_tensor.h"

namespace quire::formats {

// A tensor's bytes in memory. Either a copy that is filled as it is needed and given back as it has
// been used, so that a large tensor need not be in memory as a whole; bytes that were not loaded
// are zero. Or those of a snapshot of its file, which stay.
class StagedTensor {
 public:
  // A copy. Reserves addresses, no memory. Throws LoadError if there are none.
  explicit StagedTensor(const RawTensor& tensor);
  // Of a snapshot of the tensor's file. The tensor must have its rows in their own order there.
  StagedTensor(const RawTensor& tensor, std::shared_ptr<const FileSnapshot> snapshot);
  ~StagedTensor();
  StagedTensor(const StagedTensor&) = delete;
  StagedTensor& operator=(const StagedTensor&) = delete;

  // The first byte of the tensor.
  const std::byte* data() const { return snapshot_ ? mapped_.data() : copy_.data(); }
  // Reads a range of data() from the file, on all threads of the pool; counts it alone, if it is
  // there. Throws LoadError, also for floats that are infinite or NaN.
  void load(std::span<const std::byte> range, ThreadPool& pool);
  void load_all(ThreadPool& pool) { load({data(), tensor_.size}, pool); }
  // Reads a range of data() to another place, in place of load(). Any thread. Throws LoadError as
  // load() does.
  void read(std::span<const std::byte> range, std::span<std::byte> out) const;
  // Gives the pages inside a range of data() back; nobody reads it again. Does nothing to a
  // snapshot's.
  void release(std::span<const std::byte> range);
  // What data() lies in; null: it is a copy.
  const std::shared_ptr<const FileSnapshot>& snapshot() const { return snapshot_; }

 private:
  const RawTensor& tensor_;
  std::span<std::byte> copy_;
  std::shared_ptr<const FileSnapshot> snapshot_;
  std::span<const std::byte> mapped_;
};

}  // namespace quire::formats
