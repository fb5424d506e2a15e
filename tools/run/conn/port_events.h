// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file port_events.h
/// The events PORT_ACTIVE and PORT_ERR for the contexts of the process, as the device's interface goes up and down.
/// They come only while the thread of cm_thread.h runs, because that thread reads the kernel's messages about
/// interfaces.
#ifndef USIW_RUN_PORT_EVENTS_H
#define USIW_RUN_PORT_EVENTS_H

#include <memory>

namespace usiw::run {

class AsyncFile;

/// [big lock] Adds @p file, which gets the events of a context from now on.
void port_events_to(const std::shared_ptr<AsyncFile>& file);
/// [big lock] Opens the socket of the kernel's messages. Returns it, or a negative number. Later states of the
/// interface are compared with the present one.
int port_events_open();
/// [big lock] Reads the socket, which is readable, and pushes an event if the state has changed.
void port_events_ready();
/// [big lock]
void port_events_close();

}  // namespace usiw::run

#endif  // USIW_RUN_PORT_EVENTS_H
