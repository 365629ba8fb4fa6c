# What `cmake --install build/release --prefix P` puts where. Programs find the rest beside themselves (../lib/infos,
# ../share/infos), so the tree may be moved.
if(NOT INFOS_FUZZ)
  install(TARGETS infos infosd RUNTIME DESTINATION bin)
  install(TARGETS infos_cpu LIBRARY DESTINATION lib/infos)
  install(FILES configs/demo/infos-demo.gguf DESTINATION share/infos)
  install(FILES devices/abi/infos_device.h DESTINATION include/infos)
  install(FILES README.md LICENSE DESTINATION share/doc/infos)
  install(DIRECTORY configs/ DESTINATION share/doc/infos/examples FILES_MATCHING PATTERN "*.yaml" PATTERN demo EXCLUDE
          PATTERN systemd EXCLUDE)
  # The prefix is known only now: the unit names the program by its full path.
  install(CODE "
    file(READ \"${CMAKE_SOURCE_DIR}/configs/systemd/infosd.service\" unit)
    string(REPLACE /usr/bin/ \"\${CMAKE_INSTALL_PREFIX}/bin/\" unit \"\${unit}\")
    string(REPLACE file:/usr/share/ \"file:\${CMAKE_INSTALL_PREFIX}/share/\" unit \"\${unit}\")
    file(WRITE \"${CMAKE_BINARY_DIR}/infosd.service\" \"\${unit}\")
    file(INSTALL DESTINATION \"\${CMAKE_INSTALL_PREFIX}/lib/systemd/system\" TYPE FILE
         FILES \"${CMAKE_BINARY_DIR}/infosd.service\")")
endif()
