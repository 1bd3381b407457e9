// The extension module: arrays in, kernels run, nothing returned. The Python wrappers know what the
// arguments mean (which cache row, which block) and name them in errors; here sizes are checked
// against each other once more, so that no call reads or writes beside an array.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "append.h"
#include "base/parallel.h"
#include "delta_rule.h"
#include "layout.h"
#include "ops/cpu/cpu_isa.h"
#include "ops/paged_attention/attention_run.h"

namespace nb = nanobind;
using quire::ops::AttentionKernelParams;
using quire::ops::AttentionUnit;
using quire::ops::FloatType;
using quire_kernels::require;

namespace {

// Arrays of any kind that speaks DLPack or the buffer protocol.
using Array = nb::ndarray<nb::device::cpu, nb::c_contig>;
using ConstArray = nb::ndarray<nb::ro, nb::device::cpu, nb::c_contig>;
template <class T>
using Vector = nb::ndarray<const T, nb::ndim<1>, nb::device::cpu, nb::c_contig>;

template <class T>
std::span<const T> span_of(const Vector<T>& vector) {
  return {vector.data(), vector.shape(0)};
}

// One pool for the process, and a loop at a time on it: Python threads take turns.
struct Threads {
  std::mutex mutex;
  std::unique_ptr<quire::ThreadPool> pool;
  int count = quire::usable_processors();

  quire::ThreadPool& get() {
    if (!pool) pool = std::make_unique<quire::ThreadPool>(count);
    return *pool;
  }
};
Threads* g_threads = new Threads;  // never freed: calls may be in progress when the process ends

void set_num_threads(int threads) {
  require(threads >= 1, "threads must be at least 1");
  const nb::gil_scoped_release release;
  const std::lock_guard lock(g_threads->mutex);
  g_threads->pool.reset();  // made anew by the next call
  g_threads->count = threads;
}

int num_threads() {
  const nb::gil_scoped_release release;
  const std::lock_guard lock(g_threads->mutex);
  return g_threads->count;
}

// In a child process, which has the parent's memory but not its threads.
void after_fork() {
  const int count = g_threads->count;
  g_threads = new Threads;
  g_threads->count = count;
}

FloatType float_type(int type) {
  require(type >= 0 && type <= 2, "unknown element type");
  return static_cast<FloatType>(type);
}

int64_t dim(const auto& array, size_t axis) { return static_cast<int64_t>(array.shape(axis)); }

struct AttendArgs {
  const ConstArray &q, &k, &v;
  const Array& out;
  const std::optional<Array>& lse;
  const std::optional<ConstArray>& slopes;
  const std::optional<Vector<float>>& sinks;
  int64_t sequences;
};

void check(const AttendArgs& a, size_t bytes) {
  require(a.q.ndim() == 3 && a.k.ndim() == 3 && a.v.ndim() == 3 && a.out.ndim() == 3,
          "q, k, v and out must have 3 dimensions");
  for (const size_t size : {a.q.itemsize(), a.k.itemsize(), a.v.itemsize(), a.out.itemsize()})
    require(size == bytes, "the arrays are not of one element type");
  require(a.k.shape(0) == a.v.shape(0) && a.k.shape(1) == a.v.shape(1), "v does not fit k");
  require(a.k.shape(2) == a.q.shape(2), "k does not fit q");
  require(dim(a.k, 1) > 0 && a.q.shape(1) % a.k.shape(1) == 0, "q's heads are no multiple of k's");
  for (const int64_t d : {dim(a.k, 2), dim(a.v, 2)})
    require(d >= 8 && d <= 512 && d % 8 == 0, "a head dimension is no multiple of 8 up to 512");
  require(a.out.shape(0) == a.q.shape(0) && a.out.shape(1) == a.q.shape(1) &&
              a.out.shape(2) == a.v.shape(2),
          "out does not fit q and v");
  if (a.lse)
    require(a.lse->ndim() == 2 && a.lse->shape(0) == a.q.shape(1) &&
                a.lse->shape(1) == a.q.shape(0) && a.lse->itemsize() == sizeof(float),
            "lse does not fit q");
  if (a.slopes)
    require(a.slopes->ndim() == 2 && dim(*a.slopes, 0) == a.sequences &&
                a.slopes->shape(1) == a.q.shape(1) && a.slopes->itemsize() == sizeof(float),
            "alibi_slopes does not fit q");
  if (a.sinks) require(a.sinks->shape(0) == a.q.shape(1), "s_aux does not fit q");
}

struct Scores {
  double scale, softcap;
  int64_t window_left, window_right;
};

AttentionKernelParams kernel_params(const AttendArgs& a, FloatType type, int64_t block_size,
                                    const Scores& scores) {
  require(std::isfinite(scores.scale) && scores.scale >= 0,
          "softmax_scale must be finite and not negative");
  require(std::isfinite(scores.softcap) && scores.softcap >= 0,
          "softcap must be finite and not negative");
  AttentionKernelParams p;
  p.q_type = type;
  p.kv_type = quire::ops::kv_type_of(type);
  if (type == FloatType::kBf16)
    p.unit = quire::ops::use_amx()           ? AttentionUnit::kAmx
             : quire::ops::use_avx512_bf16() ? AttentionUnit::kAvx512Bf16
                                             : AttentionUnit::kVectors;
  p.heads = dim(a.q, 1);
  p.kv_heads = dim(a.k, 1);
  p.key_dim = dim(a.k, 2);
  p.value_dim = dim(a.v, 2);
  p.block_size = block_size;
  p.window_left = scores.window_left;
  p.window_right = scores.window_right;
  p.q = a.q.data();
  p.k = a.k.data();
  p.v = a.v.data();
  p.alibi = a.slopes ? static_cast<const float*>(a.slopes->data()) : nullptr;
  p.alibi_stride = p.heads;
  p.sinks = a.sinks ? a.sinks->data() : nullptr;
  p.out = a.out.data();
  p.lse = a.lse ? static_cast<float*>(a.lse->data()) : nullptr;
  p.lse_stride = dim(a.q, 0);
  quire::ops::set_attention_scale(p, scores.scale, scores.softcap);
  return p;
}

void attend(const ConstArray& q, const ConstArray& k, const ConstArray& v, const Array& out,
            const std::optional<Array>& lse, int type, const Vector<int32_t>& cu_seqlens,
            const Vector<int32_t>& seq_lens, const Vector<int64_t>& offsets,
            const Vector<int32_t>& blocks, int64_t block_size, double scale, int64_t window_left,
            int64_t window_right, double softcap, const std::optional<ConstArray>& slopes,
            const std::optional<Vector<float>>& sinks) {
  const FloatType kind = float_type(type);
  const AttendArgs args{q, k, v, out, lse, slopes, sinks, static_cast<int64_t>(seq_lens.shape(0))};
  check(args, static_cast<size_t>(quire::ops::float_type_bytes(kind)));
  const auto layout = quire_kernels::make_layout(
      {span_of(cu_seqlens), span_of(seq_lens), span_of(offsets), span_of(blocks), block_size},
      dim(q, 0), dim(k, 0));
  const AttentionKernelParams params =
      kernel_params(args, kind, block_size, {scale, softcap, window_left, window_right});
  const nb::gil_scoped_release release;
  const std::lock_guard lock(g_threads->mutex);
  quire::ops::run_attention(g_threads->get(), params, layout);
}

void write_tokens(const ConstArray& rows, const Array& pool, const Vector<int64_t>& slots) {
  require(rows.ndim() == 3 && pool.ndim() == 3 && rows.shape(1) == pool.shape(1) &&
              rows.shape(2) == pool.shape(2) && rows.itemsize() == pool.itemsize(),
          "new rows do not fit the cache");
  require(slots.shape(0) == rows.shape(0), "slots do not fit the new rows");
  for (size_t i = 0; i < slots.shape(0); ++i)
    require(slots(i) < dim(pool, 0), "a slot is outside the cache");
  const auto row_bytes = static_cast<int64_t>(rows.shape(1) * rows.shape(2) * rows.itemsize());
  const nb::gil_scoped_release release;
  quire_kernels::write_rows(rows.data(), pool.data(), slots.data(), dim(rows, 0), row_bytes);
}

void rotate(const ConstArray& x, const Array& out, int type, const Vector<int64_t>& positions,
            const ConstArray& cos, const ConstArray& sin, bool interleaved) {
  const FloatType kind = float_type(type);
  const auto bytes = static_cast<size_t>(quire::ops::float_type_bytes(kind));
  require(x.ndim() == 3 && out.ndim() == 3 && out.size() == x.size(), "out does not fit x");
  require(cos.ndim() == 2 && sin.ndim() == 2 && cos.shape(0) == sin.shape(0) &&
              cos.shape(1) == sin.shape(1) && 2 * dim(cos, 1) <= dim(x, 2),
          "rotary_cos and rotary_sin do not fit");
  for (const size_t size : {x.itemsize(), out.itemsize(), cos.itemsize(), sin.itemsize()})
    require(size == bytes, "the arrays are not of one element type");
  require(positions.shape(0) == x.shape(0), "positions do not fit x");
  for (size_t i = 0; i < positions.shape(0); ++i)
    require(positions(i) >= 0 && positions(i) < dim(cos, 0), "a position is beyond rotary_cos");
  const nb::gil_scoped_release release;
  quire_kernels::rotate_rows(x.data(), out.data(), positions.data(), dim(x, 0), dim(x, 1),
                             dim(x, 2),
                             {.type = kind,
                              .cos = cos.data(),
                              .sin = sin.data(),
                              .width = 2 * dim(cos, 1),
                              .interleaved = interleaved});
}

void delta_rule(const ConstArray& qkv, const ConstArray& gates, const ConstArray& a_log,
                const ConstArray& dt_bias, const Array& state, const Array& y, int type,
                const Vector<int64_t>& cu_seqlens, const Vector<int64_t>& slots,
                const Vector<uint8_t>& fresh) {
  const FloatType kind = float_type(type);
  const auto bytes = static_cast<size_t>(quire::ops::float_type_bytes(kind));
  for (const size_t size : {qkv.itemsize(), gates.itemsize(), y.itemsize()})
    require(size == bytes, "the arrays are not of one element type");
  for (const size_t size : {a_log.itemsize(), dt_bias.itemsize(), state.itemsize()})
    require(size == sizeof(float), "a_log, dt_bias and state must be float32");
  require(qkv.ndim() == 2 && gates.ndim() == 2 && state.ndim() == 4, "qkv does not fit state");
  quire::ops::GatedDeltaRuleParams p;
  p.type = kind;
  p.v_heads = dim(state, 1);
  p.v_dim = dim(state, 2);
  p.k_dim = dim(state, 3);
  require(p.v_heads >= 1 && p.v_dim >= 1 && p.k_dim >= 4 && p.k_dim % 4 == 0 && p.k_dim <= 256,
          "state's key dimension is no multiple of 4 up to 256");
  const int64_t keys = dim(qkv, 1) - p.v_heads * p.v_dim;
  p.k_heads = keys / (2 * p.k_dim);
  require(p.k_heads >= 1 && keys % (2 * p.k_dim) == 0 && p.v_heads % p.k_heads == 0,
          "qkv does not fit state");
  require(gates.shape(0) == qkv.shape(0) && dim(gates, 1) == 2 * p.v_heads &&
              static_cast<int64_t>(a_log.size()) == p.v_heads &&
              static_cast<int64_t>(dt_bias.size()) == p.v_heads,
          "the gates do not fit state");
  require(static_cast<int64_t>(y.size()) == dim(qkv, 0) * p.v_heads * p.v_dim, "y does not fit");
  p.gates_row = 2 * p.v_heads;
  p.b_column = p.v_heads;
  p.qkv = qkv.data();
  p.gates = gates.data();
  p.a_log = static_cast<const float*>(a_log.data());
  p.dt_bias = static_cast<const float*>(dt_bias.data());
  p.state = static_cast<float*>(state.data());
  p.y = y.data();
  const quire_kernels::DeltaSequences sequences{span_of(cu_seqlens), span_of(slots),
                                                span_of(fresh)};
  quire_kernels::check_sequences(sequences, dim(qkv, 0), dim(state, 0));
  const nb::gil_scoped_release release;
  const std::lock_guard lock(g_threads->mutex);
  quire_kernels::run_delta_rule(g_threads->get(), p, sequences);
}

}  // namespace

NB_MODULE(_core, m) {
  quire::ops::cpu_isa();  // the choice of instructions, which kernels do not make themselves
  m.def("attend", &attend, nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg().none(), nb::arg(),
        nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(),
        nb::arg(), nb::arg().none(), nb::arg().none());
  m.def("write", &write_tokens);
  m.def("rotate", &rotate);
  m.def("delta_rule", &delta_rule);
  m.def("isa_name", &quire::ops::cpu_isa_name,
        "The instruction set in use: \"amx\", \"avx512_bf16\", \"avx512\", \"avx2\", \"neon\" or "
        "\"portable\".");
  m.def("available_isas", &quire::ops::available_float_isas,
        "The instruction sets that this CPU can run, best first.");
  m.def(
      "force_isa",
      [](const std::string& name) {
        const std::lock_guard lock(g_threads->mutex);
        quire::ops::force_cpu_isa(name);
      },
      nb::arg("name"), "Limits the kernels to one instruction set (tests); \"\": the best again.");
  m.def("set_num_threads", &set_num_threads, nb::arg("threads"),
        "Sets the threads that attention runs on; at first, the processors that the process may "
        "use.");
  m.def("num_threads", &num_threads, "The threads that attention runs on.");
  m.def("_after_fork", &after_fork);
}
