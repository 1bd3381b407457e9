// Damaged GGUF files: each is refused with a message that names the file and the key or tensor, and
// none takes long or much memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>

#include "formats/checkpoint.h"
#include "formats/gguf/test_gguf.h"
#include "formats/test_files.h"

namespace quire::formats {
namespace {

using ::testing::AllOf;
using testing::gguf_number;
using testing::gguf_string;
using testing::GgufBytes;
using ::testing::HasSubstr;
using testing::load_error;
using testing::TempDir;

constexpr uint32_t kU32 = 4, kI32 = 5, kF32 = 6, kBool = 7, kText = 8, kArray = 9, kU64 = 10;
constexpr uint64_t kNone = UINT64_MAX;  // as an offset: behind the tensor before

// A value of the metadata as a file has it.
struct Value {
  uint32_t type = kU32;
  std::string bytes;
};
Value integer(uint32_t x) { return {kU32, gguf_number(x, 4)}; }
Value negative() { return {kI32, gguf_number(0xffffffff, 4)}; }
Value huge() { return {kU64, gguf_number(uint64_t{1} << 62, 8)}; }
Value real(float x) { return {kF32, gguf_number(std::bit_cast<uint32_t>(x), 4)}; }
Value yes() { return {kBool, "\1"}; }
Value text(const std::string& x) { return {kText, gguf_string(x)}; }
Value array(uint32_t type, size_t count, const std::string& bytes) {
  return {kArray, gguf_number(type, 4) + gguf_number(count, 8) + bytes};
}
Value integers(const std::vector<uint32_t>& all) {
  std::string bytes;
  for (const uint32_t x : all) bytes += gguf_number(x, 4);
  return array(kI32, all.size(), bytes);
}
Value reals(size_t count) { return array(kF32, count, std::string(4 * count, '\0')); }
Value texts(const std::vector<std::string>& all) {
  std::string bytes;
  for (const std::string& x : all) bytes += gguf_string(x);
  return array(kText, all.size(), bytes);
}

struct Tensor {
  std::vector<uint64_t> dims;  // the innermost first
  uint32_t type = 0;           // F32
  uint64_t offset = kNone;
};

// A whole model of one layer, whose keys and tensors can be changed.
struct Model {
  std::map<std::string, Value> keys;
  std::map<std::string, Tensor> tensors;
  size_t data = 0;  // bytes; filled in by bytes() if it is 0

  Model() {
    const std::string arch = "llama.";
    keys["general.architecture"] = text("llama");
    keys["general.sampling.temp"] = real(0.5f);
    keys[arch + "block_count"] = integer(1);
    keys[arch + "context_length"] = integer(128);
    keys[arch + "embedding_length"] = integer(16);
    keys[arch + "feed_forward_length"] = integer(24);
    keys[arch + "attention.head_count"] = integer(2);
    keys[arch + "attention.head_count_kv"] = integer(1);
    keys[arch + "attention.key_length"] = integer(8);
    keys[arch + "attention.value_length"] = integer(8);
    keys[arch + "attention.layer_norm_rms_epsilon"] = real(0.25f);
    keys[arch + "rope.dimension_count"] = integer(8);
    keys[arch + "rope.freq_base"] = real(10000);
    const std::string tokenizer = "tokenizer.ggml.";
    keys[tokenizer + "model"] = text("gpt2");
    keys[tokenizer + "pre"] = text("gpt-2");
    keys[tokenizer + "tokens"] = texts({"a", "b", "ab", "<s>", "</s>", "c"});
    keys[tokenizer + "token_type"] = integers({1, 1, 1, 3, 3, 1});
    keys[tokenizer + "merges"] = texts({"a b"});
    keys[tokenizer + "bos_token_id"] = integer(3);
    keys[tokenizer + "eos_token_id"] = integer(4);
    keys["tokenizer.chat_template"] = text("{{ messages }}");
    tensors["token_embd.weight"] = {.dims = {16, 6}};
    tensors["output_norm.weight"] = {.dims = {16}};
    for (const char* norm : {"attn_norm", "ffn_norm"}) layer(norm) = {.dims = {16}};
    for (const char* square : {"attn_q", "attn_output"}) layer(square) = {.dims = {16, 16}};
    for (const char* narrow : {"attn_k", "attn_v"}) layer(narrow) = {.dims = {16, 8}};
    for (const char* up : {"ffn_gate", "ffn_up"}) layer(up) = {.dims = {16, 24}};
    layer("ffn_down") = {.dims = {24, 16}};
  }

  Tensor& layer(const std::string& part) { return tensors["blk.0." + part + ".weight"]; }

  std::string bytes() const {
    GgufBytes out;
    for (const auto& [key, value] : keys) out.value(key, value.type, value.bytes);
    uint64_t next = 0;
    for (const auto& [name, tensor] : tensors) {
      out.info(name, tensor.dims, tensor.type, tensor.offset == kNone ? next : tensor.offset);
      uint64_t size = 4;
      for (const uint64_t dim : tensor.dims) size *= std::min<uint64_t>(dim, 32);
      next += (size + 31) / 32 * 32;
    }
    out.data(std::string(data ? data : static_cast<size_t>(next), '\0'));
    return out.bytes();
  }
};

// All that is read of a file before its weights are.
void read(const std::string& path) {
  const Checkpoint checkpoint = Checkpoint::open(path);
  checkpoint.text_files();
  checkpoint.eos_token_ids();
}

class DamagedGguf : public ::testing::Test {
 protected:
  // A new file: one that is written over goes to the disk at once.
  std::string write(const std::string& bytes) {
    std::filesystem::remove(dir_.path() + "/m.gguf");
    return dir_.write("m.gguf", bytes);
  }
  void refuse(const std::string& bytes, const std::string& name) {
    SCOPED_TRACE(name + ", case " + std::to_string(++cases_));
    const std::string path = write(bytes);
    EXPECT_THAT(load_error([&] { read(path); }), AllOf(HasSubstr("m.gguf"), HasSubstr(name)));
  }
  void refuse_key(const std::string& key, const Value& value) {
    Model model;
    model.keys[key] = value;
    refuse(model.bytes(), "\"" + key + "\"");
  }
  void refuse_missing(const std::string& key) {
    Model model;
    model.keys.erase(key);
    refuse(model.bytes(), "\"" + key + "\"");
  }
  void refuse_tensor(const std::string& name, const Tensor& tensor) {
    Model model;
    const uint64_t offset = tensor.offset;
    model.tensors[name] = tensor;
    model.tensors[name].offset = offset;
    refuse(model.bytes(), "tensor \"" + name + "\"");
  }

  TempDir dir_;
  int cases_ = 0;
};

TEST_F(DamagedGguf, TheWholeFileIsRead) { read(write(Model().bytes())); }

TEST_F(DamagedGguf, CutFiles) {
  const std::string whole = Model().bytes();
  for (size_t i = 0; i < 32; ++i) refuse(whole.substr(0, whole.size() * i / 32), "");
}

TEST_F(DamagedGguf, SizesOfTheWrongKindOrRange) {
  for (const char* name :
       {"block_count", "context_length", "embedding_length", "feed_forward_length",
        "attention.head_count", "attention.head_count_kv", "attention.key_length",
        "attention.value_length", "rope.dimension_count"})
    for (const Value& value : {text("8"), real(8), yes(), negative(), huge(), texts({"8"}),
                               integers({}), integers({1, 2}), reals(1)})
      refuse_key(std::string("llama.") + name, value);
}

TEST_F(DamagedGguf, RealNumbersOfTheWrongKindOrRange) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const char* key : {"llama.attention.layer_norm_rms_epsilon", "llama.rope.freq_base",
                          "llama.rope.scaling.factor", "general.sampling.temp",
                          "general.sampling.top_p", "general.sampling.min_p"})
    for (const Value& value : {text("1"), integer(1), yes(), reals(1), texts({"1"}), real(kNan),
                               real(kInfinity), real(-1)})
      refuse_key(key, value);
  for (const char* key : {"llama.attention.layer_norm_rms_epsilon", "llama.rope.freq_base",
                          "llama.rope.scaling.factor"})
    for (const float denormal : {1e-45f, 1e-39f}) refuse_key(key, real(denormal));
}

TEST_F(DamagedGguf, KeysThatAreMissing) {
  for (const char* key : {"general.architecture", "llama.block_count", "llama.context_length",
                          "llama.embedding_length", "llama.attention.head_count",
                          "llama.attention.layer_norm_rms_epsilon", "tokenizer.ggml.model",
                          "tokenizer.ggml.pre", "tokenizer.ggml.tokens", "tokenizer.ggml.merges"})
    refuse_missing(key);
}

TEST_F(DamagedGguf, TextsOfTheWrongKind) {
  for (const char* key : {"general.architecture", "tokenizer.ggml.model", "tokenizer.ggml.pre",
                          "tokenizer.chat_template", "llama.rope.scaling.type"})
    for (const Value& value : {integer(1), yes(), integers({1}), texts({"llama"})})
      refuse_key(key, value);
  for (const char* key : {"general.architecture", "tokenizer.ggml.model", "tokenizer.ggml.pre",
                          "llama.rope.scaling.type"})
    for (const Value& value : {text(""), text("\xff\n"), text(std::string(5000, 'x'))})
      refuse_key(key, value);
}

TEST_F(DamagedGguf, Vocabularies) {
  const std::string prefix = "tokenizer.ggml.";
  const std::vector<std::pair<const char*, std::vector<Value>>> cases = {
      {"tokens", {texts({}), text("a"), integers({1, 2, 3, 4, 5, 6}), reals(6)}},
      {"token_type",
       {integers({}), integers({1}), integers({1, 1, 1, 3, 3, 1, 1}), reals(6), integer(1),
        texts({"1", "1", "1", "3", "3", "1"}), integers({1, 1, 1, 3, 3, 7}),
        integers({1, 1, 1, 3, 3, 0xffffffff})}},
      {"merges",
       {text("a b"), integers({1}), texts({"ab"}), texts({"a "}), texts({""}), texts({"a z"}),
        texts({"z b"}), texts({"b a"})}},
      {"bos_token_id", {integer(6), huge(), text("<s>"), real(3), yes()}},
      {"eos_token_id", {integer(6), huge(), text("<s>"), real(3), yes()}},
      {"eot_token_id", {integer(6), text("<s>")}},
      {"padding_token_id", {integer(6), text("<s>")}},
      {"add_bos_token", {integer(1), text("true"), real(1)}},
      {"add_eos_token", {integer(1), text("true"), real(1)}}};
  for (const auto& [name, values] : cases)
    for (const Value& value : values) refuse_key(prefix + name, value);
  // Of fewer tokens than types, the types are named.
  Model model;
  model.keys[prefix + "tokens"] = texts({"a"});
  refuse(model.bytes(), "\"tokenizer.ggml.token_type\" has 6 elements");
}

TEST_F(DamagedGguf, ScoresOfSentencePiece) {
  for (const Value& value : {reals(0), reals(5), reals(7), texts({"1"}), integer(1)}) {
    Model model;
    model.keys.erase("tokenizer.ggml.merges");
    model.keys["tokenizer.ggml.model"] = text("llama");
    model.keys["tokenizer.ggml.scores"] = value;
    refuse(model.bytes(), "\"tokenizer.ggml.scores\"");
  }
}

TEST_F(DamagedGguf, LengthsThatLie) {
  for (const uint64_t length :
       {uint64_t{1} << 20, uint64_t{1} << 32, uint64_t{1} << 63, UINT64_MAX - 7, UINT64_MAX}) {
    const std::string number = gguf_number(length, 8);
    refuse_key("tokenizer.chat_template", {kText, number + "abc"});
    for (const uint32_t type : {0u, kU32, kBool, kText, kU64})
      refuse_key("tokenizer.ggml.tokens", {kArray, gguf_number(type, 4) + number + "abc"});
    refuse_key("tokenizer.ggml.merges", array(kText, 1, number + "abc"));
    std::string bytes = Model().bytes();
    refuse(bytes.replace(8, 8, number), "tensors");
    bytes = Model().bytes();
    refuse(bytes.replace(16, 8, number), "keys");
    bytes = Model().bytes();
    refuse(bytes.replace(24, 8, number), "key 0");
  }
  for (const uint32_t type : {13u, 255u, UINT32_MAX}) {
    refuse_key("llama.block_count", {type, gguf_number(1, 8)});
    refuse_key("tokenizer.ggml.tokens", array(type, 1, gguf_number(1, 8)));
  }
  refuse_key("tokenizer.ggml.tokens", array(kArray, 1, array(kText, 0, "").bytes));
}

TEST_F(DamagedGguf, Tensors) {
  const std::string name = "blk.0.attn_q.weight";
  for (const uint64_t dim : {uint64_t{0}, uint64_t{1} << 31, uint64_t{1} << 40, UINT64_MAX})
    for (const bool innermost : {false, true})
      refuse_tensor(name, {.dims = innermost ? std::vector{dim, uint64_t{16}}
                                             : std::vector{uint64_t{16}, dim}});
  refuse_tensor(name, {.dims = {}});
  refuse_tensor(name, {.dims = {16, 16, 1, 1, 1}});
  refuse_tensor(name, {.dims = {INT32_MAX, INT32_MAX, INT32_MAX, INT32_MAX}});
  for (const uint32_t type : {4u, 5u, 9u, 15u, 16u, 31u, 41u, UINT32_MAX})  // unknown, unsupported
    refuse_tensor(name, {.dims = {16, 16}, .type = type});
  for (const uint32_t type : {2u, 8u, 12u, 39u})  // blocks that rows of 16 are not made of
    refuse_tensor(name, {.dims = {16, 16}, .type = type});
  for (const uint64_t offset : {uint64_t{1}, uint64_t{16}, uint64_t{1} << 40, UINT64_MAX - 31})
    refuse_tensor(name, {.dims = {16, 16}, .offset = offset});
  // On top of others, and too long.
  for (const uint64_t offset : {uint64_t{0}, uint64_t{64}}) {
    Model model;
    model.data = 1 << 14;
    model.tensors[name].offset = offset;
    refuse(model.bytes(), "overlaps");
  }
  refuse_tensor("token_embd.weight", {.dims = {16, 600}});
  refuse_tensor("rope_freqs.weight", {.dims = {4, 1}});
  refuse_tensor("rope_freqs.weight", {.dims = {4}, .type = 30});
  Model model;
  model.tensors["token_embd.weight"] = {.dims = {16}};
  refuse(model.bytes(), "no matrix token_embd.weight");
  model.tensors.erase("token_embd.weight");
  refuse(model.bytes(), "token_embd.weight");
}

TEST_F(DamagedGguf, Alignments) {
  for (const Value& value : {integer(0), integer(3), integer(1u << 30), real(32), text("32"),
                             integers({32}), negative(), yes()})
    refuse_key("general.alignment", value);
  Model model;  // tensors lie at multiples of 32
  model.keys["general.alignment"] = integer(4096);
  refuse(model.bytes(), "tensor \"");
}

TEST_F(DamagedGguf, KeysThatNobodyKnows) {
  for (const char* name : {"a", "attention.scale_new", "rope.scaling.new", "expert_new"})
    refuse_key(std::string("llama.") + name, integer(1));
}

// Parts of a split model: each says which it is and of how many.
TEST_F(DamagedGguf, Parts) {
  const auto part = [](const Value& number, const Value& count) {
    Model model;
    model.keys["split.no"] = number;
    model.keys["split.count"] = count;
    return model;
  };
  const auto refuse_parts = [&](const Model& first, const std::string& second,
                                const std::string& name) {
    SCOPED_TRACE(name);
    const std::string path = dir_.write("m-00001-of-00002.gguf", first.bytes());
    dir_.write("m-00002-of-00002.gguf", second);
    EXPECT_THAT(load_error([&] { read(path); }), AllOf(HasSubstr("m-0000"), HasSubstr(name)));
  };
  const Model good = part(integer(0), integer(2));
  Model other;  // another part's tensors
  other.tensors = {{"blk.0.other.weight", {.dims = {16}}}};
  for (const auto& [number, count, named] : std::vector<std::tuple<Value, Value, std::string>>{
           {integer(0), integer(2), "split.no"},
           {integer(2), integer(2), "split.no"},
           {text("1"), integer(2), "split.no"},
           {integer(1), integer(3), "split.count"},
           {integer(1), integer(1), "split.count"},
           {integer(1), text("2"), "split.count"},
           {integer(1), integers({2}), "split.count"}}) {
    Model second = other;
    second.keys = part(number, count).keys;
    refuse_parts(good, second.bytes(), named);
  }
  refuse_parts(good, "", "m-00002-of-00002.gguf");
  refuse_parts(good, Model().bytes(), "split.no");
  refuse_parts(good, good.bytes().substr(0, 4000), "m-00002-of-00002.gguf");
  refuse_parts(good, part(integer(1), integer(2)).bytes(), "is in two files");
  for (const Value& count : {integer(3), negative(), huge(), text("2"), real(2)})
    refuse_parts(part(integer(0), count), other.bytes(),
                 count.type == kU32 && count.bytes[0] == 3 ? "of 3 files" : "split.count");
  for (const Value& number : {integer(1), integer(7), text("0"), negative(), huge()})
    refuse_parts(part(number, integer(2)), other.bytes(), number.type == kText ? "split.no" : "");
  Model counted = good;
  counted.keys["split.tensors.count"] = integer(99);
  other.keys = part(integer(1), integer(2)).keys;
  refuse_parts(counted, other.bytes(), "split.tensors.count");
}

// Any byte of the header may be anything: the file is read or refused, and little memory is used.
TEST_F(DamagedGguf, EveryByte) {
  const auto peak = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss >> 10;  // MiB
  };
  const std::string whole = Model().bytes();
  const int64_t before = peak();
  int refused = 0;
  for (size_t at = 0; at < whole.find("output_norm.weight") + 50; ++at) {
    constexpr int kChanges[] = {0x01, 0x80, 0xff};
    std::string bytes = whole;
    bytes[at] = static_cast<char>(bytes[at] ^ kChanges[at % 3]);
    const std::string path = write(bytes);
    try {
      read(path);
    } catch (const LoadError& error) {
      ++refused;
      EXPECT_THAT(error.what(), HasSubstr("m.gguf")) << at;
    }
  }
  EXPECT_GT(refused, 500);
  EXPECT_LT(peak() - before, 512);
}

}  // namespace
}  // namespace quire::formats
