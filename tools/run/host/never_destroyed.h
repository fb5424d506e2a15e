// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file never_destroyed.h
#ifndef USIW_RUN_NEVER_DESTROYED_H
#define USIW_RUN_NEVER_DESTROYED_H

namespace usiw::run {

/// The one object of this type. The first call makes it, since the constructors of other libraries may call this one
/// before its own have run. It is never destroyed, since threads of the program may use it while the process exits.
template <typename T>
T& never_destroyed() {
  static T& once = *new T;
  return once;
}

}  // namespace usiw::run

#endif  // USIW_RUN_NEVER_DESTROYED_H
