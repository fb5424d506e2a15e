// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file static_verbs.h
#ifndef USIW_RUN_STATIC_VERBS_H
#define USIW_RUN_STATIC_VERBS_H

namespace usiw::run {

/// A program with libibverbs.a in it sees the device, but a provider registers with libibverbs.so. Prints that once on
/// stderr if the code at @p caller, which lists the devices, is such a libibverbs.
void warn_if_static_verbs(const void* caller);

}  // namespace usiw::run

#endif  // USIW_RUN_STATIC_VERBS_H
