# tatara_source_hash(RESULT BASE PATTERN...): a hash of the contents of every file under BASE that matches a pattern, folders
# inside of it included, so that a file that moves into one still counts. A pattern without files is an error: it names a
# place that is no longer there. The build is configured anew when one of the files changes, comes or goes.
function(tatara_source_hash result base)
  set(hashes "")
  foreach(pattern IN LISTS ARGN)
    file(GLOB_RECURSE found CONFIGURE_DEPENDS "${base}/${pattern}")
    if(NOT found)
      message(FATAL_ERROR "tatara_source_hash: no file matches ${base}/${pattern}")
    endif()
    foreach(source IN LISTS found)
      file(SHA256 "${source}" hash)
      string(APPEND hashes "${hash}")
    endforeach()
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${found})
  endforeach()
  string(SHA256 hash "${hashes}")
  set(${result} "${hash}" PARENT_SCOPE)
endfunction()
