# `make install PREFIX=...`: a tree that can be moved. The binary and embedding programs find libmlx by $ORIGIN.
#   bin/quire   lib/quire/{mlx,mlx_cpu.libs,rust}   lib/*.a   include/quire/   lib/cmake/quire/   share/quire/models/
include(GNUInstallDirs)

install(TARGETS quire RUNTIME)
install(DIRECTORY ${QUIRE_MLX_ROOT}/mlx DESTINATION lib/quire USE_SOURCE_PERMISSIONS)
if(NOT QUIRE_METAL)  # which takes its BLAS from macOS
  install(DIRECTORY ${QUIRE_MLX_ROOT}/mlx_cpu.libs DESTINATION lib/quire USE_SOURCE_PERMISSIONS)
endif()
install(DIRECTORY ${CMAKE_SOURCE_DIR}/models/quire-demo DESTINATION share/quire/models)

# The library: everything up to the engine.
install(TARGETS quire_options quire_base quire_formats quire_text quire_ops quire_models quire_engine_host quire_engine
        EXPORT quireTargets ARCHIVE DESTINATION lib)
install(FILES ${QUIRE_RUST_LIB} DESTINATION lib/quire/rust)  # of the same name as the room's own library
install(DIRECTORY ${CMAKE_SOURCE_DIR}/src/ DESTINATION include/quire FILES_MATCHING PATTERN "*.h"
        PATTERN "server" EXCLUDE PATTERN "bench" EXCLUDE PATTERN "cli" EXCLUDE)
if(QUIRE_CUDA)
  install(FILES ${QUIRE_CUDA_ROOT}/lib64/libcudart_static.a DESTINATION lib/quire/cuda)
endif()
install(EXPORT quireTargets NAMESPACE quire:: DESTINATION lib/cmake/quire)
include(CMakePackageConfigHelpers)
write_basic_package_version_file(quireConfigVersion.cmake COMPATIBILITY ExactVersion)
install(FILES ${CMAKE_SOURCE_DIR}/cmake/quireConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/quireConfigVersion.cmake
        DESTINATION lib/cmake/quire)
