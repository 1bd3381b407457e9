#pragma once
#include <optional>
#include <string_view>

#include "ops/layout/kv_type.h"

namespace quire::engine {

struct KvStorageName {
  const char* name;
  ops::KvStorage storage;
};

// What --kv-cache-dtype takes. The first name of a storage is the one that is shown.
inline constexpr KvStorageName kKvStorageNames[] = {
    {"auto", ops::KvStorage::kAuto},
    {"int8", ops::KvStorage::kInt8},
    {"fp8_e4m3", ops::KvStorage::kFp8},
    {"fp8", ops::KvStorage::kFp8},
};

constexpr const char* kv_storage_name(ops::KvStorage storage) {
  for (const KvStorageName& entry : kKvStorageNames)
    if (entry.storage == storage) return entry.name;
  return "unknown";
}

constexpr std::optional<ops::KvStorage> find_kv_storage(std::string_view name) {
  for (const KvStorageName& entry : kKvStorageNames)
    if (entry.name == name) return entry.storage;
  return std::nullopt;
}

}  // namespace quire::engine
