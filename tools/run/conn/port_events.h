// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file port_events.h
/// The functions that push PORT_ACTIVE and PORT_ERR to the contexts of the process when the device's interface goes up
/// or down. These events come only while the thread of cm_thread.h runs, because that thread reads the kernel's
/// messages about interfaces.
#ifndef USIW_RUN_PORT_EVENTS_H
#define USIW_RUN_PORT_EVENTS_H

#include <memory>

namespace usiw::run {

class AsyncFile;

/// [big lock] Adds @p file, the file for async events of a context. From now on the file gets the port events.
void port_events_to(const std::shared_ptr<AsyncFile>& file);
/// [big lock] Opens the socket on which the kernel reports changes of interfaces. Returns its descriptor, or a negative
/// number. Stores the present state of the interface, for comparison with later states.
int port_events_open();
/// [big lock] Reads all messages from the socket, and pushes an event if the interface has gone up or down.
void port_events_ready();
/// [big lock] Closes the socket.
void port_events_close();

}  // namespace usiw::run

#endif  // USIW_RUN_PORT_EVENTS_H
