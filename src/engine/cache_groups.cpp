#include "engine/cache_groups.h"

#include <algorithm>
#include <limits>

namespace quire::engine {
namespace {

using Layers = std::vector<models::CacheSpec>;
using models::KvCacheSpec;
constexpr int64_t kAll = std::numeric_limits<int64_t>::max();

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t width_of(const KvCacheSpec& kv) { return kv.kv_heads * kv.head_dim; }

bool same_heads(const KvCacheSpec& a, const KvCacheSpec& b) {
  return a.kv_heads == b.kv_heads && a.head_dim == b.head_dim &&
         a.values_in_keys == b.values_in_keys;
}

// The widest keys and values; null unless every layer keeps such, in whole parts of that width.
const KvCacheSpec* widest_of(const Layers& layers) {
  const KvCacheSpec* widest = nullptr;
  for (const models::CacheSpec& layer : layers) {
    if (std::holds_alternative<models::SharedKvSpec>(layer)) continue;
    const auto* kv = std::get_if<KvCacheSpec>(&layer);
    if (!kv) return nullptr;
    if (!widest || width_of(*kv) > width_of(*widest)) widest = kv;
  }
  for (const models::CacheSpec& layer : layers) {
    const auto* kv = std::get_if<KvCacheSpec>(&layer);
    if (!kv || same_heads(*kv, *widest)) continue;
    if (kv->values_in_keys > 0 || widest->values_in_keys > 0) return nullptr;
    if (width_of(*widest) % width_of(*kv) != 0) return nullptr;
  }
  return widest;
}

// Layers that see equally far back and keep keys and values of one shape.
struct Class {
  int64_t window = kAll;
  KvCacheSpec kv = {};
  std::vector<int32_t> layers = {};
  int64_t parts = 1;  // of a place in a pool
};

// Those that see all first, then by how far they see. Shapes are told apart if `widest` is given.
// None if a layer keeps something else than keys and values.
std::vector<Class> classes_of(const Layers& layers, int64_t longest, const KvCacheSpec* widest) {
  std::vector<Class> classes;
  for (size_t i = 0; i < layers.size(); ++i) {
    if (std::holds_alternative<models::SharedKvSpec>(layers[i])) continue;
    const auto* kv = std::get_if<KvCacheSpec>(&layers[i]);
    if (!kv) return {};
    const bool sees_all = kv->window_left < 0 || kv->window_left >= longest;
    const int64_t window = sees_all ? kAll : kv->window_left;
    auto found = std::ranges::find_if(classes, [&](const Class& c) {
      return c.window == window && (!widest || same_heads(c.kv, *kv));
    });
    if (found == classes.end())
      found = classes.insert(
          found,
          {.window = window, .kv = *kv, .parts = widest ? width_of(*widest) / width_of(*kv) : 1});
    found->layers.push_back(static_cast<int32_t>(i));
  }
  std::ranges::stable_sort(classes, std::greater<>(), &Class::window);
  return classes;
}

struct Size {
  int64_t places = 0, tables = 0;
  int64_t cost = 0;  // tokens that places, with a layer or without, keep
};

Size size_of(const std::vector<Class>& classes, int64_t places, int64_t longest) {
  Size size{.places = places};
  for (const Class& c : classes) {
    const int64_t groups = ceil_div(static_cast<int64_t>(c.layers.size()), places * c.parts);
    size.tables += groups;
    size.cost += groups * places * std::min(c.window, longest);
  }
  return size;
}

int64_t choose_places(const std::vector<Class>& classes, int64_t longest) {
  std::vector<Size> sizes;
  size_t most = 0;
  for (const Class& c : classes) most = std::max(most, c.layers.size());
  for (size_t places = 1; places <= most; ++places)
    sizes.push_back(size_of(classes, static_cast<int64_t>(places), longest));
  const int64_t least = std::ranges::min(sizes, {}, &Size::cost).cost;
  std::erase_if(sizes, [&](const Size& size) { return size.cost > least + least / 20; });
  return std::ranges::min(sizes, {},
                          [](const Size& size) { return std::pair(size.tables, size.cost); })
      .places;
}

// Gives the class's layers places: pool by pool, and in each part after part.
void place(const Class& of, CacheGroups& groups) {
  const size_t places = groups.pools.size(), parts = static_cast<size_t>(of.parts);
  for (size_t i = 0; i < of.layers.size(); ++i) {
    const size_t at = i % (places * parts);
    if (at == 0) groups.windows.push_back(of.window == kAll ? -1 : of.window);
    const TableView view = {.table = static_cast<int32_t>(groups.windows.size()) - 1,
                            .parts = static_cast<int32_t>(parts),
                            .part = static_cast<int32_t>(at % parts)};
    auto known = std::ranges::find(groups.views, view);
    if (known == groups.views.end()) known = groups.views.insert(known, view);
    groups.view_of_layer[of.layers[i]] = static_cast<int32_t>(known - groups.views.begin());
    groups.pool_of_layer[of.layers[i]] = static_cast<int32_t>(at / parts);
  }
}

// Layers that share keys and values find them where the others do.
void point_to_others(const Layers& layers, CacheGroups& groups) {
  for (size_t i = 0; i < layers.size(); ++i)
    if (const auto* shared = std::get_if<models::SharedKvSpec>(&layers[i])) {
      const auto other = static_cast<size_t>(shared->layer);
      groups.view_of_layer[i] = groups.view_of_layer.at(other);
      groups.pool_of_layer[i] = groups.pool_of_layer.at(other);
    }
}

}  // namespace

CacheGroups one_table(const Layers& layers) {
  CacheGroups groups;
  for (const models::CacheSpec& layer : layers) {
    const auto* kv = std::get_if<models::KvCacheSpec>(&layer);
    groups.view_of_layer.push_back(0);
    groups.pool_of_layer.push_back(kv ? static_cast<int32_t>(groups.pools.size()) : -1);
    if (kv) groups.pools.push_back(*kv);
  }
  point_to_others(layers, groups);
  return groups;
}

CacheGroups group_layers(const Layers& layers, int64_t longest, bool several_tables) {
  const std::vector<Class> windows = classes_of(layers, longest, nullptr);
  CacheGroups groups = one_table(layers);
  if (windows.size() == 1 && windows[0].window != kAll) groups.windows = {windows[0].window};
  const KvCacheSpec* widest = widest_of(layers);
  if (windows.size() < 2 || !several_tables || !widest) return groups;
  const std::vector<Class> classes = classes_of(layers, longest, widest);
  groups.windows.clear();
  groups.views.clear();
  groups.pools.assign(static_cast<size_t>(choose_places(classes, longest)), *widest);
  for (const Class& c : classes) {
    place(c, groups);
    const bool known = std::ranges::any_of(
        groups.narrow, [&](const CacheGroups::Narrow& n) { return same_heads(n.kv, c.kv); });
    if (!known && !same_heads(c.kv, *widest))
      groups.narrow.push_back({c.kv, static_cast<int32_t>(c.parts)});
  }
  point_to_others(layers, groups);
  return groups;
}

CacheGroups groups_of(const models::Model& model) {
  return group_layers(model.cache_specs(), model.max_positions(),
                      model.context().device->host_memory() != nullptr);
}

}  // namespace quire::engine
