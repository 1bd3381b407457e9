// Hostile GGUF files. Of what the parser accepts every tensor must lie in the file, apart from all
// others. As a model it gives a config, tensors that can be read and texts that are JSON, or an
// error that names the file. What is refused must only not crash.
#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/error.h"
#include "base/json.h"
#include "cpu_timer.h"
#include "formats/checkpoint.h"
#include "formats/gguf/gguf.h"
#include "temporary_dir.h"

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

constexpr double kOpenMilliseconds = 5'000;

void check_config(const HfConfig& c) {
  QUIRE_CHECK(c.num_hidden_layers > 0 && c.num_hidden_layers < 10000);
  QUIRE_CHECK(c.head_dim > 0 && c.hidden_size > 0 && c.vocab_size > 0);
  QUIRE_CHECK(c.num_attention_heads % c.num_key_value_heads == 0);
  QUIRE_CHECK(c.rope.theta > 0 && c.rope.factor > 0);
}

void check_tensors(const Checkpoint& checkpoint, uint64_t file_size) {
  uint64_t bytes = 0;
  for (const std::string& name : checkpoint.names()) {
    const RawTensor& tensor = *checkpoint.find(name);
    QUIRE_CHECK(!checkpoint.name_in_file(name).empty());
    QUIRE_CHECK(tensor.read_all().size() == tensor.size) << name;
    bytes += tensor.size;
  }
  QUIRE_CHECK(bytes == checkpoint.total_bytes() && bytes <= file_size);
}

void check_texts(const Checkpoint& checkpoint) {
  const ModelFiles files = checkpoint.text_files();
  QUIRE_CHECK(files.are_made);
  for (const std::string& text : {files.tokenizer_json, files.tokenizer_config_json}) {
    const auto parsed = parse_json(text);
    QUIRE_CHECK(parsed.ok() && parsed->is_object()) << text;
  }
}

// What follows a header that is in order: the translator, ends of answers, the tokenizer's files.
void try_model(std::string_view bytes) {
  static const fuzz::TemporaryDir dir;
  dir.write("m.gguf", bytes);
  const fuzz::CpuTimer timer;
  try {
    const Checkpoint checkpoint = Checkpoint::open(dir.path() / "m.gguf");
    check_config(checkpoint.config());
    for (const int64_t id : checkpoint.eos_token_ids()) QUIRE_CHECK(id >= 0) << id;
    check_tensors(checkpoint, bytes.size());
    check_texts(checkpoint);
  } catch (const LoadError& error) {
    QUIRE_CHECK(std::string_view(error.what()).find("m.gguf") != std::string_view::npos)
        << error.what();
  }
  QUIRE_CHECK(timer.milliseconds() < kOpenMilliseconds) << timer.milliseconds();
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
  try_model(bytes);
}

}  // namespace
}  // namespace quire::formats

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  quire::formats::try_file({reinterpret_cast<const char*>(data), size});
  return 0;
}
