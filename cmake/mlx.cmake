# Finds the MLX that `make setup` unpacked under build/deps, exactly the pinned version.
file(STRINGS ${CMAKE_SOURCE_DIR}/cmake/mlx.lock QUIRE_MLX_PIN REGEX "^mlx-")
string(REPLACE " " ";" QUIRE_MLX_PIN "${QUIRE_MLX_PIN}")
list(GET QUIRE_MLX_PIN 0 QUIRE_MLX_PACKAGE)
list(GET QUIRE_MLX_PIN 1 QUIRE_MLX_VERSION)
set(QUIRE_MLX_ROOT ${CMAKE_SOURCE_DIR}/build/deps/${QUIRE_MLX_PACKAGE}-${QUIRE_MLX_VERSION}
    CACHE PATH "Unpacked MLX wheel: holds mlx/ and mlx_cpu.libs/")
if(NOT EXISTS ${QUIRE_MLX_ROOT}/mlx/lib/libmlx.so)
  message(FATAL_ERROR "MLX ${QUIRE_MLX_VERSION} is not at ${QUIRE_MLX_ROOT}: run `make setup`.")
endif()
# MLX's version file accepts any newer one of the same major; its ABI does not.
set(MLX_DIR ${QUIRE_MLX_ROOT}/mlx/share/cmake/MLX)
find_package(MLX ${QUIRE_MLX_VERSION} EXACT CONFIG REQUIRED)
# MLX's headers are not ours to warn about.
set_target_properties(mlx PROPERTIES IMPORTED_NO_SYSTEM OFF)
