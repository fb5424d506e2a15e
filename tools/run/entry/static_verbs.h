// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file static_verbs.h
/// Detects programs that are linked with a static libibverbs.
#ifndef USIW_RUN_STATIC_VERBS_H
#define USIW_RUN_STATIC_VERBS_H

namespace usiw::run {

/// Prints a warning on stderr, once per process, if the program or library that contains the code at @p caller also
/// contains libibverbs.a, and the process has no shared libibverbs. @p caller is the code that lists the devices. Such a
/// program cannot load the provider, because a provider registers with libibverbs.so.
void warn_if_static_verbs(const void* caller);

}  // namespace usiw::run

#endif  // USIW_RUN_STATIC_VERBS_H
