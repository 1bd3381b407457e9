// The extension module: arrays in, kernels run, nothing returned. The Python wrappers check kinds,
// dtypes and shapes, and name arguments in errors; places (which cache row, which block) are
// checked here, where they become a layout. Addresses and shapes are believed: the wrappers read
// them from arrays that they hold during the call.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <cmath>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "append.h"
#include "base/parallel.h"
#include "delta_rule.h"
#include "ints.h"
#include "layout.h"
#include "ops/cpu/cpu_isa.h"
#include "ops/paged_attention/attention_run.h"

namespace nb = nanobind;
using quire::ops::AttentionKernelParams;
using quire::ops::AttentionUnit;
using quire::ops::FloatType;
using quire_kernels::require;

namespace {

// Small arrays, which numpy holds. Large ones come as addresses: what tells their shapes through
// DLPack costs more than the kernel does on a short sequence.
using ConstArray = nb::ndarray<nb::ro, nb::device::cpu, nb::c_contig>;
template <class T>
using Vector = nb::ndarray<const T, nb::ndim<1>, nb::device::cpu, nb::c_contig>;
using quire_kernels::Ints;
using IntsDescription = Ints::Description;

// A contiguous array of rows of heads, [rows, heads, dim]: its address and shape.
struct Rows {
  using Description = std::tuple<uintptr_t, int64_t, int64_t, int64_t>;

  void* data;
  int64_t rows, heads, dim;

  Rows(const Description& d)  // NOLINT: what Python hands over
      : data(reinterpret_cast<void*>(std::get<0>(d))),
        rows(std::get<1>(d)),
        heads(std::get<2>(d)),
        dim(std::get<3>(d)) {}
};

template <class T>
std::span<const T> span_of(const Vector<T>& vector) {
  return {vector.data(), vector.shape(0)};
}

std::optional<Ints> ints_of(const std::optional<IntsDescription>& description) {
  return description ? std::optional(Ints(*description)) : std::nullopt;
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

// What all attention has: q [T, H, D], k and v as the tokens of a pool, out [T, H, Dv], the address
// of the log-sum-exp [H, T] or 0, the element type, and what makes scores of q.k.
using AttendDescription = std::tuple<Rows::Description, Rows::Description, Rows::Description,
                                     Rows::Description, uintptr_t, int>;
using ScoresDescription = std::tuple<double, double, int64_t, int64_t>;
using Slopes = std::optional<ConstArray>;
using Sinks = std::optional<Vector<float>>;

struct AttendArgs {
  Rows q, k, v, out;
  float* lse;
  FloatType type;
  double scale, softcap;
  int64_t window_left, window_right;
  const Slopes& slopes;  // [B, H]
  const Sinks& sinks;    // [H]

  AttendArgs(const AttendDescription& a, const ScoresDescription& s, const Slopes& slopes_,
             const Sinks& sinks_)
      : q(std::get<0>(a)),
        k(std::get<1>(a)),
        v(std::get<2>(a)),
        out(std::get<3>(a)),
        lse(reinterpret_cast<float*>(std::get<4>(a))),
        type(float_type(std::get<5>(a))),
        scale(std::get<0>(s)),
        softcap(std::get<1>(s)),
        window_left(std::get<2>(s)),
        window_right(std::get<3>(s)),
        slopes(slopes_),
        sinks(sinks_) {}
};

void check(const AttendArgs& a, int64_t sequences) {
  require(a.k.rows == a.v.rows && a.k.heads == a.v.heads, "v does not fit k");
  require(a.k.dim == a.q.dim, "k does not fit q");
  require(a.k.heads > 0 && a.q.heads % a.k.heads == 0, "q's heads are no multiple of k's");
  for (const int64_t d : {a.k.dim, a.v.dim})
    require(d >= 8 && d <= 512 && d % 8 == 0, "a head dimension is no multiple of 8 up to 512");
  require(a.out.rows == a.q.rows && a.out.heads == a.q.heads && a.out.dim == a.v.dim,
          "out does not fit q and v");
  if (a.slopes)
    require(a.slopes->ndim() == 2 && dim(*a.slopes, 0) == sequences &&
                dim(*a.slopes, 1) == a.q.heads && a.slopes->itemsize() == sizeof(float),
            "alibi_slopes does not fit q");
  if (a.sinks) require(dim(*a.sinks, 0) == a.q.heads, "s_aux does not fit q");
  require(std::isfinite(a.scale) && a.scale >= 0, "softmax_scale must be finite and not negative");
  require(std::isfinite(a.softcap) && a.softcap >= 0, "softcap must be finite and not negative");
}

AttentionKernelParams kernel_params(const AttendArgs& a, int64_t block_size) {
  AttentionKernelParams p;
  p.q_type = a.type;
  p.kv_type = quire::ops::kv_type_of(a.type);
  if (a.type == FloatType::kBf16)
    p.unit = quire::ops::use_amx()           ? AttentionUnit::kAmx
             : quire::ops::use_avx512_bf16() ? AttentionUnit::kAvx512Bf16
                                             : AttentionUnit::kVectors;
  p.heads = a.q.heads;
  p.kv_heads = a.k.heads;
  p.key_dim = a.k.dim;
  p.value_dim = a.v.dim;
  p.block_size = block_size;
  p.window_left = a.window_left;
  p.window_right = a.window_right;
  p.q = a.q.data;
  p.k = a.k.data;
  p.v = a.v.data;
  p.alibi = a.slopes ? static_cast<const float*>(a.slopes->data()) : nullptr;
  p.alibi_stride = p.heads;
  p.sinks = a.sinks ? a.sinks->data() : nullptr;
  p.out = a.out.data;
  p.lse = a.lse;
  p.lse_stride = a.q.rows;
  quire::ops::set_attention_scale(p, a.scale, a.softcap);
  return p;
}

void run(const AttendArgs& args, const quire::ops::BatchLayout& layout) {
  check(args, layout.num_sequences);
  const AttentionKernelParams params = kernel_params(args, layout.block_size);
  const nb::gil_scoped_release release;
  const std::lock_guard lock(g_threads->mutex);
  quire::ops::run_attention(g_threads->get(), params, layout);
}

using BlocksDescription = std::tuple<int64_t, int64_t, int64_t>;
quire_kernels::Blocks blocks_of(const BlocksDescription& b) {
  return {.length = std::get<0>(b), .step = std::get<1>(b), .count = std::get<2>(b)};
}

// CachePlaces: sequences, lens, table, starts, blocks.
using PlacesDescription =
    std::tuple<int64_t, std::variant<int64_t, IntsDescription>, std::optional<IntsDescription>,
               std::optional<IntsDescription>, BlocksDescription>;

quire_kernels::CachePlaces places_of(const PlacesDescription& d, int64_t num_new) {
  const auto& [sequences, lens, table, starts, blocks] = d;
  const auto* one = std::get_if<int64_t>(&lens);
  quire_kernels::CachePlaces p{.sequences = sequences,
                               .lens = 0,
                               .num_new = num_new,
                               .table = ints_of(table),
                               .starts = ints_of(starts),
                               .blocks = blocks_of(blocks)};
  if (one != nullptr) {
    p.lens = *one;
  } else {
    p.lens = Ints(std::get<IntsDescription>(lens));
    require(std::get<Ints>(p.lens).size() == sequences, "cache_seqlens does not fit q");
  }
  require(!p.starts || p.starts->size() == sequences, "starts do not fit q");
  return p;
}

void attend_cache(const AttendDescription& arrays, const ScoresDescription& scores,
                  const Slopes& slopes, const Sinks& sinks, const PlacesDescription& places,
                  int64_t num_new, int64_t rows) {
  const AttendArgs args(arrays, scores, slopes, sinks);
  const auto layout = quire_kernels::cache_layout(places_of(places, num_new), rows);
  require(layout.num_tokens == args.q.rows, "q does not fit its sequences");
  run(args, layout);
}

void attend_packed(const AttendDescription& arrays, const ScoresDescription& scores,
                   const Slopes& slopes, const Sinks& sinks, const IntsDescription& cu_q,
                   const IntsDescription& cu_k, int64_t longest_q, int64_t longest_k,
                   const std::optional<IntsDescription>& table, const BlocksDescription& blocks) {
  const AttendArgs args(arrays, scores, slopes, sinks);
  run(args, quire_kernels::packed_layout({.cu_q = Ints(cu_q),
                                          .cu_k = Ints(cu_k),
                                          .table = ints_of(table),
                                          .blocks = blocks_of(blocks),
                                          .longest_q = longest_q,
                                          .longest_k = longest_k},
                                         args.q.rows));
}

void attend_segments(const AttendDescription& arrays, const ScoresDescription& scores,
                     const Slopes& slopes, const Sinks& sinks, const IntsDescription& cu_seqlens,
                     const IntsDescription& lens, const std::optional<IntsDescription>& starts,
                     const std::optional<IntsDescription>& tokens) {
  const AttendArgs args(arrays, scores, slopes, sinks);
  require(starts.has_value() != tokens.has_value(), "segments have starts or tokens");
  run(args, quire_kernels::segment_layout({.cu_seqlens = Ints(cu_seqlens),
                                           .lens = Ints(lens),
                                           .starts = ints_of(starts),
                                           .tokens = ints_of(tokens)},
                                          args.q.rows, args.k.rows));
}

// Writes rows of k and v, `bytes` an element, to the tokens `slots` of their pools.
void write_both(const Rows& k, const Rows& v, const Rows& k_pool, const Rows& v_pool, int64_t bytes,
                const std::vector<int64_t>& slots) {
  for (const auto& [rows, pool] : {std::pair(&k, &k_pool), std::pair(&v, &v_pool)}) {
    require(rows->heads == pool->heads && rows->dim == pool->dim && rows->rows == std::ssize(slots),
            "new rows do not fit the cache");
    for (const int64_t slot : slots) require(slot < pool->rows, "a slot is outside the cache");
  }
  const nb::gil_scoped_release release;
  for (const auto& [rows, pool] : {std::pair(&k, &k_pool), std::pair(&v, &v_pool)})
    quire_kernels::write_rows(rows->data, pool->data, slots.data(), rows->rows,
                              rows->heads * rows->dim * bytes);
}

void append(const Rows::Description& k, const Rows::Description& v, const Rows::Description& k_pool,
            const Rows::Description& v_pool, int64_t bytes, const PlacesDescription& places,
            int64_t num_new, const char* lens_name) {
  auto where = places_of(places, num_new);
  where.lens_name = lens_name;
  quire_kernels::cache_layout(where, 0);  // refuses before anything is written
  write_both(k, v, k_pool, v_pool, bytes, quire_kernels::new_slots(where));
}

void write_slots(const Rows::Description& k, const Rows::Description& v,
                 const Rows::Description& k_pool, const Rows::Description& v_pool, int64_t bytes,
                 const IntsDescription& slots, const BlocksDescription& blocks) {
  write_both(k, v, k_pool, v_pool, bytes,
             quire_kernels::tokens_of_slots(Ints(slots), blocks_of(blocks)));
}

// tables: addresses of cos and sin [S, R / 2], S and R / 2.
void rotate(const Rows::Description& x_rows, uintptr_t out, int type,
            const IntsDescription& positions,
            const std::tuple<uintptr_t, uintptr_t, int64_t, int64_t>& tables, bool interleaved) {
  const Rows x(x_rows);
  const auto& [cos, sin, length, half] = tables;
  require(2 * half <= x.dim, "rotary_cos and rotary_sin do not fit");
  const Ints given(positions);
  require(given.size() == x.rows, "positions do not fit x");
  std::vector<int64_t> at;
  for (int64_t i = 0; i < given.size(); ++i) {
    require(given[i] >= 0 && given[i] < length, "a position is beyond rotary_cos");
    at.push_back(given[i]);
  }
  const quire_kernels::Rotation rotation{.type = float_type(type),
                                         .cos = reinterpret_cast<const void*>(cos),
                                         .sin = reinterpret_cast<const void*>(sin),
                                         .width = 2 * half,
                                         .interleaved = interleaved};
  const nb::gil_scoped_release release;
  quire_kernels::rotate_rows(x.data, reinterpret_cast<void*>(out), at.data(), x.rows, x.heads,
                             x.dim, rotation);
}

// arrays: addresses of qkv, the gates, a_log, dt_bias, state, y, log_decay and beta: the gates and
// what belongs to them, or log_decay and beta, are 0. shape: tokens, slots, K, H, Dk and Dv.
void delta_rule(const std::array<uintptr_t, 8>& arrays, int type, bool plain_state,
                const std::array<int64_t, 6>& shape, const IntsDescription& cu_seqlens,
                const IntsDescription& slots, const Vector<uint8_t>& fresh) {
  const auto [tokens, num_slots, k_heads, v_heads, k_dim, v_dim] = shape;
  quire::ops::GatedDeltaRuleParams p;
  p.type = float_type(type);
  p.k_heads = k_heads;
  p.v_heads = v_heads;
  p.k_dim = k_dim;
  p.v_dim = v_dim;
  p.gates_row = 2 * v_heads;
  p.b_column = v_heads;
  p.qkv = reinterpret_cast<const void*>(arrays[0]);
  p.gates = reinterpret_cast<const void*>(arrays[1]);
  p.a_log = reinterpret_cast<const float*>(arrays[2]);
  p.dt_bias = reinterpret_cast<const float*>(arrays[3]);
  p.state = reinterpret_cast<float*>(arrays[4]);
  p.y = reinterpret_cast<void*>(arrays[5]);
  p.log_decay = reinterpret_cast<const float*>(arrays[6]);
  p.beta = reinterpret_cast<const float*>(arrays[7]);
  p.plain_state = plain_state;
  const quire_kernels::DeltaSequences sequences{
      .cu_seqlens = Ints(cu_seqlens), .slots = Ints(slots), .fresh = span_of(fresh)};
  quire_kernels::check_sequences(sequences, tokens, num_slots);
  const nb::gil_scoped_release release;
  const std::lock_guard lock(g_threads->mutex);
  quire_kernels::run_delta_rule(g_threads->get(), p, sequences);
}

}  // namespace

NB_MODULE(_core, m) {
  quire::ops::cpu_isa();  // the choice of instructions, which kernels do not make themselves
  m.def("attend_cache", &attend_cache);
  m.def("attend_packed", &attend_packed);
  m.def("attend_segments", &attend_segments);
  m.def("append", &append);
  m.def("write_slots", &write_slots);
  m.def("rotate", &rotate);
  m.def("delta_rule", &delta_rule);
  m.def("isa_name", &quire::ops::cpu_isa_name,
        "The instruction set in use: \"amx\", \"avx512_bf16\", \"avx512\", \"avx2\", "
        "\"neon_bf16\", \"neon\" or \"portable\".");
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
