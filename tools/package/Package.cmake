# What is installed, and where; Debian's package. docs/Install.md is the guide.
#
#   runtime      memopt-run, memopt-cudnn, the runtime's library, oneDNN in a folder of its own, and sources of plugins
#   development  the C interface's header and a CMake package for programs that use it
#   compiler     the compiler's tools as they were built: they need LLVM's shared libraries
#   standalone   the same tools with LLVM inside (tools/standalone), for packages and wheels
#   python       the Python package, for packages
#
# `cmake --install` takes the first three. All paths within are relative, so the folder may be moved.
include(CMakePackageConfigHelpers)

set(private_libraries lib/memopt)
set(runtime_programs memopt-run)
if(TARGET memopt-cudnn)
  list(APPEND runtime_programs memopt-cudnn)
endif()
set(compiler_programs "")
if(MEMOPT_BUILD_COMPILER)
  set(compiler_programs memopt-compile memopt-opt memopt-plan)
endif()
set(standalone_program "")
if(TARGET standalone)
  set(standalone_program standalone)
endif()
set_target_properties(${runtime_programs} ${compiler_programs} ${standalone_program} PROPERTIES
  INSTALL_RPATH "$ORIGIN/../${private_libraries}")
set_target_properties(memopt_runtime PROPERTIES INSTALL_RPATH "$ORIGIN/memopt")

install(TARGETS ${runtime_programs} RUNTIME DESTINATION bin COMPONENT runtime)
install(TARGETS memopt_runtime EXPORT memopt
  LIBRARY DESTINATION lib COMPONENT runtime NAMELINK_COMPONENT development
  INCLUDES DESTINATION include)
get_target_property(onednn DNNL::dnnl IMPORTED_LOCATION_RELEASE)
get_target_property(onednn_name DNNL::dnnl IMPORTED_SONAME_RELEASE)
file(REAL_PATH "${onednn}" onednn)
install(PROGRAMS "${onednn}" DESTINATION ${private_libraries} RENAME "${onednn_name}" COMPONENT runtime)
# memopt_notices(COMPONENT [EXCLUDE_FROM_ALL] packages...): licences of what is linked in or lies beside, as the packages
# state them.
function(memopt_notices component)
  cmake_parse_arguments(NOTICES EXCLUDE_FROM_ALL "" "" ${ARGN})
  set(excluded "")
  if(NOTICES_EXCLUDE_FROM_ALL)
    set(excluded EXCLUDE_FROM_ALL)
  endif()
  foreach(package ${NOTICES_UNPARSED_ARGUMENTS})
    install(FILES /usr/share/doc/${package}/copyright DESTINATION share/doc/memopt RENAME LICENSE.${package}
      COMPONENT ${component} OPTIONAL ${excluded})
  endforeach()
  install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION share/doc/memopt COMPONENT ${component} ${excluded})
endfunction()
cmake_path(GET onednn PARENT_PATH onednn_notices)
cmake_path(GET onednn_notices PARENT_PATH onednn_notices)
foreach(notice LICENSE THIRD-PARTY-PROGRAMS)
  install(FILES ${onednn_notices}/share/doc/onednn/${notice} DESTINATION share/doc/memopt RENAME LICENSE.oneDNN.${notice}
    COMPONENT runtime OPTIONAL)
endforeach()
memopt_notices(runtime nlohmann-json3-dev liburing-dev liblapack-dev libblas-dev zlib1g-dev libgomp1)
# A plugin belongs to one MPI or UCX, so users build it where theirs is.
set(plugins ${private_libraries}/plugins)
install(PROGRAMS tools/package/build-plugin.sh DESTINATION ${plugins} RENAME build.sh COMPONENT runtime)
install(FILES runtime/lib/ranks/mpi/MpiMessages.cpp runtime/lib/ranks/ucx/UcxMessages.cpp DESTINATION ${plugins} COMPONENT runtime)
foreach(header ranks/Messages.h base/Status.h)
  cmake_path(GET header PARENT_PATH folder)
  install(FILES runtime/include/memopt-runtime/${header} DESTINATION ${plugins}/include/memopt-runtime/${folder} COMPONENT runtime)
endforeach()
if(TARGET memopt-mpi)
  install(TARGETS memopt-mpi LIBRARY DESTINATION lib COMPONENT mpi)
endif()
if(TARGET memopt-ucx)
  install(TARGETS memopt-ucx LIBRARY DESTINATION lib COMPONENT ucx)
endif()

install(FILES runtime/include/memopt-runtime/CInterface.h DESTINATION include/memopt-runtime COMPONENT development)
set(config ${PROJECT_BINARY_DIR}/package)
file(WRITE ${config}/memopt-config.cmake "include(\"\${CMAKE_CURRENT_LIST_DIR}/memopt-targets.cmake\")\n")
write_basic_package_version_file(${config}/memopt-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${config}/memopt-config.cmake ${config}/memopt-config-version.cmake DESTINATION lib/cmake/memopt
  COMPONENT development)
install(EXPORT memopt FILE memopt-targets.cmake NAMESPACE memopt:: DESTINATION lib/cmake/memopt COMPONENT development)
set_target_properties(memopt_runtime PROPERTIES EXPORT_NAME runtime)

if(compiler_programs)
  install(TARGETS ${compiler_programs} RUNTIME DESTINATION bin COMPONENT compiler)
endif()
if(standalone_program)
  install(TARGETS standalone RUNTIME DESTINATION bin COMPONENT standalone EXCLUDE_FROM_ALL)
  memopt_notices(standalone EXCLUDE_FROM_ALL nlohmann-json3-dev zlib1g-dev libzstd-dev llvm-22-dev libmlir-22-dev liblld-22-dev)
  install(FILES ${PROJECT_BINARY_DIR}/standalone/memopt-opt ${PROJECT_BINARY_DIR}/standalone/memopt-plan DESTINATION bin
    COMPONENT standalone EXCLUDE_FROM_ALL)
endif()
install(DIRECTORY tools/python/memopt DESTINATION lib/python3/dist-packages COMPONENT python EXCLUDE_FROM_ALL
  PATTERN __pycache__ EXCLUDE)

# `cpack -G DEB` of a build whose target `standalone` is there.
set(CPACK_PACKAGE_NAME memopt)
set(CPACK_PACKAGE_VENDOR "The memopt authors")
set(CPACK_PACKAGE_CONTACT "The memopt authors <memopt@example.org>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "compiles training steps of PyTorch into programs of a fixed size")
set(CPACK_COMPONENTS_ALL runtime development standalone python)
set(CPACK_COMPONENTS_GROUPING ALL_COMPONENTS_IN_ONE)
set(CPACK_STRIP_FILES ON)
set(CPACK_GENERATOR DEB)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS "")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "python3")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
# Whoever builds a package names the targets; the build's `all` is more than that.
set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON)
include(CPack)
