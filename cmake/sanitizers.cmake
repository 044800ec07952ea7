# Address and undefined behaviour, or threads: see the presets. What they report ends the program.
if(TW_SANITIZE)
  add_compile_options(-fsanitize=${TW_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer -g1 -O1)
  add_link_options(-fsanitize=${TW_SANITIZE})
  # Asio puts fences around handlers, which the thread sanitizer cannot follow. Its queues are under mutexes anyway, so
  # the fences go; nothing is suppressed.
  if(TW_SANITIZE MATCHES "thread")
    add_compile_definitions(ASIO_DISABLE_FENCED_BLOCK)
  endif()
endif()
