# Compiler flags of our own code, as one interface target: third-party sources (nanobind) do not get them.
add_library(tatara_flags INTERFACE)
target_compile_options(tatara_flags INTERFACE -Wall -Wextra -Wconversion -Wshadow -Werror=switch)
if(TATARA_WERROR)
  target_compile_options(tatara_flags INTERFACE -Werror)
endif()
target_include_directories(tatara_flags INTERFACE "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}/include")

find_package(Threads REQUIRED)
target_link_libraries(tatara_flags INTERFACE Threads::Threads ${CMAKE_DL_LIBS})

# Sanitizers and coverage must reach every object and every link, so they are global.
if(TATARA_SANITIZE)
  add_compile_options(-fsanitize=${TATARA_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${TATARA_SANITIZE})
endif()
if(TATARA_COVERAGE)
  add_compile_options(--coverage -fprofile-update=atomic)
  add_link_options(--coverage)
endif()

# The standard headers that most sources use, parsed once for each set of flags: half of a build is the parsing of headers.
option(TATARA_PRECOMPILED_HEADERS "Precompile the standard headers" ON)
set(TATARA_STANDARD_HEADERS <algorithm> <array> <atomic> <charconv> <cmath> <cstdint> <cstring> <functional> <limits> <map>
    <memory> <mutex> <numeric> <optional> <set> <span> <string> <string_view> <tuple> <type_traits> <unordered_map>
    <unordered_set> <utility> <variant> <vector>)

# `target` makes its own precompiled headers, of these and the standard ones.
function(tatara_precompile target)
  if(TATARA_PRECOMPILED_HEADERS)
    target_precompile_headers(${target} PRIVATE ${TATARA_STANDARD_HEADERS} ${ARGN})
  endif()
endfunction()

# `target` takes those of `other`, which has the same flags.
function(tatara_reuse_precompiled target other)
  if(TATARA_PRECOMPILED_HEADERS)
    target_precompile_headers(${target} REUSE_FROM ${other})
  endif()
endfunction()

# `target` is built in three quarters of the time, to code that is a little slower: for what runs once for each function that is
# compiled, where LLVM takes most of the time (docs/decisions/031-a-cheaper-build.md).
function(tatara_optimize_less target)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
  endif()
endfunction()

# Sources of one folder are compiled together, a few at a time: headers are read, and templates made, once for all of them.
# `make lint` sees to it that no two files of a folder define an internal function of the same name. A file is compiled alone
# where it has options of its own, or SKIP_UNITY_BUILD_INCLUSION.
option(TATARA_UNITY "Compile sources of a folder together" ON)
if(TATARA_UNITY AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # A class of a source may hold one of its anonymous namespace; gcc takes the source for a header.
  target_compile_options(tatara_flags INTERFACE -Wno-subobject-linkage)
endif()
set(TATARA_UNITY_FILES 10)

function(tatara_unity target)
  if(NOT TATARA_UNITY)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  get_target_property(sources ${target} SOURCES)
  foreach(source IN LISTS sources)
    cmake_path(GET source PARENT_PATH folder)
    file(RELATIVE_PATH room "${PROJECT_SOURCE_DIR}/src" "${folder}")
    string(MAKE_C_IDENTIFIER "${room}" room)
    list(APPEND in_${room} "${source}")
    list(LENGTH in_${room} count)
    math(EXPR part "(${count} - 1) / ${TATARA_UNITY_FILES}")
    set_source_files_properties("${source}" PROPERTIES UNITY_GROUP "${room}_${part}")
  endforeach()
endfunction()
