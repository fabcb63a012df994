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
