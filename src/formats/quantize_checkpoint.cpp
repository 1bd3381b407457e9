#include "formats/quantize_checkpoint.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>

#include "base/error.h"
#include "formats/affine_quantize.h"
#include "formats/block_float_quantize.h"
#include "formats/checkpoint.h"
#include "formats/pending_folder.h"
#include "formats/quantize_plan.h"
#include "formats/read_float.h"
#include "formats/safetensors_writer.h"

namespace quire::formats {
namespace {

namespace fs = std::filesystem;

bool is_float(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

void check_source(const Checkpoint& source) {
  if (!fs::is_directory(source.dir()))
    throw LoadError(source.dir() +
                    ": is a GGUF file; `quire quantize` takes a Hugging Face model folder");
  if (!source.config().quantization.is_null()) {
    throw LoadError(source.dir() +
                    ": the model is quantised already; start from the unquantised checkpoint");
  }
  for (const std::string& name : source.names()) {
    const RawTensor& tensor = *source.find(name);
    if (is_float(tensor.dtype) && !name.ends_with(".scales")) continue;
    if (tensor.shape.size() < 2 && tensor.dtype != DType::kF4) continue;
    throw LoadError(tensor.file() + ": tensor " + quote_name(name) + " is " +
                    std::string(dtype_name(tensor.dtype)) +
                    "; weights to quantise are BF16, F16 or F32: start from such a checkpoint");
  }
}

using Shards = std::vector<std::vector<QuantizeItem>>;

Shards split(std::vector<QuantizeItem> items, uint64_t max_bytes) {
  Shards shards(1);
  uint64_t bytes = 0;
  for (QuantizeItem& item : items) {
    if (!shards.back().empty() && bytes + item.bytes() > max_bytes) {
      shards.emplace_back();
      bytes = 0;
    }
    bytes += item.bytes();
    shards.back().push_back(std::move(item));
  }
  return shards;
}

std::string shard_name(size_t index, size_t count) {
  if (count == 1) return "model.safetensors";
  char name[64];
  std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", index + 1, count);
  return name;
}

// The rows of a model's matrices, a slice of some MiB in memory at a time.
class SliceReader {
 public:
  SliceReader(ThreadPool& pool, const std::function<bool()>& stop) : pool_(pool), stop_(stop) {}

  // Calls use(first, bytes) for consecutive slices of the matrix. Throws LoadError, also if the
  // work is to stop.
  template <class Use>
  void read(const MatrixView& matrix, const Use& use) {
    constexpr uint64_t kSliceBytes = uint64_t{16} << 20;
    if (matrix.bytes() == 0) return;
    const auto most = static_cast<int64_t>(std::max<uint64_t>(1, kSliceBytes / matrix.row_bytes()));
    for (int64_t first = 0; first < matrix.count; first += most) {
      if (stop_ && stop_()) throw LoadError("stopped");
      const int64_t count = std::min(most, matrix.count - first);
      slice_.resize(static_cast<uint64_t>(count) * matrix.row_bytes());
      matrix.read(first, slice_, pool_);
      use(first, std::span<const std::byte>(slice_));
    }
  }

 private:
  ThreadPool& pool_;
  const std::function<bool()>& stop_;
  std::vector<std::byte> slice_;
};

bool is_finite_row(const std::byte* row, DType dtype, int64_t k) {
  for (int64_t i = 0; i < k; ++i)
    if (!std::isfinite(read_float(row, dtype, i))) return false;
  return true;
}

// Returns the number of groups that are lost.
int64_t write_quantised(SafetensorsWriter& writer, const QuantizeItem& item, SliceReader& reader,
                        ThreadPool& pool) {
  // Of each row of the target: values, scales, and biases if there are some.
  int64_t n = 0;
  for (const MatrixView& matrix : item.matrices) n += matrix.count;
  std::vector<std::vector<std::byte>> parts;
  for (const TensorPlan& plan : item.plans) parts.emplace_back(plan.bytes());
  const auto row_of = [n](std::vector<std::byte>& part, int64_t row) {
    return part.data() + row * (static_cast<int64_t>(part.size()) / n);
  };
  constexpr int64_t kRows = 16;
  int64_t begin = 0;  // of the matrix, in the target
  std::atomic<int64_t> lost = 0;
  std::atomic<bool> finite = true;
  for (const MatrixView& matrix : item.matrices) {
    const DType dtype = matrix.tensor->dtype;
    const int64_t k = matrix.columns, row_bytes = k * dtype_size(dtype);
    reader.read(matrix, [&](int64_t first, std::span<const std::byte> slice) {
      const int64_t count = static_cast<int64_t>(slice.size()) / row_bytes;
      pool.parallel_for((count + kRows - 1) / kRows, [&](int64_t task) {
        const int64_t end = std::min(count, (task + 1) * kRows);
        for (int64_t row = task * kRows; row < end; ++row) {
          const int64_t to = begin + first + row;
          const std::byte* from = slice.data() + row * row_bytes;
          std::byte *values = row_of(parts[0], to), *scales = row_of(parts[1], to);
          if (!is_finite_row(from, dtype, k)) finite = false;
          if (item.format.mode == QuantMode::kAffine) {
            quantize_row(from, dtype, k, item.format, {values, scales, row_of(parts[2], to)});
          } else {
            lost += quantize_block_float_row(from, dtype, k, item.format, {values, scales});
          }
        }
      });
    });
    if (!finite)
      throw LoadError(matrix.tensor->file() + ": tensor " + quote_name(matrix.tensor->name) +
                      " has a weight that is NaN or infinite: take an intact checkpoint");
    begin += matrix.count;
  }
  for (const auto& part : parts) writer.append(part);
  return lost;
}

void write_text(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text << "\n";
  file.close();
  if (!file) throw LoadError(path + ": cannot write; is the disk full?");
}

void write_config(const Checkpoint& source, const QuantisedFormat& format, const Shards& shards,
                  const std::string& path) {
  json::object config = source.config().raw.get_object();
  json::object quantization = {
      {"group_size", format.group_size}, {"bits", format.bits}, {"mode", mode_name(format.mode)}};
  for (const auto& shard : shards)
    for (const QuantizeItem& item : shard)
      if (item.quantised() && !(item.format == format))
        quantization[item.layer] = json::object{{"group_size", item.format.group_size},
                                                {"bits", item.format.bits},
                                                {"mode", mode_name(item.format.mode)}};
  config["quantization"] = quantization;
  config["quantization_config"] = quantization;
  write_text(path, dump_json(config));
}

void write_index(const Shards& shards, uint64_t bytes, const std::string& path) {
  json::object map;
  for (size_t i = 0; i < shards.size(); ++i)
    for (const QuantizeItem& item : shards[i])
      for (const TensorPlan& plan : item.plans) map[plan.name] = shard_name(i, shards.size());
  write_text(path, dump_json(json::object{{"metadata", json::object{{"total_size", bytes}}},
                                          {"weight_map", std::move(map)}}));
}

// Tokenizer, chat template, generation config, licence: whatever is no weight.
void copy_small_files(const std::string& from, const std::string& to) {
  static const std::set<std::string> kWeights = {".safetensors", ".bin",     ".pt",   ".pth",
                                                 ".gguf",        ".msgpack", ".onnx", ".h5"};
  for (const auto& entry : fs::directory_iterator(from)) {
    const std::string name = entry.path().filename();
    if (!entry.is_regular_file() || name.starts_with(".") || name == "config.json" ||
        name.ends_with(".index.json") || kWeights.contains(entry.path().extension()))
      continue;
    std::error_code error;
    fs::copy_file(entry.path(), fs::path(to) / name, error);
    if (error)
      throw LoadError(to + "/" + name + ": cannot write: " + error.message() +
                      "; choose a place with enough room that you may write to");
  }
}

}  // namespace

QuantizeReport quantize_checkpoint(const std::string& source_dir, const std::string& target,
                                   const QuantizeOptions& options, ThreadPool& pool) {
  const Checkpoint source = Checkpoint::open(source_dir);
  check_source(source);
  QuantizeReport report;
  const Shards shards =
      split(plan_quantization(source, options.format, report), options.max_shard_bytes);
  if (report.quantised == 0) {
    throw LoadError(source_dir + ": groups of " + std::to_string(options.format.group_size) +
                    " divide the rows of no matrix; nothing would be quantised");
  }
  PendingFolder folder(target);
  SliceReader reader(pool, options.stop);
  uint64_t done = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    std::vector<TensorPlan> plans;
    for (const QuantizeItem& item : shards[i])
      plans.insert(plans.end(), item.plans.begin(), item.plans.end());
    SafetensorsWriter writer(folder.path() + "/" + shard_name(i, shards.size()), plans,
                             {{"format", "mlx"}});
    for (const QuantizeItem& item : shards[i]) {
      if (item.quantised()) {
        if (const int64_t lost = write_quantised(writer, item, reader, pool))
          report.lost.push_back({item.layer, lost, item.groups()});
      } else {
        for (const MatrixView& matrix : item.matrices)
          reader.read(matrix,
                      [&](int64_t, std::span<const std::byte> slice) { writer.append(slice); });
      }
      done += item.source_bytes();
      if (options.progress)
        options.progress(static_cast<double>(done) / static_cast<double>(report.bytes_before));
    }
    writer.finish();
  }
  if (shards.size() > 1)
    write_index(shards, report.bytes_after, folder.path() + "/model.safetensors.index.json");
  write_config(source, options.format, shards, folder.path() + "/config.json");
  copy_small_files(source_dir, folder.path());
  source.check_unchanged();
  folder.commit();
  return report;
}

}  // namespace quire::formats
