// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "port/ethdev_port.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <rte_bus_vdev.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <mutex>
#include <cstdlib>
#include <set>

#include "port/dpdk_eal.h"
#include "port/encap.h"

namespace usiw {
namespace {

/// Received datagrams that the engine may hold, two bursts on their way, one being sent.
constexpr unsigned kMbufs = Port::kMaxHeld + 1024 - 1;
constexpr size_t kBurst = 64;
/// Frames of the PMD's receive ring, and of its transmit ring. A qdisc that orphans packets
/// (netem) gives a frame back while its bytes still wait there: the ring must be longer than
/// what waits, or the bytes change under way (and fail the checksum at the peer).
constexpr unsigned kSmallFrames = 1024, kJumboFrames = 512;
/// Where the TRP header stands in a transmit mbuf: room for the longest encapsulation,
/// and the DDP header behind the TRP header 8-byte aligned.
constexpr uint16_t kTrpOffset = 66;
static_assert(kTrpOffset >= kMaxEncapLen && (kTrpOffset + 14) % 8 == 0);

/// Frame size of the packet rings for an MTU, and the block size: whole pages that whole
/// frames fill. A frame holds a TPACKET_V2 header (up to 80 bytes with padding) as well.
struct RingShape {
  unsigned frame, block;
};
RingShape ring_shape(uint32_t mtu) {
  for (RingShape s : {RingShape{2048, 65536}, {4096, 65536}, {8192, 65536}})
    if (mtu + kEthernetLen + 80 <= s.frame) return s;
  return {10240, 61440};
}

bool name_fits_devargs(const std::string& name) {
  return !name.empty() && name.find_first_of(",=[]()\"'\\ ") == std::string::npos;
}

std::set<int> open_fds() {
  std::set<int> fds;
  if (DIR* dir = opendir("/proc/self/fd")) {
    while (dirent* e = readdir(dir))
      if (e->d_name[0] != '.') fds.insert(atoi(e->d_name));
    closedir(dir);
    return fds;
  }
  // No /proc: a system call for each number.
  constexpr long kMost = 65536;
  const long limit = std::min(sysconf(_SC_OPEN_MAX), kMost);
  for (int fd = 0; fd < limit; fd++)
    if (fcntl(fd, F_GETFD) >= 0) fds.insert(fd);
  return fds;
}

/// True if @p fd is a TPACKET_V2 AF_PACKET socket bound to @p ifindex.
bool is_packet_socket(int fd, uint32_t ifindex) {
  sockaddr_ll addr{};
  socklen_t len = sizeof addr;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&addr), &len) != 0) return false;
  if (addr.sll_family != AF_PACKET || static_cast<uint32_t>(addr.sll_ifindex) != ifindex)
    return false;
  int version = 0;
  len = sizeof version;
  return getsockopt(fd, SOL_PACKET, PACKET_VERSION, &version, &len) == 0 && version == TPACKET_V2;
}

std::byte* trp_of(rte_mbuf* m) {
  return static_cast<std::byte*>(m->buf_addr) + RTE_PKTMBUF_HEADROOM + kTrpOffset;
}

}  // namespace

std::unique_ptr<EthdevPort> EthdevPort::create(const Spec& spec, std::string& why, int& error) {
  // One at a time: open() finds its packet socket as the one that was not there before.
  static std::mutex& opening = *new std::mutex;
  std::lock_guard hold(opening);
  std::unique_ptr<EthdevPort> port(new EthdevPort);
  error = EIO;
  if (!port->open(spec, why, error)) port.reset();
  return port;
}

bool EthdevPort::open(const Spec& spec, std::string& why, int& error) {
  if (if_nametoindex(spec.ifname.c_str()) != spec.ifindex) {
    error = ENODEV;
    why = "netdev " + spec.ifname + " is not in the network namespace of this process; run it where the netdev is";
    return false;
  }
  if (!name_fits_devargs(spec.ifname)) {
    error = EINVAL;
    why = "the name of netdev '" + spec.ifname + "' holds characters that DPDK cannot take; rename it";
    return false;
  }
  int probe = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
  if (probe < 0) {
    error = errno == EPERM || errno == EACCES ? EPERM : errno;
    why = error == EPERM ? "no permission for raw sockets on " + spec.ifname +
                               "; run as root or give the program CAP_NET_RAW (setcap cap_net_raw+ep)"
                         : "AF_PACKET sockets are not available: " + std::string(strerror(error));
    return false;
  }
  close(probe);
  if (std::string failure = eal_init(); !failure.empty()) {
    error = EIO;
    why = "DPDK's EAL could not be initialised: " + failure;
    return false;
  }

  static std::atomic<unsigned> serial{0};
  std::string number = std::to_string(serial++);
  RingShape shape = ring_shape(spec.mtu);
  unsigned per_block = shape.block / shape.frame;
  unsigned wanted = shape.frame == 2048 ? kSmallFrames : kJumboFrames;
  unsigned frames = (wanted + per_block - 1) / per_block * per_block;
  mtu_ = spec.mtu;
  link_mtu_ = spec.link_mtu;
  eal_last_error();

  auto failed = [&](const char* what) {
    error = rte_errno == ENOMEM ? ENOMEM : EIO;
    std::string detail = eal_last_error();
    why = std::string(what) + " on " + spec.ifname + " failed: " +
          (detail.empty() ? rte_strerror(rte_errno) : detail);
    return false;
  };

  pool_ = rte_pktmbuf_pool_create_by_ops(
      ("usiw_" + number).c_str(), kMbufs, 0, 0,
      static_cast<uint16_t>(RTE_PKTMBUF_HEADROOM + shape.frame + kTrpOffset), SOCKET_ID_ANY, "stack");
  if (pool_ == nullptr) return failed("DPDK mbuf pool");

  std::set<int> before = open_fds();
  vdev_ = "net_af_packet" + number;
  std::string args = "iface=" + spec.ifname + ",qpairs=1,qdisc_bypass=0,blocksz=" +
                     std::to_string(shape.block) + ",framesz=" + std::to_string(shape.frame) +
                     ",framecnt=" + std::to_string(frames);
  if (rte_vdev_init(vdev_.c_str(), args.c_str()) != 0) return failed("DPDK af_packet port");
  probed_ = true;
  for (int fd : open_fds())
    if (before.count(fd) == 0 && is_packet_socket(fd, spec.ifindex)) fd_ = fd;
  if (fd_ < 0) return failed("finding the packet socket of the DPDK port");

  // Until a connection names its port nothing may pass: the netdev's whole traffic would.
  fcntl(fd_, F_SETFD, FD_CLOEXEC);
  int on = 1;
  if (int rc = filter_.attach(fd_, kEthernetLen + mtu_); rc != 0) {
    error = rc;
    why = "socket filter on " + spec.ifname + " failed: " + strerror(rc);
    return false;
  }
  // Own datagrams must not come back; a kernel before 4.20 cannot say so, and there the
  // packet type in the filter does it.
  setsockopt(fd_, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof on);
  widen_send_buffer(frames, shape.frame);

  if (rte_eth_dev_get_port_by_name(vdev_.c_str(), &port_id_) != 0) return failed("DPDK port lookup");
  rte_eth_conf conf{};
  if (rte_eth_dev_configure(port_id_, 1, 1, &conf) != 0 ||
      rte_eth_rx_queue_setup(port_id_, 0, 512, SOCKET_ID_ANY, nullptr, pool_) != 0 ||
      rte_eth_tx_queue_setup(port_id_, 0, 512, SOCKET_ID_ANY, nullptr) != 0 ||
      rte_eth_dev_start(port_id_) != 0)
    return failed("DPDK port set-up");
  started_ = true;
  return true;
}

EthdevPort::~EthdevPort() {
  if (started_) rte_eth_dev_stop(port_id_);
  if (probed_) rte_vdev_uninit(vdev_.c_str());
  rte_mempool_free(pool_);
}

/// Room for a whole transmit ring: the default send buffer would stop a burst half way.
/// Without CAP_NET_ADMIN the system's limit (net.core.wmem_max) holds.
void EthdevPort::widen_send_buffer(unsigned frames, unsigned frame_size) {
  int bytes = static_cast<int>(frames * (frame_size + 1024));
  if (setsockopt(fd_, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof bytes) != 0)
    setsockopt(fd_, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
}

void EthdevPort::clear_error() {
  int error;
  socklen_t len = sizeof error;
  getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &len);
}

size_t EthdevPort::tx_alloc(std::span<TxBuf> bufs) {
  size_t n = 0;
  for (; n < bufs.size(); n++) {
    rte_mbuf* m = rte_pktmbuf_alloc(pool_);
    if (m == nullptr) break;
    bufs[n].data = trp_of(m);
    bufs[n].handle = m;
  }
  return n;
}

size_t EthdevPort::longest_frame() const {
  return kEthernetLen + (link_mtu_ ? link_mtu_->load(std::memory_order_relaxed) : mtu_);
}

/// tx() when some are too long for the netdev: these are lost, as if on the wire.
size_t EthdevPort::tx_what_fits(std::span<TxBuf> bufs, size_t longest) {
  for (size_t i = 0; i < bufs.size(); i++) {
    TxBuf& b = bufs[i];
    if (encap(b.data, b.len, *b.path) + b.len > longest) {
      tx_free(bufs.subspan(i, 1));
    } else if (tx(bufs.subspan(i, 1)) == 0) {
      tx_free(bufs.subspan(i + 1));
      return i;
    }
  }
  return bufs.size();
}

size_t EthdevPort::tx(std::span<TxBuf> bufs) {
  const size_t longest = longest_frame();
  size_t done = 0;
  bool room = true;
  while (done < bufs.size() && room) {
    size_t longest_here = 0;
    rte_mbuf* burst[kBurst];
    uint16_t n = static_cast<uint16_t>(std::min(bufs.size() - done, kBurst));
    for (uint16_t i = 0; i < n; i++) {
      TxBuf& b = bufs[done + i];
      auto* m = static_cast<rte_mbuf*>(b.handle);
      size_t headers = encap(b.data, b.len, *b.path);
      m->data_off = static_cast<uint16_t>(RTE_PKTMBUF_HEADROOM + kTrpOffset - headers);
      m->data_len = static_cast<uint16_t>(headers + b.len);
      longest_here = std::max(longest_here, headers + b.len);
      m->pkt_len = m->data_len;
      burst[i] = m;
    }
    if (longest_here > longest) [[unlikely]]
      return done + tx_what_fits(bufs.subspan(done), longest);
    uint16_t sent = rte_eth_tx_burst(port_id_, 0, burst, n);
    done += sent;
    room = sent == n;
  }
  tx_free(bufs.subspan(done));
  return done;
}

void EthdevPort::tx_free(std::span<TxBuf> bufs) {
  for (TxBuf& b : bufs) rte_pktmbuf_free(static_cast<rte_mbuf*>(b.handle));
}

size_t EthdevPort::rx(std::span<RxBuf> bufs) {
  rte_mbuf* burst[kBurst];
  uint16_t want = static_cast<uint16_t>(std::min(bufs.size(), kBurst));
  uint16_t got = rte_eth_rx_burst(port_id_, 0, burst, want);
  size_t n = 0;
  for (uint16_t i = 0; i < got; i++) {
    RxBuf& b = bufs[n];
    // An adapter that merges buffers or frames gives several pieces.
    if (burst[i]->nb_segs != 1 && rte_pktmbuf_linearize(burst[i]) != 0) [[unlikely]] {
      drops_.malformed++;
      rte_pktmbuf_free(burst[i]);
      continue;
    }
    auto* frame = rte_pktmbuf_mtod(burst[i], const std::byte*);
    switch (decap(frame, burst[i]->data_len, b)) {
      case Decap::kOk:
        b.handle = burst[i];
        n++;
        continue;
      case Decap::kNotOurs:
        break;
      case Decap::kMalformed:
        drops_.malformed++;
        break;
      case Decap::kChecksum:
        drops_.checksum++;
        break;
    }
    rte_pktmbuf_free(burst[i]);
  }
  return n;
}

void EthdevPort::rx_free(std::span<RxBuf> bufs) {
  for (RxBuf& b : bufs) rte_pktmbuf_free(static_cast<rte_mbuf*>(b.handle));
}

}  // namespace usiw
