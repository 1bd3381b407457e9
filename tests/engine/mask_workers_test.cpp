// The threads that work grammar masks out.
#include "engine/mask_workers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <latch>
#include <semaphore>
#include <thread>

#include "base/source_dir.h"
#include "text/tokenizer.h"

namespace quire::engine {
namespace {

using Kind = text::GrammarSpec::Kind;
using RowPtr = MaskWorkers::RowPtr;
using std::chrono::seconds;

constexpr seconds kLong(120);  // only a hang takes longer

class MaskWorkersTest : public testing::Test {
 protected:
  MaskWorkersTest()
      : tokenizer_(text::Tokenizer::load(source_dir() + "/models/quire-demo")),
        factory_(text::GrammarFactory::create(
            tokenizer_, std::vector<int32_t>{*tokenizer_->special_token_id("eos_token")})) {}

  text::GrammarMatcher compile(std::string_view lark) const {
    auto compiled = factory_->compile({Kind::kLark, lark});
    EXPECT_TRUE(compiled.ok()) << compiled.error();
    return std::move(*compiled);
  }
  static std::unique_ptr<text::GrammarMatcher> copy(const text::GrammarMatcher& matcher) {
    return std::make_unique<text::GrammarMatcher>(matcher.clone());
  }
  int32_t token(std::string_view text) const { return tokenizer_->encode(text, false)->front(); }

  std::shared_ptr<const text::Tokenizer> tokenizer_;
  std::shared_ptr<const text::GrammarFactory> factory_;
  const text::GrammarMatcher digits_ = compile("start: /[0-9]{3}/");
};

TEST_F(MaskWorkersTest, MasksAreThoseOfTheMatcher) {
  MaskWorkers workers(2, tokenizer_->vocab_size());
  text::GrammarMatcher direct = digits_.clone();
  std::vector<uint32_t> expected((tokenizer_->vocab_size() + 31) / 32);
  const std::vector<RowPtr> row = {workers.add(copy(digits_), 0)};
  EXPECT_FALSE(workers.is_wanted(row[0]));
  std::optional<int32_t> last;
  for (int step = 0; step < 3; ++step) {
    workers.request(row[0], last);
    EXPECT_TRUE(workers.is_wanted(row[0]));
    ASSERT_TRUE(workers.wait(row, 1, kLong));
    const TokenMask mask = workers.take(row[0]);
    EXPECT_FALSE(workers.is_wanted(row[0]));
    ASSERT_TRUE(direct.fill_mask(expected).ok());
    ASSERT_TRUE(mask.words) << mask.error;
    EXPECT_EQ(*mask.words, expected);
    last = token("7");
    ASSERT_TRUE(*direct.accept(*last));
  }
}

TEST_F(MaskWorkersTest, OnlyLimitsAreTheClientsFault) {
  MaskWorkers workers(1, tokenizer_->vocab_size());
  const std::vector<RowPtr> rows = {workers.add(copy(digits_), 0),
                                    workers.add(copy(compile("start: e\ne: e e e | e e | T\n"
                                                             "T: /[a-z ]/\n")),
                                                0)};
  workers.request(rows[0], token("x"));  // which no mask has allowed
  ASSERT_TRUE(workers.wait({rows.data(), 1}, 1, kLong));
  EXPECT_FALSE(workers.take(rows[0]).client_is_to_blame);
  TokenMask mask;
  std::optional<int32_t> last;
  for (int step = 0; step < 500 && mask.error.empty(); ++step) {
    workers.request(rows[1], last);
    ASSERT_TRUE(workers.wait({&rows[1], 1}, 1, kLong));
    mask = workers.take(rows[1]);
    last = token("a");
  }
  EXPECT_THAT(mask.error, testing::HasSubstr("the grammar takes too long"));
  EXPECT_TRUE(mask.client_is_to_blame);
  EXPECT_FALSE(mask.words);
}

// Sixteen answers of one request that has taken much, then one of another's. The worker waits for a
// permit before each mask, so it has begun the first one when the others arrive.
TEST_F(MaskWorkersTest, LeastCpuTimeTakenGoesFirst) {
  std::counting_semaphore<> permits(0);
  std::latch begun(1);
  MaskWorkers workers(1, tokenizer_->vocab_size(), [&] {
    if (!begun.try_wait()) begun.count_down();
    permits.acquire();
  });
  text::GrammarMatcher slow = compile("start: e\ne: e e e | e e | T\nT: /[a-z ]/\n");
  std::vector<uint32_t> mask((tokenizer_->vocab_size() + 31) / 32);
  for (int step = 0; step < 6; ++step) {
    ASSERT_TRUE(slow.fill_mask(mask).ok());
    ASSERT_TRUE(*slow.accept(token("a")));
  }
  std::vector<RowPtr> slow_rows;
  for (int i = 0; i < 16; ++i) {
    slow_rows.push_back(workers.add(copy(slow), 0));
    workers.request(slow_rows.back(), std::nullopt);
  }
  begun.wait();
  const std::vector<RowPtr> quick = {workers.add(copy(digits_), 0)};
  workers.request(quick[0], std::nullopt);
  permits.release(2);
  EXPECT_TRUE(workers.wait(quick, 1, kLong));
  const auto is_ready = [&](const RowPtr& row) { return workers.is_ready(row); };
  EXPECT_EQ(std::ranges::count_if(slow_rows, is_ready), 1);
  permits.release(15);
  EXPECT_TRUE(workers.wait(slow_rows, slow_rows.size(), kLong));
}

// Sixteen requests that have taken nothing yet, of a tenant that has; and another tenant's, of
// which its request alone has taken more. The worker has begun the first one when the others
// arrive.
TEST_F(MaskWorkersTest, TheTenantThatHasTakenLessGoesFirst) {
  std::atomic<int> begun = 0;
  std::counting_semaphore<> permits(1);
  MaskWorkers workers(1, tokenizer_->vocab_size(), [&] {
    ++begun;
    permits.acquire();
  });
  constexpr std::string_view kSlow = "start: e\ne: e e e | e e | T\nT: /[a-z ]/\n";
  const std::vector<RowPtr> earlier = {workers.add(copy(compile(kSlow)), 1)};
  workers.request(earlier[0], std::nullopt);
  ASSERT_TRUE(workers.wait(earlier, 1, kLong));

  text::GrammarMatcher used = compile(kSlow);
  std::vector<uint32_t> mask((tokenizer_->vocab_size() + 31) / 32);
  for (int step = 0; step < 3; ++step) {
    ASSERT_TRUE(used.fill_mask(mask).ok());
    ASSERT_TRUE(*used.accept(token("a")));
  }
  std::vector<RowPtr> many;
  for (int i = 0; i < 16; ++i) many.push_back(workers.add(copy(compile(kSlow)), 1));
  const std::vector<RowPtr> other = {workers.add(copy(used), 2)};
  for (const RowPtr& row : many) workers.request(row, std::nullopt);
  while (begun < 2) std::this_thread::yield();
  workers.request(other[0], std::nullopt);
  permits.release(2);
  EXPECT_TRUE(workers.wait(other, 1, kLong));
  const auto is_ready = [&](const RowPtr& row) { return workers.is_ready(row); };
  EXPECT_EQ(std::ranges::count_if(many, is_ready), 1);
  permits.release(15);
  EXPECT_TRUE(workers.wait(many, many.size(), kLong));
}

// Four requests of a tenant that has taken much keep one thread busy, not both: the first mask
// holds its thread, and then only another tenant's is worked out.
TEST_F(MaskWorkersTest, OneThreadIsKeptForTenantsThatTakeLittle) {
  std::atomic<bool> gated = false;
  std::atomic<int> begun = 0;
  std::latch open(1);
  const auto before_mask = [&] {
    if (gated && begun++ == 0) open.wait();
  };
  MaskWorkers workers(1, tokenizer_->vocab_size(), before_mask, 1);
  text::GrammarMatcher slow = compile("start: e\ne: e e e | e e | T\nT: /[a-z ]/\n");
  // Each mask takes little, so that none comes near a limit; all of them much, so that it is not
  // forgotten soon.
  for (int step = 0; step < 4; ++step) ASSERT_TRUE(*slow.accept(token("a")));
  while (slow.cpu_time() < std::chrono::milliseconds(500)) {
    const std::vector<RowPtr> one = {workers.add(copy(slow), 1)};
    workers.request(one[0], std::nullopt);
    ASSERT_TRUE(workers.wait(one, 1, kLong));
    ASSERT_TRUE(workers.take(one[0]).words);
  }
  gated = true;
  std::vector<RowPtr> rows;
  for (int i = 0; i < 4; ++i) {
    rows.push_back(workers.add(copy(compile("start: /[a-z]*/")), 1));
    workers.request(rows.back(), std::nullopt);
  }
  while (begun == 0) std::this_thread::yield();
  // A second thread that worked for the same tenant would be done by now; a slow machine may only
  // hide that.
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  const std::vector<RowPtr> other = {workers.add(copy(digits_), 2)};
  workers.request(other[0], std::nullopt);
  EXPECT_TRUE(workers.wait(other, 1, kLong));
  const auto is_ready = [&](const RowPtr& row) { return workers.is_ready(row); };
  EXPECT_EQ(std::ranges::count_if(rows, is_ready), 0)
      << "the second thread works for the same tenant";
  open.count_down();
  EXPECT_TRUE(workers.wait(rows, rows.size(), kLong));
}

// A grammar's account refuses: nobody is to blame, and a later try may succeed.
TEST_F(MaskWorkersTest, MemoryThatIsRefusedIsNotTheClientsFault) {
  struct Little final : text::GrammarMemory {
    bool try_add(size_t bytes) override { return (left -= static_cast<int64_t>(bytes)) >= 0; }
    int64_t left = 300 << 10;
  };
  auto grows =
      factory_->compile({Kind::kRegex, ".*a.{20}|.*b.{21}|.*c.{22}"}, std::make_unique<Little>());
  ASSERT_TRUE(grows.ok()) << grows.error();
  MaskWorkers workers(1, tokenizer_->vocab_size());
  const std::vector<RowPtr> row = {workers.add(copy(*grows), 0)};
  TokenMask mask;
  for (int step = 0; step < 500 && mask.error.empty(); ++step) {
    workers.request(row[0], step == 0 ? std::nullopt : std::optional(token("a")));
    ASSERT_TRUE(workers.wait(row, 1, kLong));
    mask = workers.take(row[0]);
  }
  EXPECT_EQ(mask.error, text::kNoGrammarMemory);
  EXPECT_TRUE(mask.lacks_memory);
  EXPECT_FALSE(mask.client_is_to_blame);
}

TEST_F(MaskWorkersTest, DroppedRowsAreNotWorkedOut) {
  const text::GrammarMatcher counted = compile("start: /[0-9]{4}/");
  {
    std::latch open(1);  // however slow this thread is, the worker does not come so far
    MaskWorkers workers(1, tokenizer_->vocab_size(), [&] { open.wait(); });
    std::vector<RowPtr> rows;
    for (int i = 0; i < 100; ++i)
      rows.push_back(workers.add(copy(compile("start: /[a-z]{30}/")), 0));
    for (const RowPtr& row : rows) workers.request(row, std::nullopt);
    const RowPtr dropped = workers.add(copy(counted), 0);
    workers.request(dropped, std::nullopt);
    workers.drop(dropped);
    open.count_down();
  }  // the rest of the queue is given up as well
  EXPECT_EQ(counted.cpu_time().count(), 0);
}

}  // namespace
}  // namespace quire::engine
