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
