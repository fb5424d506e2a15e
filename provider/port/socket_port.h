// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file socket_port.h
/// Plain UDP sockets as a port: one per local UDP port, made by the control path. Needs no
/// rights at all; the kernel does IP, UDP, checksums and routing.
#ifndef USIW_PORT_SOCKET_PORT_H
#define USIW_PORT_SOCKET_PORT_H

#include <netinet/in.h>
#include <sys/socket.h>

#include <memory>
#include <vector>

#include "port/net_port.h"

namespace usiw {

class SocketPort final : public NetPort {
 public:
  /// nullptr and an errno value. @p mtu: largest IP packet, bytes, up to USIW_MAX_MTU.
  static std::unique_ptr<SocketPort> create(uint32_t mtu, int& error);
  ~SocketPort() override;

  uint32_t max_payload() const override { return mtu_ - 28; }
  size_t tx_alloc(std::span<TxBuf> bufs) override;
  size_t tx(std::span<TxBuf> bufs) override;
  void tx_free(std::span<TxBuf> bufs) override;
  size_t rx(std::span<RxBuf> bufs) override;
  void rx_free(std::span<RxBuf> bufs) override;
  Drops drops() const override { return drops_; }

  uint32_t mtu() const override { return mtu_; }
  int wait_fd() const override { return epoll_; }
  void clear_error() override {}
  int add_flow(Path& path, int fd) override;
  void remove_flow(const Path& path) override;

 private:
  static constexpr size_t kBatch = 64;

  struct Socket {
    int fd;
    uint16_t port;   ///< network byte order
    unsigned users;  ///< connections
  };
  /// One datagram on its way through a system call, or several to one peer that the kernel takes apart.
  struct Message {
    sockaddr_storage peer;
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(in6_pktinfo)) + CMSG_SPACE(sizeof(int)) +
                                  CMSG_SPACE(sizeof(uint16_t))];
    unsigned count;  ///< datagrams
  };

  SocketPort() = default;
  void give_buffer(void* buffer) { free_.push_back(static_cast<std::byte*>(buffer)); }
  int socket_of(uint16_t port) const;
  size_t receive(int fd, std::span<RxBuf> bufs);
  void address(mmsghdr& out, Message& m, const Path& path);
  size_t alike(std::span<const TxBuf> bufs) const;

  uint32_t mtu_ = 0;
  int epoll_ = -1;
  std::byte* slab_ = nullptr;
  size_t slab_size_ = 0, slot_ = 0;
  std::vector<std::byte*> free_;  ///< last in, first out: few are ever touched
  std::vector<Socket> sockets_;
  Message messages_[kBatch];
  iovec vecs_[kBatch];
  bool segments_ = true;  ///< the kernel has not refused to take messages apart
  mmsghdr headers_[kBatch];
  Drops drops_{};
};

}  // namespace usiw

#endif  // USIW_PORT_SOCKET_PORT_H
