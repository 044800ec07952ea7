# The c10d adapter is torch's side of comm. The stand-ins for Gloo's headers hold for these versions; beyond, somebody
# must look whether ProcessGroupGloo.hpp asks for more. tests/conformance/c10d_test.cpp runs what they describe.
set(c10d ${CMAKE_CURRENT_LIST_DIR}/c10d.cpp)
target_sources(thinwire PRIVATE ${c10d})
set_source_files_properties(${c10d} PROPERTIES INCLUDE_DIRECTORIES ${CMAKE_CURRENT_LIST_DIR}/gloo_declarations)
if(Torch_VERSION VERSION_GREATER_EQUAL 2.14)
  message(WARNING "c10d over Gloo was checked with torch 2.13, this is ${Torch_VERSION}")
endif()
