// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file packet_opener.h
/// Opens a raw port in a thread of its own. DPDK takes up to half a second to start, and a connection whose handshake
/// has just ended would have to wait for it.
#ifndef USIW_RUNTIME_PACKET_OPENER_H
#define USIW_RUNTIME_PACKET_OPENER_H

#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "port/net_port.h"

namespace usiw {

class PacketOpener {
 public:
  using Open = std::function<std::unique_ptr<NetPort>(std::string& why)>;
  using Done = std::function<void(std::unique_ptr<NetPort> port, const std::string& why)>;

  PacketOpener() = default;
  PacketOpener(const PacketOpener&) = delete;
  /// Waits for a call of Done that runs, and not for one of Open: its port is closed again.
  ~PacketOpener() { forget(); }

  /// Starts a thread that calls @p open, which must not use anything that may end before the thread, and then @p done
  /// with the port, or with null and the reason. Does nothing while such a thread runs. 0 or an errno value.
  int start(Open open, Done done);

 private:
  struct Job {
    std::mutex lock;
    bool forgotten = false;  ///< under lock
    bool over = false;       ///< under lock: Done has been called
    Open open;
    Done done;
  };
  static void* run(void* job);
  void forget();

  std::shared_ptr<Job> job_;
};

}  // namespace usiw

#endif  // USIW_RUNTIME_PACKET_OPENER_H
