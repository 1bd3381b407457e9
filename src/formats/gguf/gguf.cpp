#include "formats/gguf/gguf.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <utility>

#include "base/error.h"

namespace quire::formats {
namespace {

constexpr const char* kRemedy =
    ". The file is incomplete, damaged or not a GGUF file: download it again or convert the model "
    "anew";
constexpr uint64_t kFirstPrefix = uint64_t{1} << 20;
constexpr int64_t kMaxParts = 99'999;  // five digits

// Headers do not say how long they are: what is read grows until it is enough.
GgufHeader read_header(const DataFile& file) {
  for (uint64_t length = kFirstPrefix;; length *= 4) {
    std::string prefix(std::min({length, file.size(), kMaxGgufHeader}), '\0');
    file.read(0, std::as_writable_bytes(std::span(prefix)));
    auto header = parse_gguf_header(prefix, file.size());
    if (header) return *std::move(header);
    const GgufProblem& problem = header.error();
    if (problem.is_short && length < kMaxGgufHeader) continue;
    const bool may_be_whole = problem.is_short || problem.is_unsupported;
    throw LoadError(file.path() + ": " + problem.text + (may_be_whole ? "" : kRemedy));
  }
}

// The integer of a key, or nothing if there is none.
std::optional<int64_t> find_number(const std::vector<GgufEntry>& metadata, std::string_view key,
                                   const std::string& file) {
  for (const GgufEntry& entry : metadata) {
    if (entry.key != key) continue;
    if (const auto* number = std::get_if<int64_t>(&entry.value.value)) return *number;
    throw LoadError(file + ": key " + quote_name(key) + ": it must be an integer" + kRemedy);
  }
  return std::nullopt;
}

// "-00002-of-00003.gguf"
std::string part_ending(int64_t part, int64_t count) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "-%05lld-of-%05lld.gguf", static_cast<long long>(part),
                static_cast<long long>(count));
  return text.data();
}

// Throws LoadError if the header is of another part of another model.
void check_part(const GgufHeader& header, const std::string& path, int64_t part, int64_t count) {
  const auto says = [&](std::string_view key, int64_t wanted) {
    const auto found = find_number(header.metadata, key, path);
    if (found == wanted) return;
    throw LoadError(path + ": key " + quote_name(key) + " is " +
                    (found ? std::to_string(*found) : "missing") + ", not " +
                    std::to_string(wanted) + " as its name says; download the model again");
  };
  says("split.no", part - 1);
  says("split.count", count);
}

}  // namespace

bool is_gguf_file(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return false;
  std::array<char, 4> magic{};
  std::ifstream(path, std::ios::binary).read(magic.data(), magic.size());
  return std::string_view(magic.data(), magic.size()) == "GGUF";
}

GgufHeader GgufModel::add_file(const std::string& path) {
  const auto file = DataFile::open(path);
  GgufHeader header = read_header(*file);
  for (GgufTensor& tensor : header.tensors)
    tensors_.push_back({.name = tensor.name,
                        .dtype = tensor.dtype,
                        .shape = std::move(tensor.shape),
                        .source = file,
                        .begin = header.data_begin + tensor.begin,
                        .size = tensor.size});
  files_.push_back(file);
  return header;
}

void GgufModel::add_other_parts(const std::string& path) {
  // Of a file that llama-gguf-split merged it is 0.
  const int64_t count = find_number(metadata_, "split.count", path).value_or(1);
  if (count == 0 || count == 1) return;
  if (count < 0 || count > kMaxParts)
    throw LoadError(path + ": key \"split.count\" is " + std::to_string(count) + kRemedy);
  const int64_t part = find_number(metadata_, "split.no", path).value_or(0) + 1;
  const std::string ending = part_ending(1, count);
  if (part != 1)
    throw LoadError(path + ": this is part " + std::to_string(part) + " of " +
                    std::to_string(count) + "; give the first one, whose name ends with " + ending);
  if (!path.ends_with(ending))
    throw LoadError(path + ": this is the first of " + std::to_string(count) +
                    " files, so its name must end with " + ending +
                    " and the others must lie beside it");
  const std::string stem = path.substr(0, path.size() - ending.size());
  for (int64_t i = 2; i <= count; ++i) {
    const std::string other = stem + part_ending(i, count);
    std::error_code ignored;
    if (!std::filesystem::exists(other, ignored))
      throw LoadError(other + ": the file is missing, but " + path + " is the first of " +
                      std::to_string(count) + "; download the model again");
    check_part(add_file(other), other, i, count);
  }
  const auto all = find_number(metadata_, "split.tensors.count", path);
  if (all && *all != static_cast<int64_t>(tensors_.size()))
    throw LoadError(path + ": key \"split.tensors.count\" is " + std::to_string(*all) +
                    ", but all parts have " + std::to_string(tensors_.size()) +
                    " tensors; download the model again");
}

GgufModel GgufModel::open(const std::string& path) {
  GgufModel out;
  out.metadata_ = out.add_file(path).metadata;
  out.add_other_parts(path);
  std::map<std::string_view, const RawTensor*> names;
  for (const RawTensor& tensor : out.tensors_) {
    const auto [other, is_new] = names.emplace(tensor.name, &tensor);
    if (is_new) continue;
    throw LoadError("tensor " + quote_name(tensor.name) + " is in two files, " +
                    other->second->file() + " and " + tensor.file() + "; download the model again");
  }
  return out;
}

}  // namespace quire::formats
