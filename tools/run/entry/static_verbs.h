// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file static_verbs.h
/// Detects programs that are linked with a static libibverbs.
#ifndef USIW_RUN_STATIC_VERBS_H
#define USIW_RUN_STATIC_VERBS_H

namespace usiw::run {

/// Prints a line on stderr, once, if the code at @p caller, which lists the devices, is from libibverbs.a. Prints
/// nothing if the process has a shared libibverbs. A program with libibverbs.a alone sees the device but cannot load
/// the provider, because a provider registers with libibverbs.so.
void warn_if_static_verbs(const void* caller);

}  // namespace usiw::run

#endif  // USIW_RUN_STATIC_VERBS_H
