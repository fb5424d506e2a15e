// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file never_destroyed.h
/// Global objects that are made at their first use and are never destroyed.
#ifndef USIW_RUN_NEVER_DESTROYED_H
#define USIW_RUN_NEVER_DESTROYED_H

namespace usiw::run {

/// Returns the only object of type T. The first call makes it, because constructors of other libraries may call this
/// library before its own constructors have run. The object is never destroyed, because threads of the program may use
/// it while the process exits.
template <typename T>
T& never_destroyed() {
  static T& once = *new T;
  return once;
}

}  // namespace usiw::run

#endif  // USIW_RUN_NEVER_DESTROYED_H
