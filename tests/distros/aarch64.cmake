# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# CMake toolchain for aarch64, on an x86-64 Debian that has arm64 as a foreign architecture. Packages:
# g++-aarch64-linux-gnu, libdpdk-dev:arm64, libibverbs-dev:arm64, librdmacm-dev:arm64.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
# Not at build time, when they could not run.
set(CMAKE_GTEST_DISCOVER_TESTS_DISCOVERY_MODE PRE_TEST)
set(ENV{PKG_CONFIG_LIBDIR} /usr/lib/aarch64-linux-gnu/pkgconfig:/usr/share/pkgconfig)
