#include "ops/linear/product_tasks.h"

#include <gmock/gmock.h>

namespace quire::ops {
namespace {

using Groups = std::vector<std::vector<int64_t>>;

std::vector<LinearParams> products_of(const std::vector<int64_t>& rows) {
  std::vector<LinearParams> products;
  for (const int64_t count : rows) products.push_back({.rows = count});
  return products;
}
std::vector<int64_t> rows_of(std::span<const LinearParams> products) {
  std::vector<int64_t> rows;
  for (const LinearParams& p : products) rows.push_back(p.rows);
  return rows;
}

Groups groups_of(const std::vector<int64_t>& rows) {
  Groups groups;
  run_in_groups(products_of(rows), 256,
                [&](std::span<const LinearParams> group) { groups.push_back(rows_of(group)); });
  return groups;
}

TEST(ProductTasks, NeighboursAreGroupedUpToTheLimit) {
  EXPECT_EQ(groups_of({}), Groups{});
  EXPECT_EQ(groups_of({3}), (Groups{{3}}));
  EXPECT_EQ(groups_of({128, 128, 1}), (Groups{{128, 128}, {1}}));
  EXPECT_EQ(groups_of({256, 0}), (Groups{{256, 0}}));
  EXPECT_EQ(groups_of({10, 300, 10, 20}), (Groups{{10}, {300}, {10, 20}}));
  EXPECT_EQ(groups_of({300, 300}), (Groups{{300}, {300}}));
}

TEST(ProductTasks, ThoseOfFewRowsGoTogether) {
  Groups together;
  std::vector<int64_t> alone;
  run_few_together(
      products_of({1, 33, 0, 32, 40, 7}), 32,
      [&](std::span<const LinearParams> few) { together.push_back(rows_of(few)); },
      [&](const LinearParams& p) { alone.push_back(p.rows); });
  EXPECT_EQ(together, (Groups{{1, 32, 7}}));
  EXPECT_THAT(alone, testing::ElementsAre(33, 40));
  run_few_together(
      products_of({0}), 32, [](std::span<const LinearParams>) { FAIL(); },
      [](const LinearParams&) { FAIL(); });
}

}  // namespace
}  // namespace quire::ops
