if(TW_SANITIZE)
  add_compile_options(-fsanitize=${TW_SANITIZE} -fno-omit-frame-pointer -g -O1)
  add_link_options(-fsanitize=${TW_SANITIZE})
  # GCC warns of the fences in Asio's headers, which the thread sanitizer does not model.
  if(TW_SANITIZE MATCHES "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options(-Wno-tsan)
  endif()
endif()
