// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file cm_thread.h
/// The thread behind rdma_cm: reads the handshake sockets and watches the clock. Sleeps otherwise;
/// ends when there are neither.
#ifndef USIW_RUN_CM_THREAD_H
#define USIW_RUN_CM_THREAD_H

#include <cstdint>

namespace usiw::run {

/// Names the socket of the kernel's messages about routes and neighbours.
inline constexpr uint64_t kCmThreadRoutes = UINT64_MAX;
/// ... and of interfaces.
inline constexpr uint64_t kCmThreadLinks = UINT64_MAX - 1;

/// [big lock] Starts it if need be. 0 or -errno.
int cm_thread_start();
/// [big lock] Watches @p fd, which @p serial names, until it is closed. 0 or -errno.
int cm_thread_watch(int fd, uint64_t serial);
/// [big lock] A deadline may have come nearer, or the last socket is gone.
void cm_thread_kick();
/// [big lock] In a child of fork(): there is no thread.
void cm_thread_abandon();

}  // namespace usiw::run

#endif  // USIW_RUN_CM_THREAD_H
