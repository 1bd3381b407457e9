#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/parallel.h"
#include "formats/raw_tensor.h"

namespace quire::formats {

// A copy of a tensor's bytes that is filled as it is needed and given back as it has been used, so
// that a large tensor need not be in memory as a whole. Bytes that were not loaded are zero.
class StagedTensor {
 public:
  // Reserves addresses, no memory. Throws LoadError if there are none.
  explicit StagedTensor(const RawTensor& tensor);
  ~StagedTensor();
  StagedTensor(const StagedTensor&) = delete;
  StagedTensor& operator=(const StagedTensor&) = delete;

  // The first byte of the tensor.
  const std::byte* data() const { return bytes_.data(); }
  // Reads a range of data() from the file, on all threads of the pool. Throws LoadError.
  void load(std::span<const std::byte> range, ThreadPool& pool);
  void load_all(ThreadPool& pool) { load(bytes_, pool); }
  // Gives the pages inside a range of data() back; nobody reads it again.
  void release(std::span<const std::byte> range);

 private:
  const RawTensor& tensor_;
  std::span<std::byte> bytes_;
};

}  // namespace quire::formats
