// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file socket_port.h
/// Plain UDP sockets as a port, made by the control path: one per local UDP port, or one per
/// connection that is connected to its peer. Needs no rights at all; the kernel does IP, UDP,
/// checksums and routing.
#ifndef USIW_PORT_SOCKET_PORT_H
#define USIW_PORT_SOCKET_PORT_H

#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <memory>
#include <vector>

#include "base/ip.h"
#include "port/net_port.h"
#include "port/shares.h"

namespace usiw {

class SocketPort final : public NetPort {
 public:
  /// nullptr and an errno value. @p mtu: largest IP packet, bytes, up to USIW_MAX_MTU. @p unmarked: the device's
  /// interface, whose link-local addresses are not marked (base/link_local.h) and which a raw port may hear, or 0.
  static std::unique_ptr<SocketPort> create(uint32_t mtu, int& error, uint32_t unmarked = 0);
  ~SocketPort() override;

  uint32_t max_payload() const override { return mtu_ - kIpv4UdpLen; }
  size_t tx_alloc(std::span<TxBuf> bufs) override;
  size_t tx(std::span<TxBuf> bufs) override;
  bool takes_references() const override { return true; }
  void tx_free(std::span<TxBuf> bufs) override;
  size_t rx(std::span<RxBuf> bufs) override;
  void rx_free(std::span<RxBuf> bufs) override;
  uint32_t share(Path& path, uint32_t len, uint64_t now) override;
  Drops drops() const override { return drops_; }

  uint32_t mtu() const override { return mtu_; }
  int wait_fd() const override { return epoll_; }
  void clear_error() override {}
  bool arm() override {
    passed_ = kPassMost;
    armed_ = true;
    return current_ == arrived_;
  }
  int add_flow(Path& path, int fd) override;
  void remove_flow(const Path& path) override;
  void sends(Path& path, bool yes) override;
  void merges(Path& path, bool yes) override;

 private:
  static constexpr size_t kBatch = 96;    ///< messages per call, sending
  static constexpr size_t kRxBatch = 32;  ///< ... and receiving
  /// Of a merged message: datagrams, and bytes. Of all messages of a batch: buffers, and pieces of memory.
  static constexpr size_t kMergedMost = 64, kMessageRoom = 65536, kRxBuffers = 256;
  static constexpr size_t kRxVecs = kRxBuffers + kRxBatch;
  /// While all sockets only receive what other ports cannot, so many runs pass between looks at them; after something
  /// has come that way, so many looks follow one another.
  static constexpr unsigned kPassMost = 64, kLooks = 4096;
  /// Where only one of several sockets had something, it alone is looked at so often before the others are again. The
  /// first look in vain ends that, unless the same socket had been the only one the time before.
  static constexpr unsigned kLoneLooks = 8;
  static constexpr int kTurns = 16;  ///< sockets that epoll names at a time; of more it names others the next time

  /// What Path::socket counts.
  struct Socket {
    int fd = -1;         ///< -1: free
    unsigned users = 0;    ///< connections
    unsigned merging = 0;  ///< of these, those that take merged datagrams, for now or always
    bool gro = false;      ///< the kernel hands them over as such
    bool connected = false;
    bool ipv4 = false;      ///< its connections use IPv4, also if the socket has both families
    bool both = false;      ///< it is bound to all addresses of both families
    bool filtered = false;  ///< takes only what attach_beside_filter() lets through
    std::vector<uint16_t> senders{};  ///< the peers' ports of those connections that send by it
    uint32_t holds = 0;  ///< bytes of received datagrams, as the kernel counts them (truesize)
    uint32_t lost = 0;   ///< datagrams that the socket has dropped, as the kernel has counted them until now
    Shares shares{};
    bool sees_ce = false;  ///< the kernel tells of congestion marks
    bool ect = false;  ///< of a connected one: what it sends may be marked
    /// Datagrams that still go out one by one, since the kernel has refused to take a message apart; times in a row.
    unsigned singly = 0, refusals = 0;
    FlowKey flow{};      ///< if the socket is not connected, only the local address and port, as it is bound
    uint32_t scope = 0;  ///< the interface of a link-local address to which it is bound
    bool serves(const Path& path) const;
  };
  /// One datagram on its way through a system call, or several to one peer that the kernel takes apart.
  struct Message {
    sockaddr_storage peer;
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(in6_pktinfo)) + CMSG_SPACE(sizeof(int)) +
                                  CMSG_SPACE(sizeof(uint16_t))];
    unsigned count;  ///< datagrams
  };

  /// A message received, from which datagrams are taken one by one. Its bytes stand in buffers of rx_part_ bytes each
  /// and, what goes beyond these, in a place of its own (spill). As a rule a buffer is as long as the datagrams of
  /// merged messages have been, so that each arrives in a buffer of its own.
  struct Incoming {
    sockaddr_storage peer;
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(in6_pktinfo)) + 3 * CMSG_SPACE(sizeof(int))];
    FlowKey flow;
    bool ce;                          ///< marked
    std::byte* buffers[kMergedMost];  ///< nullptr: handed out
    uint32_t len, segment;            ///< bytes; of each datagram but the last
    uint32_t count, next;             ///< datagrams; the next one to be taken
    bool prepared = false;            ///< has buffers
  };

  SocketPort() = default;
  void give_buffer(void* buffer) { free_.push_back(static_cast<std::byte*>(buffer)); }
  Socket* socket_of(const Path& path);
  void set_sender(Socket& s, uint16_t peer, bool yes);
  void filter(Socket& s) const;
  static void set_ect(Socket& s, const Path& path);
  void set_gro(Socket& s) const;
  size_t take_turns(std::span<RxBuf> bufs);
  bool receive(Socket& from);
  bool passes();
  size_t take(std::span<RxBuf> bufs);
  bool take_one(RxBuf& out);
  void copy_out(const Incoming& m, size_t at, size_t len, std::byte* to) const;
  void finish(Incoming& m);
  void shape(size_t segment);
  void prepare();
  std::byte* spill_of(const Incoming& m) const { return spill_ + static_cast<size_t>(&m - incoming_) * kMessageRoom; }
  static void address(mmsghdr& out, Message& m, const Path& path, bool connected);
  static size_t alike(std::span<const TxBuf> bufs);

  uint32_t mtu_ = 0, unmarked_ = 0;
  int epoll_ = -1;
  std::byte* slab_ = nullptr;
  size_t slab_size_ = 0, slot_ = 0;
  std::vector<std::byte*> free_;  ///< last in, first out: few are ever touched
  std::vector<Socket> sockets_;
  size_t open_ = 0;     ///< of these
  size_t sending_ = 0;  ///< ... sockets by which is sent
  unsigned passed_ = 0, looks_ = 0;
  Message messages_[kBatch];
  iovec vecs_[2 * kBatch];
  mmsghdr headers_[kBatch];

  // Receiving: a batch of messages, those before current_ empty, those from arrived_ on prepared for the next call.
  Incoming incoming_[kRxBatch];
  iovec rx_vecs_[kRxVecs];
  mmsghdr rx_headers_[kRxBatch];
  std::byte* spill_ = nullptr;  ///< kRxBatch * kMessageRoom; touched where a message is not of the shape foreseen
  size_t current_ = 0, arrived_ = 0, ready_ = 0;
  size_t rx_messages_ = 0, rx_parts_ = 0, rx_part_ = 0;  ///< the shape: messages; buffers of each; bytes of each
  size_t expected_ = 0;  ///< bytes of the datagrams of merged messages; 0: none come
  unsigned unmerged_ = 0;                                ///< batches in a row without a merged message
  epoll_event waiting_[kTurns];  ///< sockets, as epoll has named them; those from turn_ on have yet to be looked at
  int turn_ = 0, turns_ = 0;
  uint32_t lone_ = UINT32_MAX;  ///< the socket that alone had something the last time that anything had
  unsigned lone_looks_ = 0;     ///< so many more, at it alone
  bool steady_ = false;         ///< the time before it was the same one
  bool dry_ = false;            ///< the last look at a socket was in vain
  bool armed_ = false;          ///< somebody has slept, or will: what has come must be found at once
  Drops drops_{};
};

}  // namespace usiw

#endif  // USIW_PORT_SOCKET_PORT_H
