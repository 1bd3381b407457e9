#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "formats/checkpoint.h"
#include "formats/quantize_checkpoint.h"
#include "formats/read_float.h"
#include "formats/safetensors_writer.h"
#include "formats/test_files.h"
#include "golden.h"
#include "ops/runtime/test_util.h"
#include "runner.h"

// Every tiny checkpoint that is not quantised, by way of `quire quantize`. Its matrices become
// such as 8 bits hold exactly, so the model must say the same before and after: an expert in
// another's place, gate and up exchanged or a matrix transposed would say something else.
namespace quire::parity {
namespace {

constexpr formats::QuantisedFormat kFormat{.bits = 8, .group_size = 32};

// The values of a matrix as integers of 8 bits times 2^-9. Each run of a group along either axis
// has the least and the largest: then scale and bias are 2^-9 and -2^-2, by mx.quantize's rule.
// For float32 and bfloat16.
std::vector<std::byte> exact_values(const formats::RawTensor& tensor) {
  std::vector<std::byte> bytes = tensor.read_all();
  const int64_t columns = tensor.shape.back(), size = formats::dtype_size(tensor.dtype);
  for (int64_t i = 0; i < tensor.num_elements(); ++i) {
    const int64_t place = (i / columns + i % columns) % kFormat.group_size;
    float value = std::round(formats::read_float(bytes.data(), tensor.dtype, i) * 512);
    value = place == 0 ? -128.0f : place == 16 ? 127.0f : std::clamp(value, -128.0f, 127.0f);
    const uint32_t bits = std::bit_cast<uint32_t>(value / 512) >> (8 * (4 - size));  // exact
    std::memcpy(bytes.data() + i * size, &bits, static_cast<size_t>(size));
  }
  return bytes;
}

void write_exact(const formats::Checkpoint& source, const std::string& folder) {
  std::filesystem::create_directory(folder);
  std::filesystem::copy_file(source.dir() + "/config.json", folder + "/config.json");
  std::vector<formats::TensorPlan> plans;
  for (const std::string& name : source.names())
    plans.push_back({name, source.find(name)->dtype, source.find(name)->shape});
  formats::SafetensorsWriter writer(folder + "/model.safetensors", plans, {});
  for (const std::string& name : source.names()) {
    const formats::RawTensor& tensor = *source.find(name);
    writer.append(tensor.shape.size() < 2 ? tensor.read_all() : exact_values(tensor));
  }
  writer.finish();
}

// What the model says to the prompts of the golden answers.
std::vector<Answer> answers_of(const std::string& folder, const Golden& golden) {
  std::vector<Job> jobs;
  for (const GoldenCase& c : golden.cases)
    jobs.push_back({.prompt = c.prompt, .max_tokens = 4, .logprobs = 0, .prompt_logprobs = 0});
  return run_engine({.checkpoint = folder}, jobs, ops::make_context(2));
}

double difference(const std::vector<engine::TokenLogprob>& some,
                  const std::vector<engine::TokenLogprob>& others) {
  if (some.size() != others.size()) return HUGE_VAL;
  double worst = 0;
  for (size_t i = 0; i < some.size(); ++i) {
    const double distance = std::abs(some[i].logprob - others[i].logprob);
    worst = std::max(worst, distance >= 0 ? distance : HUGE_VAL);
  }
  return worst;
}

// Tensors of more than one axis that are dense though a group divides their rows.
std::vector<std::string> dense_matrices(const formats::Checkpoint& checkpoint) {
  std::vector<std::string> names;
  for (const std::string& name : checkpoint.names()) {
    const formats::RawTensor& tensor = *checkpoint.find(name);
    const bool is_part = name.ends_with(".scales") || name.ends_with(".biases");
    const bool is_vector = tensor.shape.size() < 2 || name.ends_with("_proj.bias");
    const bool is_ignored = name.starts_with("multi_modal_projector.");
    if (is_vector || is_part || is_ignored || tensor.dtype == formats::DType::kU32) continue;
    if (tensor.shape.back() % kFormat.group_size == 0) names.push_back(name);
  }
  return names;
}

class ParityOfQuantised : public ::testing::TestWithParam<std::string> {};

TEST_P(ParityOfQuantised, SaysTheSame) {
  if (ops::testing::on_cuda()) GTEST_SKIP() << "the file is the same on every device";
  const formats::testing::TempDir dir;
  const std::string exact = dir.path() + "/exact", quantised = dir.path() + "/quantised";
  write_exact(formats::Checkpoint::open(checkpoint_dir(GetParam())), exact);
  ThreadPool pool(2);
  formats::quantize_checkpoint(exact, quantised, {.format = kFormat}, pool);
  EXPECT_EQ(dense_matrices(formats::Checkpoint::open(quantised)), std::vector<std::string>{});
  const Golden golden = read_golden(GetParam());
  const auto before = answers_of(exact, golden), after = answers_of(quantised, golden);
  double worst = 0;
  for (size_t i = 0; i < before.size(); ++i) {
    ASSERT_EQ(before[i].finish, engine::FinishReason::kLength) << before[i].error;
    ASSERT_EQ(after[i].finish, engine::FinishReason::kLength) << after[i].error;
    EXPECT_EQ(after[i].tokens, before[i].tokens);
    worst = std::max({worst, difference(before[i].logprobs, after[i].logprobs),
                      difference(before[i].prompt_logprobs, after[i].prompt_logprobs)});
  }
  printf("%s: logprobs within %.1e\n", GetParam().c_str(), worst);
  EXPECT_LE(worst, 1e-4);
}

std::vector<std::string> dense_names() {
  auto names = checkpoint_names();
  std::erase_if(names, [](const std::string& name) {
    const auto checkpoint = formats::Checkpoint::open(checkpoint_dir(name));
    return !std::filesystem::is_directory(checkpoint.dir()) ||
           !checkpoint.config().quantization.is_null();
  });
  return names;
}

const auto test_name = [](const auto& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
};
INSTANTIATE_TEST_SUITE_P(Checkpoints, ParityOfQuantised, ::testing::ValuesIn(dense_names()),
                         test_name);

}  // namespace
}  // namespace quire::parity
