# quire_source_digest(OUTPUT rooms...): writes a C++ file with the digest of these rooms' sources (without tests and
# benches), of what says how they are compiled, and of the compiler: programs with the same digest compute the same bits.
# As a script (cmake -P) it is what writes the file.
function(quire_source_digest output)
  set(files ${PROJECT_SOURCE_DIR}/CMakeLists.txt)
  foreach(name kernels cuda quire source_digest)
    list(APPEND files ${PROJECT_SOURCE_DIR}/cmake/${name}.cmake)
  endforeach()
  list(APPEND files ${PROJECT_SOURCE_DIR}/cmake/mlx.lock ${PROJECT_SOURCE_DIR}/cmake/cuda.lock)
  foreach(room ${ARGN})
    foreach(ending cpp h cu cuh)
      file(GLOB_RECURSE some CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${room}/*.${ending})
      list(APPEND files ${some})
    endforeach()
  endforeach()
  list(FILTER files EXCLUDE REGEX "_(test|bench)\\.(cpp|h)$")
  list(SORT files)
  file(WRITE ${output}.files "${files}")
  add_custom_command(OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} "-DROOT=${PROJECT_SOURCE_DIR}" "-DOUTPUT=${output}"
            "-DCOMPILER=${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}" -P ${PROJECT_SOURCE_DIR}/cmake/source_digest.cmake
    DEPENDS ${files} VERBATIM)
endfunction()

if(CMAKE_SCRIPT_MODE_FILE)
  file(READ ${OUTPUT}.files files)
  set(all "${COMPILER}")
  foreach(file ${files})
    file(SHA256 ${file} digest)
    file(RELATIVE_PATH name ${ROOT} ${file})
    string(APPEND all "\n${name} ${digest}")
  endforeach()
  string(SHA256 digest "${all}")
  file(WRITE ${OUTPUT} "namespace quire::cli {\nextern const char* const kSourceDigest;\nconst char* const kSourceDigest = \"${digest}\";\n}\n")
endif()
