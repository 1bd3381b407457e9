// Hostile GGUF files. Of what the parser accepts every tensor must lie in the file, apart from all
// others; what it refuses must only not crash.
#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "base/check.h"
#include "formats/gguf/gguf.h"

namespace quire::formats {
namespace {

void check_tensor(const GgufTensor& tensor) {
  const DTypeBlock block = dtype_block(tensor.dtype);
  unsigned __int128 elements = 1;
  for (const int64_t dim : tensor.shape) {
    QUIRE_CHECK(dim >= 1 && dim <= kMaxDim) << tensor.name;
    elements *= static_cast<uint64_t>(dim);
  }
  QUIRE_CHECK(elements <= INT64_MAX) << tensor.name;
  QUIRE_CHECK(elements % static_cast<unsigned>(block.elements) == 0) << tensor.name;
  QUIRE_CHECK(elements / static_cast<unsigned>(block.elements) *
                  static_cast<unsigned>(block.bytes) ==
              tensor.size)
      << tensor.name;
}

// Where the last tensor ends, in the file.
uint64_t check_accepted(const GgufHeader& header, uint64_t file_size) {
  QUIRE_CHECK(header.data_begin <= file_size);
  std::set<std::string_view> keys, names;
  for (const GgufEntry& entry : header.metadata) QUIRE_CHECK(keys.insert(entry.key).second);
  uint64_t end = header.data_begin;
  for (const GgufTensor& tensor : header.tensors) {
    check_tensor(tensor);
    QUIRE_CHECK(names.insert(tensor.name).second) << tensor.name;
    QUIRE_CHECK(tensor.begin % header.alignment == 0) << tensor.name;
    const uint64_t begin = header.data_begin + tensor.begin;
    QUIRE_CHECK(begin >= end && begin - end < header.alignment) << tensor.name;
    end = begin + tensor.size;
    QUIRE_CHECK(end >= begin && end <= file_size) << tensor.name;
  }
  QUIRE_CHECK(file_size - end < uint64_t{header.alignment} * 2);
  return end;
}

void try_file(std::string_view bytes) {
  const auto header = parse_gguf_header(bytes, bytes.size());
  if (!header) {
    QUIRE_CHECK(!header.error().text.empty());
    QUIRE_CHECK(!header.error().is_short) << "nothing follows the whole file";
    return;
  }
  const uint64_t end = check_accepted(*header, bytes.size());
  if (!header->tensors.empty()) {
    QUIRE_CHECK(!parse_gguf_header(bytes, end - 1)) << "a truncated file is accepted";
  }
  // Data does not matter, and a shorter prefix says that it is one.
  const std::string_view prefix = bytes.substr(0, header->data_begin);
  QUIRE_CHECK(parse_gguf_header(prefix, bytes.size()).ok());
  const auto shorter = parse_gguf_header(prefix.substr(0, 20), bytes.size());
  QUIRE_CHECK(!shorter && shorter.error().is_short);
}

}  // namespace
}  // namespace quire::formats

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  quire::formats::try_file({reinterpret_cast<const char*>(data), size});
  return 0;
}
