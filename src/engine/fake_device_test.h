#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/scheduler.h"

namespace quire::engine::testing {

// The model of these tests: the "K and V" of a position is a hash of all tokens up to it and of the
// salt, and the next token is a function of the last position's hash alone.
uint64_t root_hash(std::string_view salt);
uint64_t extend_hash(uint64_t prefix, int32_t token);
int32_t next_token(uint64_t prefix);

inline constexpr int32_t kVocabSize = 20;
inline constexpr int32_t kEos = 0;

// What a request must produce, whatever runs beside it.
struct Outcome {
  std::vector<int32_t> tokens;  // prompt and output
  std::optional<FinishReason> finish;
  std::optional<int32_t> stop_token;
  bool operator==(const Outcome&) const = default;
};
Outcome run_alone(const Request& request, std::string_view salt, int64_t max_model_len);

// Deliberate bugs, to see that the device notices.
enum class Fault {
  kNone,
  kForeignBlock,
  kSkippedWrite,
  kStalePending,
  kIgnoredSalt,
  kEarlySave,       // of the state: before the step instead of after it
  kSkippedRestore,  // of the state, sometimes
  kForeignState,    // some sequences use another's slot
  kWideWindow,      // rows look a block further back than their layers see
};

// Memory with one number per slot, and steps that run in the order of their launch. Free blocks
// hold rubbish. Each step writes its tokens through the block tables, then every row reads back
// what its layers see and must find its own prefix at each position. With recurrent state each slot
// is one number more: the hash of all tokens fed so far, which a step reads unless it begins at
// position 0, and replaces. What is wrong is kept in error(), the first only.
class FakeDevice {
 public:
  FakeDevice(const Scheduler& scheduler, Fault fault);

  // Runs a step; returns the tokens it samples.
  std::vector<int32_t> launch(const StepPlan& plan);
  // The salt that a sequence really has (the scheduler may be told another one).
  void set_salt(RequestId id, std::string salt) { salts_[id] = std::move(salt); }
  // What a failed device leaves behind.
  void scramble();
  const std::string& error() const { return error_; }

 private:
  struct Fed {
    std::vector<uint64_t> prefixes;  // of positions 0 .. end - 1
  };
  void check_plan(const StepPlan& plan);
  Fed feed(const StepItem& item);
  int32_t token_at(const StepItem& item, int64_t position);
  void write(const StepItem& item, const Fed& fed);
  void read_back(const StepItem& item, const Fed& fed);
  void copy_states(const std::vector<StateCopy>& copies, bool saves);
  void advance_state(const StepItem& item, const Fed& fed);
  int64_t slot(const Sequence& sequence, int64_t position, size_t table = 0) const;
  void scramble_free();
  void fail(const std::string& what, const Sequence& sequence, int64_t position);

  const Scheduler& scheduler_;
  const Fault fault_;
  int64_t num_launches_ = 0;
  std::vector<uint64_t> memory_;
  std::vector<uint64_t> states_;
  std::unordered_map<RequestId, std::string> salts_;
  // The token sampled last, and by which launch.
  struct Sampled {
    int32_t token = -1, before = -1;
    int64_t launch = 0;
  };
  std::unordered_map<RequestId, Sampled> sampled_;
  std::string error_;
};

// A launched step, and the tokens that it samples.
struct LaunchedStep {
  StepPlan plan;
  std::vector<int32_t> tokens;
};

// The device loses its memory, so the requests of the step in flight end and no cached prefix is
// left. Returns the ids of these requests.
std::vector<RequestId> lose_memory(Scheduler& scheduler, FakeDevice& device,
                                   std::optional<LaunchedStep>& in_flight);

}  // namespace quire::engine::testing
