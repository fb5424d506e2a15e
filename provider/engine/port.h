// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file port.h
/// What the engine needs from the world: datagrams and the time. A port moves
/// whole TRP datagrams (UDP payloads); how they are wrapped (Ethernet/IP/UDP on
/// DPDK, a simulated wire, a socket) is the port's business.
#ifndef USIW_ENGINE_PORT_H
#define USIW_ENGINE_PORT_H

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/ip.h"

namespace usiw {

/// Monotonic time in nanoseconds; 0 is never returned.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual uint64_t now_ns() = 0;
};

/// A connection's 4-tuple as this end sees it. IPv4 is mapped (::ffff:a.b.c.d);
/// ports in network byte order. No padding: compared and hashed as bytes. A link-local address of another
/// link than that of the raw port is marked with it (base/link_local.h), the local one alone.
struct FlowKey {
  std::array<uint8_t, 16> local_addr;
  std::array<uint8_t, 16> remote_addr;
  uint16_t local_port;
  uint16_t remote_port;

  bool operator==(const FlowKey& o) const { return std::memcmp(this, &o, sizeof *this) == 0; }
  bool is_ipv4() const { return is_mapped_ipv4(local_addr.data()); }
};
static_assert(sizeof(FlowKey) == 36);

/// Everything a port needs to send to a peer: set once per connection (and when a
/// MAC changes), read by every send.
struct Path {
  FlowKey flow;
  std::array<uint8_t, 6> local_mac;
  std::array<uint8_t, 6> remote_mac;
  uint8_t hop_limit;
  uint8_t tos;
  uint32_t scope = 0;  ///< interface of link-local addresses, for sockets that are bound to all
  uint32_t tag = 0;    ///< the port's own
  uint32_t socket = UINT32_MAX;  ///< the socket port's own
  bool merge = false;  ///< the peer can be sent frames that the kernel has yet to take apart
  uint32_t merge_above = 0;  ///< ... if they carry more UDP payload than this, bytes
  bool sees_ce = true;  ///< RxBuf::ce is true of what has been marked; the ports' word
  bool ect = false;  ///< what is sent may be marked (ECT(0), RFC 3168); the engine's word
  bool by_socket = false;  ///< sends by its socket; the socket port's own
  bool merging = false;    ///< takes merged datagrams for now; the socket port's own
  bool other_host = false;  ///< the peer is elsewhere: no memory is shared with it
  uint64_t counted = 0;  ///< where and when the flow was counted among those that receive; the ports' own
  bool marked = false;  ///< flow.local_addr is marked with the interface, and nothing goes by raw packets

  /// The field of the IP header.
  uint8_t traffic_class() const { return ect ? tos | kEct0 : tos; }
};

/// A datagram to send: what is in the buffer, and behind it what is still where the program has it. @ref data has room
/// for the port's max_payload() bytes. All but @ref data and @ref handle is set by the engine; what is pointed to stays
/// valid until tx() returns.
struct TxBuf {
  std::byte* data;   ///< start of the TRP header
  uint32_t len;      ///< bytes there
  const Path* path;
  void* handle;      ///< the port's own
  const std::byte* more = nullptr;  ///< memory of the program, which may write to it meanwhile
  uint32_t more_len = 0;  ///< bytes there; 0 unless the port takes_references()

  uint32_t total() const { return len + more_len; }
};

/// A datagram received: UDP checksum verified (unless the port says that it need
/// not be), lengths of the outer headers consistent.
struct RxBuf {
  const std::byte* data;  ///< start of the TRP header
  uint32_t len;           ///< UDP payload, bytes; may be anything from 0
  FlowKey flow;
  void* handle;           ///< the port's own
  bool ce;                ///< a router has marked it: congestion experienced (RFC 3168)
};

/// A packet port. Only the thread that holds the engine calls it. Nothing here
/// allocates from the heap or sleeps.
class Port {
 public:
  virtual ~Port() = default;

  /// Largest UDP payload in bytes that tx_alloc()'s buffers can hold.
  virtual uint32_t max_payload() const = 0;

  /// Fills @p bufs from the front; returns how many (fewer when out of buffers).
  virtual size_t tx_alloc(std::span<TxBuf> bufs) = 0;

  /// Sends from the front; returns how many were taken. All buffers belong to the
  /// port again afterwards: what was not taken is dropped (and may be sent again by
  /// the engine from its source, as if the wire had lost it).
  virtual size_t tx(std::span<TxBuf> bufs) = 0;

  /// Whether what the program's memory holds need not be copied into the buffers: tx() reads it there.
  virtual bool takes_references() const { return false; }

  /// Gives back buffers of tx_alloc() that were not used.
  virtual void tx_free(std::span<TxBuf> bufs) = 0;

  /// Receives up to bufs.size() datagrams. The engine may keep at most
  /// kMaxHeld of them at a time beyond the end of a burst.
  virtual size_t rx(std::span<RxBuf> bufs) = 0;

  virtual void rx_free(std::span<RxBuf> bufs) = 0;

  /// IP packets of @p len bytes that the port can hold for the flow until the engine runs again. What a port has is
  /// divided by the flows that have received of late; the call counts this flow as one of them. UINT32_MAX: the port
  /// knows no limit.
  virtual uint32_t share(Path& path, uint32_t len, uint64_t now) {
    static_cast<void>(path), static_cast<void>(len), static_cast<void>(now);
    return UINT32_MAX;
  }

  /// Datagrams that the port may have lost on its own account since it was made
  /// (bad checksum, bad lengths, no buffer), for the counters.
  struct Drops {
    uint64_t malformed, checksum, no_buffer;
  };
  virtual Drops drops() const = 0;

  static constexpr size_t kMaxHeld = 512;
};

}  // namespace usiw

#endif  // USIW_ENGINE_PORT_H
