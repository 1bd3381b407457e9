#include "engine/cache_groups.h"

#include <algorithm>
#include <limits>
#include <map>

namespace quire::engine {
namespace {

using Layers = std::vector<models::CacheSpec>;
// Layers by their window, those that see all first, then by how far they see.
using Classes = std::map<int64_t, std::vector<int32_t>, std::greater<>>;
constexpr int64_t kAll = std::numeric_limits<int64_t>::max();

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Whether every layer keeps keys and values, and those of all have one shape.
bool are_alike(const Layers& layers) {
  const auto* first = std::get_if<models::KvCacheSpec>(&layers.front());
  return first && std::ranges::all_of(layers, [&](const models::CacheSpec& layer) {
           if (std::holds_alternative<models::SharedKvSpec>(layer)) return true;
           const auto* kv = std::get_if<models::KvCacheSpec>(&layer);
           return kv && kv->kv_heads == first->kv_heads && kv->head_dim == first->head_dim &&
                  kv->values_in_keys == first->values_in_keys;
         });
}

// No classes if a layer keeps something else than keys and values.
Classes classes_of(const Layers& layers, int64_t longest) {
  Classes classes;
  for (size_t i = 0; i < layers.size(); ++i) {
    if (std::holds_alternative<models::SharedKvSpec>(layers[i])) continue;
    const auto* kv = std::get_if<models::KvCacheSpec>(&layers[i]);
    if (!kv) return {};
    const bool sees_all = kv->window_left < 0 || kv->window_left >= longest;
    classes[sees_all ? kAll : kv->window_left].push_back(static_cast<int32_t>(i));
  }
  return classes;
}

struct Size {
  int64_t layers = 0, tables = 0;
  int64_t cost = 0;  // tokens that layers, or places for layers, keep
};

Size size_of(const Classes& classes, int64_t group, int64_t longest) {
  Size size{.layers = group};
  for (const auto& [window, layers] : classes) {
    const int64_t groups = ceil_div(static_cast<int64_t>(layers.size()), group);
    size.tables += groups;
    size.cost += groups * group * std::min(window, longest);
  }
  return size;
}

int64_t choose_group_size(const Classes& classes, int64_t longest) {
  std::vector<Size> sizes;
  size_t most = 0;
  for (const auto& [window, layers] : classes) most = std::max(most, layers.size());
  for (size_t group = 1; group <= most; ++group)
    sizes.push_back(size_of(classes, static_cast<int64_t>(group), longest));
  const int64_t least = std::ranges::min(sizes, {}, &Size::cost).cost;
  std::erase_if(sizes, [&](const Size& size) { return size.cost > least + least / 20; });
  return std::ranges::min(sizes, {},
                          [](const Size& size) { return std::pair(size.tables, size.cost); })
      .layers;
}

// Layers that share keys and values find them where the others do.
void point_to_others(const Layers& layers, CacheGroups& groups) {
  for (size_t i = 0; i < layers.size(); ++i)
    if (const auto* shared = std::get_if<models::SharedKvSpec>(&layers[i])) {
      const auto other = static_cast<size_t>(shared->layer);
      groups.table_of_layer[i] = groups.table_of_layer.at(other);
      groups.pool_of_layer[i] = groups.pool_of_layer.at(other);
    }
}

}  // namespace

CacheGroups one_table(const Layers& layers) {
  CacheGroups groups;
  for (const models::CacheSpec& layer : layers) {
    const auto* kv = std::get_if<models::KvCacheSpec>(&layer);
    groups.table_of_layer.push_back(0);
    groups.pool_of_layer.push_back(kv ? static_cast<int32_t>(groups.pools.size()) : -1);
    if (kv) groups.pools.push_back(*kv);
  }
  point_to_others(layers, groups);
  return groups;
}

CacheGroups group_layers(const Layers& layers, int64_t longest, bool several_tables) {
  const Classes classes = classes_of(layers, longest);
  CacheGroups groups = one_table(layers);
  if (classes.size() == 1 && classes.begin()->first != kAll)
    groups.windows = {classes.begin()->first};
  if (classes.size() < 2 || !several_tables || !are_alike(layers)) return groups;
  const int64_t size = choose_group_size(classes, longest);
  groups.windows.clear();
  groups.pools.resize(static_cast<size_t>(size));
  for (const auto& [window, members] : classes)
    for (size_t i = 0; i < members.size(); ++i) {
      const auto pool = static_cast<int32_t>(i % static_cast<size_t>(size));
      if (pool == 0) groups.windows.push_back(window == kAll ? -1 : window);
      groups.table_of_layer[members[i]] = static_cast<int32_t>(groups.windows.size()) - 1;
      groups.pool_of_layer[members[i]] = pool;
    }
  point_to_others(layers, groups);
  return groups;
}

CacheGroups groups_of(const models::Model& model) {
  return group_layers(model.cache_specs(), model.max_positions(),
                      model.context().device->host_memory() != nullptr);
}

}  // namespace quire::engine
