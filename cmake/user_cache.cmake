# quire_user_cache(VARIABLE NAME FALLBACK): a folder that all clones of a user share, made if it is not there:
# $XDG_CACHE_HOME/quire/NAME, or else ~/.cache/quire/NAME. FALLBACK where there is neither, or no right to write to it.
function(quire_user_cache variable name fallback)
  set(${variable} ${fallback} PARENT_SCOPE)
  if(IS_ABSOLUTE "$ENV{XDG_CACHE_HOME}")  # one that is empty or relative counts as unset
    set(folder "$ENV{XDG_CACHE_HOME}/quire/${name}")
  elseif(IS_ABSOLUTE "$ENV{HOME}")
    set(folder "$ENV{HOME}/.cache/quire/${name}")
  else()
    return()
  endif()
  execute_process(COMMAND ${CMAKE_COMMAND} -E make_directory "${folder}" ERROR_QUIET)
  execute_process(COMMAND ${CMAKE_COMMAND} -E touch "${folder}/.lock" RESULT_VARIABLE error ERROR_QUIET)
  if(NOT error)
    set(${variable} "${folder}" PARENT_SCOPE)
  endif()
endfunction()
