# The Python extension tatara._core: src/capture and src/bindings over the core.
find_package(Python 3.11 REQUIRED COMPONENTS Interpreter Development.Module)
file(GLOB_RECURSE capture_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/capture/*.cpp")
file(GLOB_RECURSE binding_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/bindings/*.cpp")

if(NOT binding_sources)
  message(STATUS "src/bindings has no sources: no Python extension")
else()
  execute_process(COMMAND "${Python_EXECUTABLE}" -m nanobind --cmake_dir OUTPUT_STRIP_TRAILING_WHITESPACE
                  OUTPUT_VARIABLE nanobind_ROOT COMMAND_ERROR_IS_FATAL ANY)
  find_package(nanobind CONFIG REQUIRED)

  nanobind_add_module(_core NB_STATIC NOMINSIZE ${binding_sources})
  target_link_libraries(_core PRIVATE tatara_core tatara_flags)
  tatara_optimize_less(_core)  # calls of compiled functions do not pass through nanobind
  tatara_optimize_less(nanobind-static)
  # As system directories: our warnings are not for their headers.
  target_include_directories(_core SYSTEM PRIVATE ${NB_DIR}/include ${Python_INCLUDE_DIRS})

  if(TATARA_UNITY)
    # As nanobind's own nb_combined.cpp.
    set_target_properties(nanobind-static PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
  endif()

  if(capture_sources)
    # The rooms of tracing by themselves: a call of a compiled function runs little of them (tapes that do not compile, transactions).
    set(tracing_sources ${capture_sources})
    list(FILTER tracing_sources INCLUDE REGEX "/src/capture/(trace|graph|tape)/")
    list(FILTER capture_sources EXCLUDE REGEX "/src/capture/(trace|graph|tape)/")
    add_library(tatara_capture STATIC ${capture_sources})
    add_library(tatara_tracing OBJECT ${tracing_sources})
    tatara_precompile(tatara_tracing)
    tatara_reuse_precompiled(tatara_capture tatara_tracing)
    tatara_optimize_less(tatara_tracing)
    foreach(target tatara_capture tatara_tracing)
      target_link_libraries(${target} PUBLIC tatara_core tatara_flags)
      # CPython's headers are not ours: no warnings from them. The frame layouts are in internal/.
      target_include_directories(${target} SYSTEM PUBLIC ${Python_INCLUDE_DIRS})
      target_include_directories(${target} SYSTEM PRIVATE ${Python_INCLUDE_DIRS}/internal)
      tatara_unity(${target})
    endforeach()
    target_sources(tatara_capture PRIVATE $<TARGET_OBJECTS:tatara_tracing>)  # each uses the other
    target_link_libraries(_core PRIVATE tatara_capture)
  endif()

  if(TATARA_EXTENSION_DIR)
    set_target_properties(_core PROPERTIES LIBRARY_OUTPUT_DIRECTORY "${TATARA_EXTENSION_DIR}")
  endif()
  install(TARGETS _core LIBRARY DESTINATION tatara COMPONENT python)
endif()
