// What load_model says about checkpoints that do not fit their config: the file, the tensor, the
// remedy.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "base/source_dir.h"
#include "formats/test_files.h"
#include "models/model.h"
#include "models/registry.h"

namespace quire::models {
namespace {

using formats::testing::load_error;
using formats::testing::TempDir;
using testing::AllOf;
using testing::HasSubstr;

struct StoredTensor {
  std::string name, dtype;
  std::vector<int64_t> shape;
  std::string bytes;
};

std::string safetensors(const std::vector<StoredTensor>& tensors) {
  std::string header = "{", data;
  for (const StoredTensor& t : tensors) {
    std::string shape;
    for (const int64_t length : t.shape)
      shape += (shape.empty() ? "" : ",") + std::to_string(length);
    header += (header.size() > 1 ? "," : "") +
              ("\"" + t.name + "\":{\"dtype\":\"" + t.dtype + "\",\"shape\":[" + shape) +
              "],\"data_offsets\":[" + std::to_string(data.size()) + "," +
              std::to_string(data.size() + t.bytes.size()) + "]}";
    data += t.bytes;
  }
  std::string file = formats::testing::safetensors_bytes(header + "}", 0);
  return file + data;
}

// The tiny Qwen3 of the parity tests, changed.
class Load : public testing::Test {
 protected:
  using Change = std::function<void(std::vector<StoredTensor>&)>;

  std::string error_with(const Change& change, const std::string& find = "",
                         const std::string& replace = "") {
    write(change, find, replace);
    return load_error([&] { load(); });
  }

  void write(const Change& change, const std::string& find = "", const std::string& replace = "") {
    const std::string source = source_dir() + "/tests/parity/models/qwen3";
    const auto checkpoint = formats::Checkpoint::open(source);
    std::vector<StoredTensor> tensors;
    for (const std::string& name : checkpoint.names()) {
      const formats::RawTensor& t = *checkpoint.find(name);
      tensors.push_back({name, std::string(formats::dtype_name(t.dtype)), t.shape,
                         formats::testing::bytes_of(t)});
    }
    change(tensors);
    dir_.write("model.safetensors", safetensors(tensors));
    std::string config = formats::read_text_file(source + "/config.json", 1 << 20);
    if (!find.empty()) {
      const size_t at = config.find(find);
      ASSERT_NE(at, std::string::npos) << find;
      config.replace(at, find.size(), replace);
    }
    dir_.write("config.json", config);
  }

  std::unique_ptr<Model> load() {
    return load_model(ops::make_context(1), formats::Checkpoint::open(dir_.path()));
  }

  static StoredTensor& named(std::vector<StoredTensor>& tensors, const std::string& name) {
    for (auto& t : tensors)
      if (t.name == name) return t;
    throw std::runtime_error("no tensor " + name);
  }

  static constexpr const char* kUp = "model.layers.1.mlp.up_proj.weight";
  static void nothing(std::vector<StoredTensor>&) {}
  TempDir dir_;
};

TEST_F(Load, TheUnchangedCopyLoads) {
  write(nothing);
  EXPECT_EQ(load()->vocab_size(), 320);
}

// As models for embeddings are saved: without the head and the name of what it is on.
TEST_F(Load, NamesNeedNoPrefix) {
  write([](auto& tensors) {
    for (StoredTensor& tensor : tensors)
      if (tensor.name.starts_with("model.")) tensor.name.erase(0, 6);
  });
  load();
}

// An untied model that was saved without its head.
TEST_F(Load, AModelForEmbeddingsNeedsNoHead) {
  const std::string tied = "\"tie_word_embeddings\": true",
                    untied = "\"tie_word_embeddings\": false";
  EXPECT_THAT(error_with(nothing, tied, untied),
              AllOf(HasSubstr("lm_head.weight"), HasSubstr("--runner pooling")));
  LoadOptions options;
  options.head_optional = true;
  const auto model =
      load_model(ops::make_context(1), formats::Checkpoint::open(dir_.path()), options);
  EXPECT_FALSE(model->has_head());
  write(nothing);
  EXPECT_TRUE(load()->has_head());
}

TEST_F(Load, AMissingTensorIsNamed) {
  EXPECT_THAT(error_with([](auto& tensors) {
                std::erase_if(tensors, [](const auto& t) { return t.name == kUp; });
              }),
              AllOf(HasSubstr(dir_.path()), HasSubstr(kUp), HasSubstr("missing")));
}

TEST_F(Load, ALeftOverTensorIsNamed) {
  EXPECT_THAT(
      error_with(
          [](auto& tensors) { tensors.push_back({"model.extra.weight", "F32", {1}, "abcd"}); }),
      AllOf(HasSubstr(dir_.path()), HasSubstr("model.extra.weight"), HasSubstr("does not use")));
}

TEST_F(Load, AWrongShapeIsNamed) {
  EXPECT_THAT(error_with([](auto& tensors) {
                auto& t = named(tensors, kUp);
                std::swap(t.shape[0], t.shape[1]);
              }),
              AllOf(HasSubstr("model.safetensors"), HasSubstr(kUp), HasSubstr("[64, 96]"),
                    HasSubstr("[*, 64]")));
}

TEST_F(Load, AWrongRankIsNamed) {
  EXPECT_THAT(error_with([](auto& tensors) {
                auto& t = named(tensors, "model.layers.0.self_attn.q_norm.weight");
                t.shape = {2, t.shape[0] / 2};
              }),
              HasSubstr("model.layers.0.self_attn.q_norm.weight"));
}

TEST_F(Load, AWrongDtypeIsNamed) {
  EXPECT_THAT(
      error_with([](auto& tensors) { named(tensors, kUp).dtype = "I32"; }),
      AllOf(HasSubstr("model.safetensors"), HasSubstr(kUp), HasSubstr("I32"), HasSubstr("BF16")));
}

// Of a matrix as of a norm, while it is read; not at the first answer.
TEST_F(Load, WhatIsNoNumberIsNamed) {
  for (const char* name : {kUp, "model.embed_tokens.weight", "model.norm.weight"})
    for (const uint32_t bits : {0x7f800000u, 0xffc00000u})
      EXPECT_THAT(error_with([&](auto& tensors) {
                    std::string& bytes = named(tensors, name).bytes;
                    std::memcpy(&bytes[bytes.size() - sizeof bits], &bits, sizeof bits);
                  }),
                  AllOf(HasSubstr("model.safetensors"), HasSubstr(name), HasSubstr("NaN")));
}

TEST_F(Load, AnUnknownArchitectureListsTheKnownOnes) {
  EXPECT_THAT(error_with(nothing, "Qwen3ForCausalLM", "GptZeroForCausalLM"),
              AllOf(HasSubstr("config.json"), HasSubstr("GptZeroForCausalLM"),
                    HasSubstr("Qwen3ForCausalLM"), HasSubstr("Phi3ForCausalLM")));
}

TEST_F(Load, AConfigOfAnotherSizeIsCaught) {
  EXPECT_THAT(error_with(nothing, "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3"),
              AllOf(HasSubstr("model.layers.2."), HasSubstr("missing")));
  EXPECT_THAT(error_with(nothing, "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1"),
              AllOf(HasSubstr("model.layers.1."), HasSubstr("does not use")));
}

TEST_F(Load, AnUnsupportedActivationIsNamed) {
  EXPECT_THAT(error_with(nothing, "\"hidden_act\": \"silu\"", "\"hidden_act\": \"mish\""),
              AllOf(HasSubstr("config.json"), HasSubstr("hidden_act"), HasSubstr("mish")));
}

}  // namespace
}  // namespace quire::models
