// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file ucm_events.h
/// The queue of rdma_cm events that a file holds for its program. Ids add their events to the queue and remove them.
/// They know nothing else of the file.
#ifndef USIW_RUN_UCM_EVENTS_H
#define USIW_RUN_UCM_EVENTS_H

// Must come first. Otherwise rdma_user_cm.h includes the kernel's definitions of socket addresses, which conflict with
// those of libc.
#include <netinet/in.h>

#include <rdma/rdma_user_cm.h>

#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "tools/run/libc/event_file.h"

namespace usiw::run {

class UcmId;

/// An event that the program has not read yet.
struct UcmEvent {
  std::shared_ptr<UcmId> id;     ///< id whose events_reported counts the event; for a request: the listening id
  std::shared_ptr<UcmId> child;  ///< new id of a request, else null
  rdma_ucm_event_resp resp;
};

/// A file with a queue of events. All calls [big lock].
class UcmEvents : public EventFile {
 public:
  void push(UcmEvent event) {
    events_.push_back(std::move(event));
    set_readable(true);
  }
  /// Removes the events of @p id from the queue, among them requests whose child it is. Returns them in order.
  std::vector<UcmEvent> take(const UcmId& id) {
    std::vector<UcmEvent> taken;
    std::erase_if(events_, [&](UcmEvent& e) {
      const bool its = e.id.get() == &id || e.child.get() == &id;
      if (its) taken.push_back(e);
      return its;
    });
    if (events_.empty()) set_readable(false);
    return taken;
  }

 protected:
  std::deque<UcmEvent> events_;
};

}  // namespace usiw::run

#endif  // USIW_RUN_UCM_EVENTS_H
