# Finds the MLX that `make setup` unpacked under build/deps, exactly the pinned version. On a Mac with Apple silicon that is the
# wheel for Metal (cmake/metal.lock), elsewhere the one for CPUs. QUIRE_METAL: the GPU of this Mac can be used.
set(QUIRE_METAL OFF)
if(APPLE)
  if(NOT CMAKE_SYSTEM_PROCESSOR STREQUAL "arm64")
    message(FATAL_ERROR "MLX has no wheel for Macs with Intel's processors")
  endif()
  set(QUIRE_METAL ON)
endif()
file(STRINGS ${CMAKE_SOURCE_DIR}/cmake/mlx.lock QUIRE_MLX_PIN REGEX "^mlx-")
string(REPLACE " " ";" QUIRE_MLX_PIN "${QUIRE_MLX_PIN}")
list(GET QUIRE_MLX_PIN 0 QUIRE_MLX_PACKAGE)
list(GET QUIRE_MLX_PIN 1 QUIRE_MLX_VERSION)
if(QUIRE_METAL)
  set(QUIRE_MLX_PACKAGE mlx-metal)
endif()
set(QUIRE_MLX_ROOT ${CMAKE_SOURCE_DIR}/build/deps/${QUIRE_MLX_PACKAGE}-${QUIRE_MLX_VERSION}
    CACHE PATH "Unpacked MLX wheel: holds mlx/ and mlx_cpu.libs/")
if(NOT EXISTS ${QUIRE_MLX_ROOT}/mlx/lib/libmlx${CMAKE_SHARED_LIBRARY_SUFFIX})
  message(FATAL_ERROR "MLX ${QUIRE_MLX_VERSION} is not at ${QUIRE_MLX_ROOT}: run `make setup`.")
endif()
# MLX's version file accepts any newer one of the same major; its ABI does not.
set(MLX_DIR ${QUIRE_MLX_ROOT}/mlx/share/cmake/MLX)
find_package(MLX ${QUIRE_MLX_VERSION} EXACT CONFIG REQUIRED)
if(QUIRE_METAL)  # the wheel names the frameworks by their places on the machine that made it
  set_target_properties(mlx PROPERTIES INTERFACE_LINK_LIBRARIES
                        "-framework Metal;-framework Foundation;-framework QuartzCore;-framework Accelerate")
endif()
# MLX's headers are not ours to warn about.
set_target_properties(mlx PROPERTIES IMPORTED_NO_SYSTEM OFF)
