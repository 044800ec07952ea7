# thinwire_plugin(kind name [target]): compiles thinwire/<kind>/<name>.cpp into the target, its test into the
# kind's test program, and lists the name in a generated include, so that a static library keeps it.
# Fails at configure time when the test or the page is missing.
function(thinwire_plugin kind name target)
  set(page docs/methods/${name}.md)
  foreach(need thinwire/${kind}/${name}.cpp tests/${kind}/${name}_test.cpp ${page})
    if(NOT EXISTS ${PROJECT_SOURCE_DIR}/${need})
      message(FATAL_ERROR "plug-in '${kind}/${name}' lacks ${need}")
    endif()
  endforeach()
  set(source ${PROJECT_SOURCE_DIR}/thinwire/${kind}/${name}.cpp)
  target_sources(${target} PRIVATE ${source})
  # A method need not know the names that others use in their files. Those on torch are joined all the same, for its
  # headers take most of ten seconds a source: there a name that two methods use is an error of the compiler.
  if(NOT target STREQUAL "thinwire")
    set_source_files_properties(${source} TARGET_DIRECTORY ${target} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endif()
  string(MAKE_C_IDENTIFIER ${kind} kind_id)
  set_property(GLOBAL APPEND PROPERTY thinwire_plugins_${kind_id} ${name})
  set_property(GLOBAL APPEND PROPERTY thinwire_plugin_tests_${kind_id}
               ${PROJECT_SOURCE_DIR}/tests/${kind}/${name}_test.cpp)
endfunction()

# thinwire_codec(name): a codec's source is compiled twice. With TW_PAYLOAD, and without torch, it is what plans know of
# the codec; else it is the codec.
function(thinwire_codec name)
  if(TW_TORCH)
    thinwire_plugin(codec ${name} thinwire)
  else()
    set_property(GLOBAL APPEND PROPERTY thinwire_plugins_codec ${name})
  endif()
  target_sources(thinwire_payloads PRIVATE ${PROJECT_SOURCE_DIR}/thinwire/codec/${name}.cpp)
endfunction()

# thinwire_memory(name): a memory is compiled with torch; a build without knows its name.
function(thinwire_memory name)
  if(TW_TORCH)
    thinwire_plugin(codec/memory ${name} thinwire)
  else()
    set_property(GLOBAL APPEND PROPERTY thinwire_plugins_codec_memory ${name})
  endif()
endfunction()

# thinwire_write_builtin(kind): writes gen/builtin_<kind>.inc with one line TW_PLUGIN(name) a plug-in.
function(thinwire_write_builtin kind)
  string(MAKE_C_IDENTIFIER ${kind} kind_id)
  get_property(names GLOBAL PROPERTY thinwire_plugins_${kind_id})
  list(TRANSFORM names PREPEND "TW_PLUGIN(" OUTPUT_VARIABLE lines)
  list(TRANSFORM lines APPEND ")\n")
  string(REPLACE ";" "" text "${lines}")
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/gen/builtin_${kind_id}.inc CONTENT "${text}")
endfunction()
