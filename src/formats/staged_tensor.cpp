#include "formats/staged_tensor.h"

#include <sys/mman.h>
#include <unistd.h>

#include <utility>

#include "base/check.h"
#include "base/error.h"

namespace quire::formats {

StagedTensor::StagedTensor(const RawTensor& tensor) : tensor_(tensor) {
  if (tensor.size == 0) return;
  void* data = ::mmap(nullptr, tensor.size, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    throw LoadError(tensor.file() + ": tensor " + quote_name(tensor.name) + ": no room for its " +
                    std::to_string(tensor.size) + " bytes");
  }
#ifdef MADV_HUGEPAGE
  (void)::madvise(data, tensor.size, MADV_HUGEPAGE);
#endif
  copy_ = {static_cast<std::byte*>(data), tensor.size};
}

StagedTensor::StagedTensor(const RawTensor& tensor, std::shared_ptr<const FileSnapshot> snapshot)
    : tensor_(tensor), snapshot_(std::move(snapshot)) {
  const std::span<const std::byte> file = snapshot_->bytes();
  QUIRE_CHECK(tensor.alternating_rows == 0 && tensor.begin <= file.size() &&
              tensor.size <= file.size() - tensor.begin)
      << tensor.name;
  mapped_ = file.subspan(tensor.begin, tensor.size);
}

StagedTensor::~StagedTensor() {
  if (!copy_.empty()) ::munmap(copy_.data(), copy_.size());
}

void StagedTensor::load(std::span<const std::byte> range, ThreadPool& pool) {
  if (range.empty()) return;
  const auto first = static_cast<uint64_t>(range.data() - data());
  if (snapshot_) {
    tensor_.count(first, range, pool);
  } else {
    tensor_.read_finite(first, copy_.subspan(first, range.size()), pool);
  }
}

void StagedTensor::read(std::span<const std::byte> range, std::span<std::byte> out) const {
  tensor_.read_finite(static_cast<uint64_t>(range.data() - data()), out);
}

void StagedTensor::release(std::span<const std::byte> range) {
  if (snapshot_) return;
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<uintptr_t>(range.data());
  const uintptr_t begin = (address + page - 1) / page * page;
  const uintptr_t end = (address + range.size()) / page * page;
  if (end > begin) (void)::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace quire::formats
