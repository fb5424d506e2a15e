// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file port_events.h
/// PORT_ACTIVE and PORT_ERR for the contexts of the process, as the device's interface goes up and down. There are such
/// events only while the thread of cm_thread.h runs, because that thread reads the kernel's messages about interfaces.
#ifndef USIW_RUN_PORT_EVENTS_H
#define USIW_RUN_PORT_EVENTS_H

#include <memory>

namespace usiw::run {

class AsyncFile;

/// [big lock] A context's events go to @p file from now on.
void port_events_to(const std::shared_ptr<AsyncFile>& file);
/// [big lock] The socket to watch, or a negative number; the state from now on is the one to compare with.
int port_events_open();
/// [big lock] It is readable.
void port_events_ready();
/// [big lock]
void port_events_close();

}  // namespace usiw::run

#endif  // USIW_RUN_PORT_EVENTS_H
