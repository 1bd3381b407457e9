#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "formats/gguf/gguf.h"

namespace quire::formats {
namespace {

constexpr uint64_t kMaxKeyBytes = 65'535, kMaxNameBytes = 1024;
constexpr uint64_t kMaxElements = uint64_t{1} << 23;  // of all arrays together
constexpr uint32_t kMaxGgufDims = 4;
constexpr uint32_t kMaxAlignment = 1 << 20;

struct TypeRow {
  uint32_t id;
  std::string_view name;
  std::optional<DType> dtype;  // none: not supported
};

constexpr std::array kTensorTypes = {
    TypeRow{0, "F32", DType::kF32},          TypeRow{1, "F16", DType::kF16},
    TypeRow{2, "Q4_0", DType::kQ4_0},        TypeRow{3, "Q4_1", DType::kQ4_1},
    TypeRow{6, "Q5_0", DType::kQ5_0},        TypeRow{7, "Q5_1", DType::kQ5_1},
    TypeRow{8, "Q8_0", DType::kQ8_0},        TypeRow{9, "Q8_1", std::nullopt},
    TypeRow{10, "Q2_K", DType::kQ2K},        TypeRow{11, "Q3_K", DType::kQ3K},
    TypeRow{12, "Q4_K", DType::kQ4K},        TypeRow{13, "Q5_K", DType::kQ5K},
    TypeRow{14, "Q6_K", DType::kQ6K},        TypeRow{15, "Q8_K", std::nullopt},
    TypeRow{16, "IQ2_XXS", std::nullopt},    TypeRow{17, "IQ2_XS", std::nullopt},
    TypeRow{18, "IQ3_XXS", std::nullopt},    TypeRow{19, "IQ1_S", std::nullopt},
    TypeRow{20, "IQ4_NL", DType::kIq4Nl},    TypeRow{21, "IQ3_S", std::nullopt},
    TypeRow{22, "IQ2_S", std::nullopt},      TypeRow{23, "IQ4_XS", DType::kIq4Xs},
    TypeRow{24, "I8", DType::kI8},           TypeRow{25, "I16", DType::kI16},
    TypeRow{26, "I32", DType::kI32},         TypeRow{27, "I64", DType::kI64},
    TypeRow{28, "F64", DType::kF64},         TypeRow{29, "IQ1_M", std::nullopt},
    TypeRow{30, "BF16", DType::kBF16},       TypeRow{31, "Q4_0_4_4", std::nullopt},
    TypeRow{32, "Q4_0_4_8", std::nullopt},   TypeRow{33, "Q4_0_8_8", std::nullopt},
    TypeRow{34, "TQ1_0", std::nullopt},      TypeRow{35, "TQ2_0", std::nullopt},
    TypeRow{36, "IQ4_NL_4_4", std::nullopt}, TypeRow{37, "IQ4_NL_4_8", std::nullopt},
    TypeRow{38, "IQ4_NL_8_8", std::nullopt}, TypeRow{39, "MXFP4", DType::kMxfp4},
    TypeRow{40, "NVFP4", DType::kNvfp4},
};

// Bytes of an element; 0: strings, whose length is their own, and what is no element.
uint64_t element_bytes(GgufType type) {
  switch (type) {
    case GgufType::kU8:
    case GgufType::kI8:
    case GgufType::kBool:
      return 1;
    case GgufType::kU16:
    case GgufType::kI16:
      return 2;
    case GgufType::kU32:
    case GgufType::kI32:
    case GgufType::kF32:
      return 4;
    case GgufType::kU64:
    case GgufType::kI64:
    case GgufType::kF64:
      return 8;
    case GgufType::kString:
    case GgufType::kArray:
      break;
  }
  return 0;
}

bool is_float(GgufType type) { return type == GgufType::kF32 || type == GgufType::kF64; }

// Reads from the front of a file. A read that fails leaves a problem behind, and so all later ones
// fail.
class Cursor {
 public:
  Cursor(std::string_view prefix, uint64_t file_size) : prefix_(prefix), file_size_(file_size) {}

  uint64_t position() const { return at_; }
  uint64_t bytes_left() const { return file_size_ - at_; }  // of the file
  const std::optional<GgufProblem>& problem() const { return problem_; }
  // What is being read, for messages.
  void set_about(std::string about) { about_ = std::move(about); }

  bool fail(const std::string& why) {
    if (!problem_) problem_ = {.text = about_ + why};
    return false;
  }
  // The same for what is in order, and not supported.
  bool refuse(const std::string& why) {
    fail(why);
    problem_->is_unsupported = true;
    return false;
  }

  // The next bytes; false if there are not so many.
  bool take(uint64_t bytes, std::string_view& out) {
    if (!has(bytes)) return false;
    out = prefix_.substr(at_, bytes);
    at_ += bytes;
    return true;
  }

  bool has(uint64_t bytes) {
    if (problem_) return false;
    if (bytes > bytes_left())
      return fail("the file of " + std::to_string(file_size_) + " bytes ends within it");
    if (bytes > prefix_.size() - at_) {
      problem_ = {.text = about_ + "the header is over the limit of " +
                          std::to_string(kMaxGgufHeader) + " bytes",
                  .is_short = true};
      return false;
    }
    return true;
  }

  // A number of at most 8 bytes; 0 after a problem.
  uint64_t number(uint64_t bytes) {
    std::string_view raw;
    if (!take(bytes, raw)) return 0;
    uint64_t value = 0;
    for (size_t i = raw.size(); i-- > 0;) value = value << 8 | static_cast<unsigned char>(raw[i]);
    return value;
  }

  bool string(uint64_t most, const char* what, std::string& out) {
    const uint64_t length = number(8);
    if (!problem_ && length > most && length <= bytes_left())
      return fail(std::string(what) + " of " + std::to_string(length) +
                  " bytes is over the limit of " + std::to_string(most));
    std::string_view text;
    if (!take(length, text)) return false;
    out = text;
    return true;
  }

 private:
  std::string_view prefix_;
  uint64_t file_size_, at_ = 0;
  std::string about_;
  std::optional<GgufProblem> problem_;
};

int64_t sign_extended(uint64_t value, uint64_t bytes) {
  const unsigned unused = 64 - 8 * static_cast<unsigned>(bytes);
  return static_cast<int64_t>(value << unused) >> unused;
}

bool is_signed(GgufType type) {
  return type == GgufType::kI8 || type == GgufType::kI16 || type == GgufType::kI32 ||
         type == GgufType::kI64;
}

bool read_integer(Cursor& in, GgufType type, int64_t& out) {
  const uint64_t bytes = element_bytes(type), raw = in.number(bytes);
  if (in.problem()) return false;
  out = is_signed(type) ? sign_extended(raw, bytes) : static_cast<int64_t>(raw);
  if (type == GgufType::kU64 && out < 0)
    return in.refuse("the number " + std::to_string(raw) + " is over the limit of 2^63 - 1");
  if (type == GgufType::kBool && raw > 1)
    return in.fail("a bool is " + std::to_string(raw) + ", which is neither 0 nor 1");
  return true;
}

bool read_real(Cursor& in, GgufType type, double& out) {
  const uint64_t raw = in.number(element_bytes(type));
  out = type == GgufType::kF64 ? std::bit_cast<double>(raw)
                               : std::bit_cast<float>(static_cast<uint32_t>(raw));
  return !in.problem();
}

bool read_text(Cursor& in, GgufType, std::string& out) {
  return in.string(kMaxGgufHeader, "a text", out);
}

bool read_type(Cursor& in, bool may_be_array, GgufType& out) {
  const uint64_t id = in.number(4);
  if (in.problem()) return false;
  out = static_cast<GgufType>(id);
  if (id <= static_cast<uint64_t>(GgufType::kF64) && out != GgufType::kArray) return true;
  if (out == GgufType::kArray)
    return may_be_array || in.refuse("an array of arrays is not supported");
  return in.fail("the type " + std::to_string(id) + " is unknown");
}

template <class T>
bool read_elements(Cursor& in, GgufType type, uint64_t count, bool (*read)(Cursor&, GgufType, T&),
                   GgufValue& out) {
  std::vector<T> values(count);
  for (size_t i = 0; i < count; ++i) {
    T value{};
    if (!read(in, type, value)) return false;
    values[i] = std::move(value);
  }
  out.value = std::move(values);
  return true;
}

template <class T>
bool read_one(Cursor& in, GgufType type, bool (*read)(Cursor&, GgufType, T&), GgufValue& out) {
  T value{};
  if (!read(in, type, value)) return false;
  out.value = std::move(value);
  return true;
}

// `elements`: those that the arrays of the file may still have.
bool read_array(Cursor& in, uint64_t& elements, GgufValue& out) {
  if (!read_type(in, /*may_be_array=*/false, out.type)) return false;
  const uint64_t count = in.number(8);
  if (in.problem()) return false;
  const bool is_text = out.type == GgufType::kString;
  const uint64_t each = is_text ? sizeof(uint64_t) : element_bytes(out.type);
  if (count > in.bytes_left() / each)
    return in.fail("an array of " + std::to_string(count) + " elements ends behind the file");
  if (count > elements)
    return in.refuse("the arrays have more than " + std::to_string(kMaxElements) + " elements");
  elements -= count;
  if (!in.has(count * each)) return false;
  if (out.type == GgufType::kString) return read_elements(in, out.type, count, read_text, out);
  if (is_float(out.type)) return read_elements(in, out.type, count, read_real, out);
  return read_elements(in, out.type, count, read_integer, out);
}

bool read_value(Cursor& in, uint64_t& elements, GgufValue& out) {
  if (!read_type(in, /*may_be_array=*/true, out.type)) return false;
  if (out.type == GgufType::kArray) return read_array(in, elements, out);
  if (out.type == GgufType::kString) return read_one(in, out.type, read_text, out);
  if (is_float(out.type)) return read_one(in, out.type, read_real, out);
  return read_one(in, out.type, read_integer, out);
}

// Counts are checked before anything of their size is made.
bool check_count(Cursor& in, const char* what, uint64_t count, uint64_t least_bytes) {
  if (in.problem() || count <= in.bytes_left() / least_bytes) return !in.problem();
  return in.fail("the file of " + std::to_string(in.bytes_left()) + " further bytes cannot hold " +
                 std::to_string(count) + " " + what);
}

// What has no name yet, by its index and what is before it.
std::string place(const char* what, uint64_t index, const std::string& before) {
  const std::string text = std::string(what) + " " + std::to_string(index);
  return index == 0 ? text + ": " : text + ", behind " + quote_name(before) + ": ";
}

bool read_metadata(Cursor& in, uint64_t count, GgufHeader& out) {
  if (!check_count(in, "keys", count, 8 + 4 + 1)) return false;
  std::set<std::string> keys;
  uint64_t elements = kMaxElements;
  for (uint64_t i = 0; i < count; ++i) {
    GgufEntry entry;
    in.set_about(place("key", i, i ? out.metadata.back().key : ""));
    if (!in.string(kMaxKeyBytes, "a key", entry.key)) return false;
    in.set_about("key " + quote_name(entry.key) + ": ");
    if (!keys.insert(entry.key).second) return in.fail("it appears twice");
    if (!read_value(in, elements, entry.value)) return false;
    out.metadata.push_back(std::move(entry));
  }
  return true;
}

bool read_alignment(Cursor& in, GgufHeader& out) {
  for (const GgufEntry& entry : out.metadata) {
    if (entry.key != "general.alignment") continue;
    in.set_about("key \"general.alignment\": ");
    const auto* value = std::get_if<int64_t>(&entry.value.value);
    if (!value || entry.value.type != GgufType::kU32) return in.fail("it must be a u32");
    if (*value < 1 || *value > kMaxAlignment || (*value & (*value - 1)) != 0)
      return in.fail("it is " + std::to_string(*value) + ", not a power of two up to " +
                     std::to_string(kMaxAlignment));
    out.alignment = static_cast<uint32_t>(*value);
  }
  return true;
}

bool read_dtype(Cursor& in, DType& out) {
  const uint64_t id = in.number(4);
  if (in.problem()) return false;
  for (const TypeRow& row : kTensorTypes) {
    if (row.id != id) continue;
    if (row.dtype) return out = *row.dtype, true;
    return in.refuse("its type " + std::string(row.name) +
                     " is not supported; take a file of another quantisation, such as Q4_K_M");
  }
  return in.fail("its type " + std::to_string(id) + " is unknown");
}

// Reads the dims, of which the innermost comes first.
bool read_shape(Cursor& in, GgufTensor& out) {
  const uint64_t dims = in.number(4);
  if (in.problem()) return false;
  if (dims < 1 || dims > kMaxGgufDims)
    return in.fail("it has " + std::to_string(dims) + " dims; supported are 1 to " +
                   std::to_string(kMaxGgufDims));
  for (uint64_t i = 0; i < dims; ++i) {
    const uint64_t dim = in.number(8);
    if (in.problem()) return false;
    if (dim < 1 || dim > static_cast<uint64_t>(kMaxDim))
      return in.fail("a dim is " + std::to_string(dim) + "; supported are 1 to " +
                     std::to_string(kMaxDim));
    out.shape.insert(out.shape.begin(), static_cast<int64_t>(dim));
  }
  return true;
}

bool measure(Cursor& in, GgufTensor& tensor) {
  const DTypeBlock block = dtype_block(tensor.dtype);
  if (tensor.shape.back() % block.elements != 0)
    return in.fail("its rows of " + std::to_string(tensor.shape.back()) +
                   " elements are not made of whole blocks of " + std::to_string(block.elements) +
                   ", which " + std::string(dtype_name(tensor.dtype)) + " has");
  int64_t bytes = tensor.shape.back() / block.elements * block.bytes;
  for (size_t i = 0; i + 1 < tensor.shape.size(); ++i)
    if (__builtin_mul_overflow(bytes, tensor.shape[i], &bytes))
      return in.fail("the product of its dims overflows");
  // Elements are counted in 64 bits further down, and have fewer bits than a block's bytes.
  int64_t elements = 1;
  for (const int64_t dim : tensor.shape)
    if (__builtin_mul_overflow(elements, dim, &elements))
      return in.fail("the product of its dims overflows");
  tensor.size = static_cast<uint64_t>(bytes);
  return true;
}

bool read_tensors(Cursor& in, uint64_t count, GgufHeader& out) {
  in.set_about("");
  if (!check_count(in, "tensors", count, 8 + 4 + 8 + 4 + 8)) return false;
  std::set<std::string> names;
  for (uint64_t i = 0; i < count; ++i) {
    GgufTensor tensor;
    in.set_about(place("tensor", i, i ? out.tensors.back().name : ""));
    if (!in.string(kMaxNameBytes, "a name", tensor.name)) return false;
    in.set_about("tensor " + quote_name(tensor.name) + ": ");
    if (!names.insert(tensor.name).second) return in.fail("it appears twice");
    if (!read_shape(in, tensor) || !read_dtype(in, tensor.dtype)) return false;
    tensor.begin = in.number(8);
    if (in.problem() || !measure(in, tensor)) return false;
    out.tensors.push_back(std::move(tensor));
  }
  in.set_about("");
  return true;
}

uint64_t aligned(uint64_t at, uint64_t alignment) {
  return (at + alignment - 1) / alignment * alignment;  // at is far below 2^64
}

// A tensor must lie in the data, wherever the others are.
bool check_place(Cursor& in, uint64_t data_size, uint32_t alignment, const GgufTensor& tensor) {
  if (tensor.begin > data_size || tensor.size > data_size - tensor.begin)
    return in.fail("its " + std::to_string(tensor.size) + " bytes from byte " +
                   std::to_string(tensor.begin) + " on end behind the " +
                   std::to_string(data_size) + " bytes of data");
  if (tensor.begin % alignment != 0)
    return in.fail("it begins at byte " + std::to_string(tensor.begin) +
                   ", which the alignment of " + std::to_string(alignment) + " does not divide");
  return true;
}

// The sorted tensors must follow each other up to the end of the file.
bool check_places(Cursor& in, uint64_t data_size, const GgufHeader& header) {
  const auto set_about = [&](const GgufTensor& tensor) {
    in.set_about("tensor " + quote_name(tensor.name) + ": ");
  };
  for (const GgufTensor& tensor : header.tensors) {
    set_about(tensor);
    if (!check_place(in, data_size, header.alignment, tensor)) return false;
  }
  uint64_t end = 0;
  const GgufTensor* previous = nullptr;
  for (const GgufTensor& tensor : header.tensors) {
    set_about(tensor);
    const uint64_t expected = aligned(end, header.alignment);
    if (tensor.begin < expected)
      return in.fail("its data overlaps that of tensor " + quote_name(previous->name));
    if (tensor.begin > expected)
      return in.fail("its data begins at byte " + std::to_string(tensor.begin) +
                     ", behind a hole from byte " + std::to_string(end) + " on");
    end = tensor.begin + tensor.size;
    previous = &tensor;
  }
  in.set_about("");
  if (data_size <= aligned(end, header.alignment)) return true;
  return in.fail(std::to_string(data_size - end) +
                 " bytes at the end of the file belong to no tensor");
}

bool read_version(Cursor& in, GgufHeader& out) {
  std::string_view magic;
  if (!in.take(4, magic)) return false;
  if (magic != "GGUF") return in.fail("it does not begin with GGUF");
  const auto version = static_cast<uint32_t>(in.number(4));
  if (in.problem()) return false;
  if (version == 2 || version == 3) return out.version = version, true;
  if ((version & 0xffff) == 0 && version != 0)
    return in.refuse("it is big-endian, which is not supported; take the little-endian file");
  return in.refuse("it has version " + std::to_string(version) +
                   " of the format; supported are 2 and 3");
}

bool read_header(Cursor& in, uint64_t file_size, GgufHeader& out) {
  if (!read_version(in, out)) return false;
  const uint64_t tensors = in.number(8), keys = in.number(8);
  if (!read_metadata(in, keys, out) || !read_alignment(in, out)) return false;
  if (!read_tensors(in, tensors, out)) return false;
  out.data_begin = std::min(aligned(in.position(), out.alignment), file_size);
  std::ranges::sort(out.tensors, [](const GgufTensor& a, const GgufTensor& b) {
    return std::tie(a.begin, a.name) < std::tie(b.begin, b.name);
  });
  return check_places(in, file_size - out.data_begin, out);
}

}  // namespace

uint32_t gguf_type(DType dtype) {
  const auto* row = std::ranges::find(kTensorTypes, std::optional(dtype), &TypeRow::dtype);
  QUIRE_CHECK(row != kTensorTypes.end()) << dtype_name(dtype) << " is no type of GGUF's";
  return row->id;
}

Result<GgufHeader, GgufProblem> parse_gguf_header(std::string_view file_prefix,
                                                  uint64_t file_size) {
  GgufHeader header;
  Cursor in(file_prefix.substr(0, std::min<uint64_t>(file_prefix.size(), file_size)), file_size);
  if (!read_header(in, file_size, header)) return Err{*in.problem()};
  return header;
}

}  // namespace quire::formats
