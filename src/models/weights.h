#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "formats/checkpoint.h"
#include "formats/folder_codes.h"
#include "formats/folder_quantization.h"
#include "formats/quantization.h"
#include "formats/staged_tensor.h"
#include "models/layer_spec.h"
#include "models/mapped_files.h"
#include "models/piece_memory.h"
#include "models/projection.h"
#include "ops/linear/linear.h"
#include "ops/linear/pack/affine_matrix.h"
#include "ops/linear/pack/block_float_matrix.h"
#include "ops/linear/pack/gguf_matrix.h"
#include "ops/runtime/context.h"

namespace quire::models {

namespace mx = mlx::core;

// Some rows of a matrix (of its bias, if `bias` is not empty).
struct WeightRows {
  std::string weight = "";
  int64_t begin = 0, count = 0;
  std::string bias = "";
};

// For each head a matrix of `first` rows, then one of `second` rows.
struct HeadRows {
  int64_t heads = 0, first = 0, second = 0;
};
struct HeadPairs {
  std::vector<ops::PackedMatrix> first_transposed;  // [k, first] each
  std::vector<ops::PackedMatrix> second;            // [second, k] each
};

// Where the matrices [n, k] of all experts of a layer are, see MoeSpec::Names.
struct ExpertTensors {
  std::vector<std::string> weights, biases = {};
  bool transposed = false, alternating = false;
};

// A matrix as a checkpoint stores it, and the memory that it lies in.
struct StoredMatrix {
  ops::RowMatrix rows = {};
  std::shared_ptr<const void> memory = nullptr;
};

class AdapterLoader;
struct Nf4Matrix;

// Takes tensors out of a checkpoint by name, checks shape and dtype, and packs them for the
// kernels. Remembers what was taken: finish() refuses a checkpoint with tensors that the model does
// not use.
class WeightLoader {
 public:
  virtual ~WeightLoader() = default;
  WeightLoader(const WeightLoader&) = delete;
  WeightLoader& operator=(const WeightLoader&) = delete;

  // `int8_activations`: LoadOptions'. If it is true, throws LoadError if the checkpoint has no
  // weights that are whole numbers times scales, here or in check_activations().
  WeightLoader(const ops::Context& context, const formats::Checkpoint& checkpoint, mx::Dtype dtype,
               std::function<void(double)> progress,
               std::optional<bool> int8_activations = std::nullopt);

  // Rows of `weights` stacked: [n, k] in all, packed in the model's dtype. `biases` likewise, or
  // empty. A quantised weight ("X.weight" with "X.scales", affine ones with "X.biases") stays
  // quantised; parts of different affine formats are stacked in one that holds all exactly, other
  // mixtures stay apart inside the matrix, or are dense values on a GPU.
  // `interleave`: gate and up, for ops::LinearOptions::gate.
  ops::LinearWeight linear(const std::vector<std::string>& weights,
                           const std::vector<std::string>& biases, int64_t n, int64_t k,
                           bool interleave = false);
  ops::LinearWeight linear(const std::string& weight, const std::string& bias, int64_t n,
                           int64_t k);
  // The same of the head, whose logits of `never`, ids of tokens, are minus infinity whatever it is
  // given: the bias is. Ids that it has no row for count for nothing.
  ops::LinearWeight head(const std::string& weight, const std::string& bias, int64_t n, int64_t k,
                         std::span<const int64_t> never);
  // Linears that adapters may change, as linear() makes them.
  Projection projection(const std::string& weight, const std::string& bias, int64_t n, int64_t k);
  Projection projection(const std::vector<WeightRows>& rows, int64_t k);
  // One that linear() has made of `rows`, in the order in which they are packed.
  Projection projection(ops::LinearWeight weight, const std::vector<WeightRows>& rows, int64_t k);
  // Weights are used where their files are mapped, as far as they line up, on a device that can.
  void map_files(MappedFiles::Take take) { mapped_files_.emplace(std::move(take)); }
  // Whose adapters they are; must outlive the loading. Without it there are none.
  void set_adapters(AdapterLoader& adapters) { adapters_ = &adapters; }
  // The same for each of `count` experts.
  std::vector<ops::LinearWeight> expert_linears(const ExpertTensors& tensors, int64_t count,
                                                int64_t n, int64_t k, bool interleave = false);
  // Where the checkpoint is, for messages.
  const std::string& folder() const { return checkpoint_.dir(); }
  // Whether the checkpoint holds the tensor.
  bool has(const std::string& name) const { return find(name) != nullptr; }
  // A linear of rows in any order, for tensors that mix what belongs to different heads. Rows
  // without a bias have one of 0 beside others with one.
  ops::LinearWeight linear(const std::vector<WeightRows>& rows, int64_t k);
  // A tensor [heads * (a + b), k] that has rows of two matrices for each head, taken apart.
  HeadPairs head_pairs(const std::string& weight, const HeadRows& rows, int64_t k);
  // A vector [n] (or [1, n]) as float32.
  mx::array vector(const std::string& name, int64_t n);
  // ln(-x) of each number in one. Throws LoadError for a number that is not below 0.
  mx::array logs_of_negated(const std::string& name, int64_t n);
  // The number in a tensor [1].
  float number(const std::string& name);
  // The weight [n] of an RMS norm, float32: the stored values plus the norm offset, or ones, times
  // the norm's multiplier.
  mx::array norm(const NormSpec& norm, int64_t n);
  // 1 where a checkpoint stores its norms around zero.
  void set_norm_offset(float offset) { norm_offset_ = offset; }
  // The taps of a depthwise convolution, [kernel, channels] float32; stored as [channels, 1,
  // kernel], or by MLX as [channels, kernel, 1].
  mx::array taps(const std::string& name, int64_t channels, int64_t kernel);
  // Whether a depthwise convolution is stored as MLX does: then mlx-lm wrote the checkpoint.
  bool is_mlx_convolution(const std::string& name, int64_t kernel) const;
  bool is_quantised(const std::string& weight) const;
  // Whether two matrices are quantised alike, or neither is.
  bool have_one_format(const std::string& weight, const std::string& other) const;
  // A matrix [n, k] as the checkpoint stores it, row by row; not quantised.
  StoredMatrix stored_matrix(const std::string& name, int64_t n, int64_t k);

  // Throws LoadError naming the tensors that nothing took, except those in `ignored`: exact names,
  // or "prefix*". Returns what the prefixes skipped, for people to read: "model.visual.* (153
  // tensors)", or nothing.
  std::string finish(const std::vector<std::string>& ignored) const;
  // The quantised weights that became dense values, because they are stacked with others in a
  // format that does not go with theirs, or because the device has no kernels for it, for people
  // to read: "X.weight and 3 more"; or nothing.
  std::string unpacked() const;
  // With int8_activations: the formats of matrices that linear() multiplies with activations as
  // they are, and how many there are, for people to read: "bfloat16 (3), mxfp8 (24)"; or nothing.
  std::string whole_activations() const;
  // Throws LoadError if int8_activations found no weights to go with, once all are packed.
  void check_activations() const;
  size_t packed_bytes() const { return packed_bytes_; }
  // How much of packed_bytes() is used where it is mapped; nothing without map_files().
  std::optional<MappedWeights> mapped_weights() const;

 protected:
  // A part of a linear: rows as stored, dense or quantised.
  struct Part {
    int64_t n = 0;
    ops::RowMatrix dense = {};
    std::optional<ops::AffineRows> affine = std::nullopt;
    std::optional<ops::BlockFloatRows> block_float = std::nullopt;
    std::optional<ops::GgufRows> gguf = std::nullopt;
    std::vector<float> multipliers = {};  // of GGUF's nvfp4: one for each matrix of a stack
    std::vector<const formats::RawTensor*> tensors = {};
    // Where dense rows or quantised values lie: loaded while they are packed, so that a large
    // matrix is in memory a slice at a time. Null if they are in memory. Scales and biases are.
    std::shared_ptr<formats::StagedTensor> staged = nullptr;
    std::shared_ptr<const formats::StagedTensor> scales = nullptr, biases = nullptr;
    std::shared_ptr<const std::byte[]> copy = nullptr;  // of rows that were put in order
    // Reads what has to be in memory before rows are used, and makes the rows of it; null: nothing.
    // All that headers tell was checked before.
    std::function<void(Part&)> read = nullptr;

    // An array with a row for each of the part's.
    struct RowArray {
      const void*& data;
      int64_t row_bytes;
    };
    std::vector<RowArray> row_arrays();  // values, scales and what is beside them
    void set_rows(int64_t count);
    int64_t row_bytes() const;  // of `staged`
    // The bytes of some rows in `staged`.
    std::span<const std::byte> row_bytes(int64_t begin, int64_t count) const;
    // What keeps all of its rows where they are, which are snapshots of files; null: some are
    // copies.
    std::shared_ptr<const void> owner() const;
  };

  // What is done with the contents of matrices is virtual: HeaderLoader does without them.
  virtual Part with_contents(Part part, int64_t k);
  virtual void read_matrix(const formats::RawTensor& tensor, StoredMatrix& matrix);
  // A matrix of a stack, copied if its rows have to be put in order.
  virtual Part in_order(const Part& part, const ExpertTensors& tensors) const;
  // Rows of a part, copied in this order; read, if they are still to be.
  virtual Part gathered(const Part& part, std::span<const WeightRows> order) const;
  virtual ops::PackedMatrix transposed_matrix(Part part);
  virtual ops::PackedMatrix pack(std::vector<Part> parts, bool interleave);

  mx::Dtype dtype() const { return dtype_; }

 private:
  // The tensor, or null. A language model inside a wrapper has its names prefixed: the stored name
  // of "model.X" is "model.language_model.X" (transformers) or "language_model.model.X" (MLX).
  // Models for embeddings are often saved without their head, and then "model.X" is "X".
  const formats::RawTensor* find(const std::string& name) const;
  const formats::RawTensor& take(const std::string& name);
  const formats::RawTensor& take_any(const std::string& name);
  // Rows of a tensor [n, k], or the first ones of [stack, n, k]. n < 0: as many rows as it has.
  Part take_part(const std::string& weight, int64_t n, int64_t k, int64_t stack = 0);
  // The same with Part::read still to be done, as those below.
  Part take_headers(const std::string& weight, int64_t n, int64_t k, int64_t stack);
  Part take_quantised(const std::string& weight, int64_t n, int64_t k, int64_t stack);
  void take_affine_scales(const formats::RawTensor& values, const std::vector<int64_t>& groups,
                          int64_t k, const formats::QuantisedFormat& format, Part& part);
  void take_float_scales(const formats::RawTensor& values, const std::vector<int64_t>& groups,
                         int64_t k, const formats::QuantisedFormat& format, Part& part);
  Part take_gguf_blocks(const std::string& weight, int64_t n, int64_t k, int64_t stack);
  // The numbers that each matrix of GGUF's nvfp4 is multiplied by.
  std::vector<float> take_multipliers(const formats::RawTensor& values, int64_t matrices);
  // Whether the tensor says how keys or values would be rounded
  // (formats::FolderQuantization::kv_cache_floats).
  bool is_kv_scale(const std::string& name) const;
  // Takes what says how a layer's activations would be rounded, if the config asks for that.
  void skip_activation_scales(const std::string& stem);
  // A matrix in a format of folders that were made for GPUs (formats::FolderFormat).
  Part take_folder(const formats::RawTensor& values, int64_t n, int64_t k, int64_t stack);
  // 8-bit floats; as dense values where a scale is of columns that groups of 128 do not divide.
  Part take_float8(const formats::RawTensor& values, const formats::FolderScheme& scheme, int64_t n,
                   int64_t k);
  // MLX's mxfp4 in bytes.
  Part take_mxfp4_bytes(const formats::RawTensor& values, int64_t n, int64_t k);
  // NVFP4 as compressed-tensors and modelopt have it.
  Part take_nvfp4_bytes(const formats::RawTensor& values, const formats::FolderScheme& scheme,
                        int64_t n, int64_t k);
  // The nf4 of bitsandbytes; as dense values where rows do not begin with a block.
  Part take_nf4(const formats::RawTensor& values, int64_t n, int64_t k);
  void read_nf4(Nf4Matrix matrix, Part& part);
  // Whole numbers with scales and zero points.
  Part take_integers(const formats::RawTensor& values, const formats::FolderScheme& scheme,
                     int64_t n, int64_t k);
  // Signed bytes with scales.
  Part take_signed_bytes(const formats::RawTensor& values, const formats::FolderScheme& scheme,
                         int64_t n, int64_t k);
  // `part` has values and scales as its tensors.
  void read_signed_bytes(const formats::FolderScheme& scheme, const formats::IntegerMatrix& matrix,
                         Part& part);
  // Whether activations of such a weight are rounded to 8 bits with a scale for each token.
  bool rounds_per_token(const formats::FolderScheme& scheme) const;
  // The zero points of a matrix of whole numbers; null if they are all the same and not stored.
  const formats::RawTensor* take_zeros(const formats::FolderScheme& scheme, const std::string& stem,
                                       const formats::IntegerMatrix& matrix, Part& part);
  // `part` has values and scales as its first tensors.
  void read_integers(const formats::FolderScheme& scheme, const formats::RawTensor* zeros,
                     formats::IntegerMatrix matrix, Part& part);
  // Which group each k belongs to, if that is not their order. `any_order`: the config says that it
  // may not be.
  std::vector<int32_t> take_group_order(const std::string& name, bool any_order,
                                        const formats::IntegerMatrix& matrix, Part& part);
  // `columns`: where those of the matrix are in W, or empty.
  void make_affine(const formats::IntegerMatrix& matrix, const std::vector<int32_t>& columns,
                   const formats::FolderScheme& scheme, mx::Dtype scale_dtype, Part& part) const;
  void make_dense(const formats::IntegerMatrix& matrix, mx::Dtype scale_dtype, Part& part);
  // The tensor of scales or biases that goes with the values.
  const formats::RawTensor& take_beside(const formats::RawTensor& values, const std::string& name,
                                        const std::vector<int64_t>& groups,
                                        const formats::QuantisedFormat& format);
  // The parts of a linear with n rows.
  std::vector<Part> take_parts(const std::vector<std::string>& weights, int64_t n, int64_t k);
  // The rows of another matrix of the stack.
  static Part part_of_stack(Part first, int64_t index);
  // OpenAI's mxfp4, [stack, n, k / 32, 16] bytes: what MLX stores as [stack, n, k / 8] words.
  Part take_blocks(const std::string& name, int64_t n, int64_t k, int64_t stack);
  // What a tensor of all experts holds.
  Part take_stack(const std::string& name, const ExpertTensors& tensors, int64_t n, int64_t k,
                  int64_t stack);
  // [n, k] of the stored [k, n] of dense values.
  Part transposed(const Part& part, bool alternating) const;
  // Of quantised rows that take turns, the ones and then the others.
  static Part halves_of(const Part& part);
  std::vector<ops::LinearWeight> numbered_experts(const ExpertTensors& tensors, int64_t count,
                                                  int64_t n, int64_t k, bool interleave);
  std::vector<ops::LinearWeight> stacked_experts(const ExpertTensors& tensors, int64_t count,
                                                 int64_t n, int64_t k, bool interleave);
  // The biases of all experts, [n] each.
  std::vector<mx::array> expert_biases(const ExpertTensors& tensors, int64_t count, int64_t n);
  // `count` rows from `begin` on.
  static Part part_of_rows(Part part, int64_t begin, int64_t count);
  // Rows of a part that is in memory, copied in this order.
  static Part copied(const Part& part, std::span<const WeightRows> order);
  // The rows of a part as dense values; quantised ones in the model's dtype.
  Part dequantised(Part part);
  mx::array floats(const std::vector<float>& values, const mx::Shape& shape) const;
  std::shared_ptr<std::byte[]> read_to_device(const formats::RawTensor& tensor) const;
  std::vector<float> take_vector(const std::string& name, int64_t n);
  // Reads the rows of staged parts as they are packed. Views the parts.
  ops::PackProgress staging(std::span<const Part> parts) const;
  ops::PackedMatrix pack_parts(std::vector<Part> parts, bool interleave);
  // Counts a matrix for whole_activations().
  void note_activations(const ops::PackedMatrix& matrix);
  // All quantised, in formats that go together; nothing otherwise.
  std::optional<ops::PackedMatrix> pack_quantised(std::span<const Part> parts,
                                                  bool interleave) const;
  static bool is_alike(const Part& a, const Part& b);
  // Some quantised, in formats that do not go together, on a device that has kernels for such;
  // nothing otherwise.
  std::optional<ops::PackedMatrix> pack_mixed(const std::vector<Part>& parts, bool interleave);
  // The biases of such rows, 0 for those without; `lengths`: rows of each weight.
  mx::array row_biases(const std::vector<WeightRows>& rows,
                       const std::map<std::string, int64_t>& lengths);
  // A small float tensor of this shape.
  std::vector<float> take_floats(const std::string& name, const std::vector<int64_t>& shape);
  mx::array stack_biases(const std::vector<std::string>& biases, const std::vector<Part>& parts,
                         int64_t n);
  void count_progress(const formats::RawTensor& tensor);
  void count_progress(const Part& part);
  void count_packed(const ops::PackedMatrix& matrix);
  // A tensor where its file is mapped, or a copy that is to be filled.
  std::shared_ptr<formats::StagedTensor> stage(const formats::RawTensor& tensor);
  // The same, loaded already.
  std::shared_ptr<const formats::StagedTensor> load_staged(const formats::RawTensor& tensor);
  // `rows` with the values of one tensor, and the scales of another.
  Part block_float_part(const formats::RawTensor& values, const formats::RawTensor& scales,
                        ops::BlockFloatRows rows);

  const ops::Context& context_;
  const std::unique_ptr<PieceMemory> pieces_ = std::make_unique<PieceMemory>();
  const formats::Checkpoint& checkpoint_;
  mx::Dtype dtype_;
  std::optional<formats::QuantizationConfig> quantization_;
  std::optional<formats::FolderQuantization> folder_quantization_;
  std::function<void(double)> progress_;
  bool int8_activations_;  // of all weights that allow them
  bool rounds_as_asked_;   // activations, where the config asks for that
  AdapterLoader* adapters_ = nullptr;
  std::set<std::string> taken_, unpacked_;
  std::map<std::string, int64_t> whole_;  // see whole_activations()
  int64_t rounded_ = 0;                   // matrices whose activations are rounded
  float norm_offset_ = 0.0f;
  uint64_t bytes_read_ = 0;
  size_t packed_bytes_ = 0, bytes_in_place_ = 0;
  std::optional<MappedFiles> mapped_files_;
  bool stay_in_place_ = true;  // false for experts: Metal copies them into one stack
};

// The tensor of this name, also where a wrapper prefixes it (see WeightLoader::find), or where its
// values have a name of their own ("X.qweight" for "X.weight": is_folder_values).
const formats::RawTensor* find_tensor(const formats::Checkpoint& checkpoint,
                                      const std::string& name);

// The dtype that a checkpoint's activations have: that of `weight`, or of its scales if it is
// quantised (of the last norm if these are bytes); nothing if there is no such tensor. Throws
// LoadError if it is no float.
std::optional<mx::Dtype> activation_dtype(const formats::Checkpoint& checkpoint,
                                          const std::string& weight);

// The MLX dtype of a float tensor; throws LoadError naming file and tensor for any other.
mx::Dtype float_dtype(const formats::RawTensor& tensor);

}  // namespace quire::models
