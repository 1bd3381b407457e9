#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "models/layer_spec.h"
#include "models/model.h"

namespace quire::engine {

// A block table as some layers see it: of the scheduler's block b they have the `part`-th of
// `parts` equal parts, which is block b * parts + part of a pool that is taken for one of smaller
// blocks.
struct TableView {
  int32_t table = 0, parts = 1, part = 0;
  bool operator==(const TableView&) const = default;
};

// Those of a model, for build_batch.
struct TableViews {
  std::vector<TableView> views = {{}};
  std::shared_ptr<const std::vector<int32_t>> of_layer = nullptr;  // null: all have the first one
};

// How the layers of a model share KV pools and block tables.
//
// Layers that see equally far back form groups of one size, each with a block table of its own. A
// block is of one group: block b is the b-th part of every pool, and layer i of each group keeps
// its tokens in pool i. So there is one kind of block for all groups, and memory goes to whoever
// needs it. With 4 layers that see all and 22 with a window, in groups of 4:
//
//             table 0    table 1    table 2    ..    table 6
//   pool 0    layer 5    layer 0    layer 4          layer 24
//   pool 1    layer 11   layer 1    layer 6          layer 25
//   pool 2    layer 17   layer 2    layer 7             -
//   pool 3    layer 23   layer 3    layer 8             -
//             see all    see the window alone
//
// Pools are for the widest keys and values. Of layers whose keys and values are of a whole part of
// that, `parts` share a place: each has a part of every block (TableView).
//
// Without windows there is one table, and a pool for each layer. Layers that read the keys and
// values of another one count for nothing: theirs are its table and its pool.
struct CacheGroups {
  // Heads other than the pools': what such layers see instead, as many times as it fits a place.
  struct Narrow {
    models::KvCacheSpec kv;
    int32_t parts = 1;
  };

  std::vector<int64_t> windows = {-1};      // of each table, as BlockDemand wants them
  std::vector<models::KvCacheSpec> pools;   // a block holds the tokens of a layer of each
  std::vector<Narrow> narrow = {};          // shapes beside those of the pools
  std::vector<TableView> views = {{}};      // how layers see tables; the first is of table 0
  std::vector<int32_t> view_of_layer = {};  // 0 for layers that keep no keys and values
  std::vector<int32_t> pool_of_layer = {};  // -1 for those

  int32_t table_of_layer(size_t layer) const {
    return views[static_cast<size_t>(view_of_layer[layer])].table;
  }
};

// All layers in one table, nothing given back.
CacheGroups one_table(const std::vector<models::CacheSpec>& layers);

// What saves memory for sequences of up to `longest` tokens. Windows of all layers that are equal
// need no more than one table. Otherwise, if the device can have `several_tables` and the keys and
// values of all layers have the same shape or are whole parts of the widest, groups are as large as
// costs least at that length, or within 5 % of it if that makes fewer tables. All else, and models
// with recurrent layers: one_table.
CacheGroups group_layers(const std::vector<models::CacheSpec>& layers, int64_t longest,
                         bool several_tables);
// The same for a model on its device.
CacheGroups groups_of(const models::Model& model);

}  // namespace quire::engine
