// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file watch.h
/// With the module, the kernel notifies the peers of a process that was killed. Here the watcher does, a second, tiny
/// process: it sleeps until the first one is gone, sends RESET for each open connection, and ends.
#ifndef USIW_RUN_WATCH_H
#define USIW_RUN_WATCH_H

#include "tools/run/host/host.h"

namespace usiw::run {

/// [big lock] Notes a connection down, and starts the watcher with the first one. The entry's number,
/// or -1: without a watcher the peers find out by their own time-outs.
int watch_add(const Tuple& tuple, uint32_t local_isn, uint32_t peer_isn);
/// [big lock] -1 is allowed.
void watch_remove(int entry);
/// [big lock] In a child of fork(): the watcher is the parent's.
void watch_abandon();

}  // namespace usiw::run

#endif  // USIW_RUN_WATCH_H
