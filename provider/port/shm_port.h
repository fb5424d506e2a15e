// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file shm_port.h
/// UDP sockets, and shared memory to peers of the same user in the same network namespace. Every flow
/// begins on its socket. The end that is installed last (the one that connected) finds the other's
/// local socket, and when both have agreed the flow's datagrams go through the rings of a ShmChannel;
/// should the peer die, or write nonsense, they go by the socket again. Flows between the same two
/// processes share a channel.
#ifndef USIW_PORT_SHM_PORT_H
#define USIW_PORT_SHM_PORT_H

#include <algorithm>
#include <memory>
#include <vector>

#include "port/forwarding_port.h"
#include "port/shm_channel.h"
#include "port/socket_port.h"

namespace usiw {

class ShmPort final : public ForwardingPort<SocketPort> {
 public:
  /// As SocketPort::create().
  static std::unique_ptr<ShmPort> create(uint32_t mtu, int& error, uint32_t unmarked = 0);
  ~ShmPort() override;

  size_t tx(std::span<TxBuf> bufs) override;
  size_t rx(std::span<RxBuf> bufs) override;
  uint32_t share(Path& path, uint32_t len, uint64_t now) override;
  Drops drops() const override;

  int add_flow(Path& path, int fd) override;
  void remove_flow(const Path& path) override;
  void sends(Path& path, bool yes) override;
  int control_fd() const override { return epoll_; }
  void control() override;
  bool arm() override;

  /// Channels, those that are over and not yet empty included; and flows that use one.
  size_t channels() const { return channels_.size(); }
  size_t flows_in_memory() const {
    return static_cast<size_t>(std::count_if(flows_.begin(), flows_.end(), [](const Flow& f) { return f.in_memory; }));
  }

 private:
  /// What Path::tag counts.
  struct Flow {
    FlowKey key{};
    ShmChannel* channel = nullptr;  ///< offered to its peer, or in use; nullptr: neither
    uint32_t number = 0;            ///< in the channel
    bool used = false;
    bool in_memory = false;  ///< what is sent goes by the channel, else by the socket
    bool sends = true;       ///< false: it goes by another port
    bool on_socket = false;  ///< counted by on_sockets_
    bool listens = false;    ///< counted by a Listener
    bool marked = false;     ///< the key is
    uint32_t link = 0;       ///< the interface, where the addresses are a link's
    FlowKey told() const;
  };
  struct Listener {
    ShmEnd end;
    int fd;
    unsigned users;  ///< flows
    bool paused;     ///< not watched: there are no descriptors to accept with
  };

  using ForwardingPort::ForwardingPort;  ///< flows begin on the inner port
  ShmChannel* channel_of(const Path& path) const;
  size_t look_at_sockets(std::span<RxBuf> bufs);
  size_t receive(ShmChannel& channel, std::span<RxBuf> bufs);
  void offer(uint32_t tag);
  bool offer_by_process(pid_t process, uint32_t tag);
  bool offer_by(ShmChannel& channel, uint32_t tag);
  void listen_for(Flow& flow);
  void count(Flow& flow);
  void attach(Flow& flow);
  void leave(ShmChannel& channel);
  void on_message(ShmChannel& channel, const ShmMessage& message);
  void read_messages(ShmChannel& channel);
  void accept_from(int listener);
  void resume_listening();
  void stop_listening(const Listener& listener);
  bool watch(int fd);
  void unwatch(int fd);
  void sweep();

  int epoll_ = -1;
  std::vector<std::unique_ptr<ShmChannel>> channels_;
  std::vector<Flow> flows_;
  std::vector<uint32_t> free_flows_;
  std::vector<Listener> listeners_;
  size_t on_sockets_ = 0;      ///< flows that go by their socket
  size_t first_ = 0;           ///< channel that is looked at first: in turns
  size_t looks_ = 0;           ///< runs since the last look at the sockets
  uint64_t malformed_ = 0;
};

}  // namespace usiw

#endif  // USIW_PORT_SHM_PORT_H
