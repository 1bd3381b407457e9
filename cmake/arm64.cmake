# Compiles for 64-bit ARM Linux on another machine: Debian's cross compiler with the libraries that
# `tools/setup.sh --arm64` unpacked. Programs of the build (tests' lists, say) run in an emulator.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
get_filename_component(QUIRE_ARM64 ${CMAKE_CURRENT_LIST_DIR}/../build/deps/arm64 ABSOLUTE)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_SYSROOT ${QUIRE_ARM64}/root)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L ${QUIRE_ARM64}/root)
file(GLOB QUIRE_MLX_ROOT ${QUIRE_ARM64}/mlx-*)
set(CMAKE_FIND_ROOT_PATH ${QUIRE_MLX_ROOT})  # beside the libraries
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(CMAKE_GTEST_DISCOVER_TESTS_DISCOVERY_MODE PRE_TEST)
