// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file watcher.h
#ifndef USIW_RUN_WATCHER_H
#define USIW_RUN_WATCHER_H

namespace usiw::run {

/// `usiw-run --watch`, which a process under usiw-run starts with its first connection: sleeps until that
/// process is gone, however that came about, and sends RESET for its connections. The exit status.
int watcher_main();

}  // namespace usiw::run

#endif  // USIW_RUN_WATCHER_H
