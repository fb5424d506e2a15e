// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file shm_channel.h
/// What two processes of one user and one network namespace share: two rings in a sealed memfd, and
/// a connected local socket that carries the agreement about it, wakes the other end, and tells of its
/// death. The end that connects makes the memory; the end that accepts checks it.
///
/// On the socket (SOCK_SEQPACKET): ShmMessage; or a single byte, which only wakes. Nothing here
/// waits; only push(), pop(), arm() and wake() belong to the data path.
#ifndef USIW_PORT_SHM_CHANNEL_H
#define USIW_PORT_SHM_CHANNEL_H

#include <sys/socket.h>
#include <sys/un.h>

#include <cstdint>
#include <memory>

#include "engine/port.h"
#include "port/shares.h"
#include "port/shm_ring.h"

namespace usiw {

/// One end of a flow, which names the local socket where its owner listens.
struct ShmEnd {
  std::array<uint8_t, 16> addr;
  uint16_t port;  ///< network byte order

  bool operator==(const ShmEnd&) const = default;
  static ShmEnd local(const FlowKey& f) { return {f.local_addr, f.local_port}; }
  static ShmEnd remote(const FlowKey& f) { return {f.remote_addr, f.remote_port}; }
  /// An abstract name: of the network namespace, and gone with the process. Its length.
  socklen_t name(sockaddr_un& out) const;
  /// A listening socket; -errno.
  int listen() const;
};

struct ShmMessage {
  enum Kind : uint32_t {
    kFlow = 1,    ///< from the end that connected: may this flow use the rings? The first one brings the memory
    kFlowOk = 2,  ///< the answer. There is none if the flow is not there
  };
  uint32_t kind;
  uint32_t number;  ///< of the flow in the channel, below ShmChannel::kMaxFlows
  FlowKey flow;     ///< as the end sees it that connected
};
static_assert(sizeof(ShmMessage) == 44);

class ShmChannel {
 public:
  static constexpr uint32_t kMaxFlows = 1024;
  static constexpr uint32_t kNoFlow = UINT32_MAX;

  /// Connects to who listens at @p peer. nullptr: nobody of this user does. The channel needs begin().
  static std::unique_ptr<ShmChannel> connect(const ShmEnd& peer, uint32_t max_datagram);
  /// Makes the memory of a channel that connect() has returned. Returns false if there is none.
  bool begin();
  /// Takes a connection of a process of this user; its memory comes later. nullptr: there is none to be
  /// had (@p error: EAGAIN if none is waiting), or it is somebody else's (0: there may be more).
  static std::unique_ptr<ShmChannel> accept(int listener, uint32_t max_datagram, int& error);
  ~ShmChannel();
  ShmChannel(const ShmChannel&) = delete;
  ShmChannel& operator=(const ShmChannel&) = delete;

  int fd() const { return fd_; }
  bool connected_here() const { return connected_here_; }
  const ShmEnd& peer() const { return peer_; }  ///< valid where connected_here()
  /// The process that listens at peer(); 0 if it is in another PID namespace. Valid where connected_here().
  pid_t process() const { return process_; }

  bool send(const ShmMessage& message);
  enum class Got { kNothing, kWake, kMessage, kEnd };
  /// kEnd: the peer is gone, or makes no sense.
  Got receive(ShmMessage& message);

  /// The peer is gone or makes no sense: nothing is sent any more; what it has sent may be received.
  bool over() const { return over_ || writer_.broken() || reader_.broken(); }
  void end() {
    if (!over_) reader_.end();
    over_ = true;
  }

  bool push(uint32_t number, std::span<const std::byte> head, std::span<const std::byte> rest) {
    return writer_.push(number, head, rest);
  }
  bool wake_wanted() { return writer_.wake_wanted(); }
  void wake();
  bool ready() const { return base_ != nullptr && reader_.ready(); }
  bool pop(std::byte* out, uint32_t& len, uint32_t& number) { return reader_.pop(out, len, number); }
  /// As ShmReader::arm().
  bool arm() { return base_ == nullptr || reader_.arm(); }

  /// What the owner knows a flow by, or kNoFlow.
  uint32_t flow_at(uint32_t number) const { return number < kMaxFlows ? flows_[number] : kNoFlow; }
  void set_flow(uint32_t number, uint32_t flow);
  /// A number that has been free for longest, or kNoFlow.
  uint32_t free_number();
  unsigned flows() const { return flow_count_; }
  /// No number names @p flow any more.
  void forget(uint32_t flow);

  // The owner's.
  Shares shares;        ///< flows that receive by it
  bool dirty = false;   ///< something was pushed in this batch
  uint32_t strays = 0;  ///< records of no flow, in a row

 private:
  ShmChannel(int fd, uint32_t max_datagram) : fd_(fd), max_(max_datagram) {
    for (uint32_t& f : flows_) f = kNoFlow;
  }
  bool map(int memory);

  int fd_;
  int unsent_memory_ = -1;  ///< goes with the first message
  const uint32_t max_;
  bool connected_here_ = false, over_ = false;
  ShmEnd peer_{};
  pid_t process_ = 0;
  std::byte* base_ = nullptr;
  ShmWriter writer_;
  ShmReader reader_;
  uint32_t flows_[kMaxFlows];
  uint32_t next_number_ = 0;
  unsigned flow_count_ = 0;
};

}  // namespace usiw

#endif  // USIW_PORT_SHM_CHANNEL_H
