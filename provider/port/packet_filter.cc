// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "port/packet_filter.h"

#include <arpa/inet.h>
#include <linux/filter.h>
#include <linux/if_packet.h>
#include <sys/socket.h>

#include <cerrno>
#include <vector>

#include "port/encap.h"
#include "uapi/usiw_wire.h"

namespace usiw {
namespace {

/// Builds a program whose jumps name "reject" and "accept" before their places are known.
class Program {
 public:
  void load_half(uint32_t at) { stmt(BPF_LD | BPF_H | BPF_ABS, at); }
  void load_byte(uint32_t at) { stmt(BPF_LD | BPF_B | BPF_ABS, at); }
  void load_ancillary(uint32_t what) {
    stmt(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(SKF_AD_OFF) + what);
  }
  void load_length() { stmt(BPF_LD | BPF_W | BPF_LEN, 0); }
  void reject_above(uint32_t value) { code_.push_back({BPF_JMP | BPF_JGT | BPF_K, kReject, 0, value}); }
  void require(uint32_t value) { code_.push_back({BPF_JMP | BPF_JEQ | BPF_K, 0, kReject, value}); }
  void reject_if(uint32_t value) { code_.push_back({BPF_JMP | BPF_JEQ | BPF_K, kReject, 0, value}); }
  void reject_if_bits(uint32_t bits) {
    code_.push_back({BPF_JMP | BPF_JSET | BPF_K, kReject, 0, bits});
  }
  void accept_if(uint32_t value) { code_.push_back({BPF_JMP | BPF_JEQ | BPF_K, kAccept, 0, value}); }
  void accept() { stmt(BPF_RET | BPF_K, kWholePacket); }
  void shift_right(uint32_t bits) { stmt(BPF_ALU | BPF_RSH | BPF_K, bits); }
  /// Skips what follows unless the accumulator is @p value; end_if() ends it.
  size_t begin_if(uint32_t value) {
    code_.push_back({BPF_JMP | BPF_JEQ | BPF_K, 0, 0, value});
    return code_.size() - 1;
  }
  void end_if(size_t at) { code_[at].jf = static_cast<uint8_t>(code_.size() - at - 1); }
  void jump(std::vector<size_t>& from) {
    from.push_back(code_.size());
    stmt(BPF_JMP | BPF_JA, 0);
  }
  void land(const std::vector<size_t>& from) {
    for (size_t at : from) code_[at].k = static_cast<uint32_t>(code_.size() - at - 1);
  }

  /// Appends the ends, the reject first (where an unmatched packet falls), and resolves.
  int attach(int fd) {
    size_t reject = code_.size();
    stmt(BPF_RET | BPF_K, 0);
    size_t accept = code_.size();
    stmt(BPF_RET | BPF_K, kWholePacket);
    for (size_t i = 0; i < reject; i++) {
      sock_filter& f = code_[i];
      if (BPF_CLASS(f.code) != BPF_JMP || BPF_OP(f.code) == BPF_JA) continue;
      auto resolve = [&](uint8_t& j) {
        if (j == kReject) j = static_cast<uint8_t>(reject - i - 1);
        if (j == kAccept) j = static_cast<uint8_t>(accept - i - 1);
      };
      resolve(f.jt);
      resolve(f.jf);
    }
    sock_fprog prog{static_cast<unsigned short>(code_.size()), code_.data()};
    return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &prog, sizeof prog) == 0 ? 0 : errno;
  }

 private:
  static constexpr uint32_t kWholePacket = 0x40000;
  static constexpr uint8_t kReject = 0xff, kAccept = 0xfe;
  void stmt(int code, uint32_t k) { code_.push_back({static_cast<uint16_t>(code), 0, 0, k}); }
  std::vector<sock_filter> code_;
};

void reject_kernel_opcodes(Program& p, uint32_t trp_at) {
  p.load_byte(trp_at + 8);
  p.shift_right(4);
  for (uint32_t op = 0; op < 16; op++)
    if ((USIW_TRP_KERNEL_OPCODES >> op & 1) != 0) p.reject_if(op);
}

}  // namespace

int PacketFilter::attach(int fd, uint32_t longest) {
  fd_ = fd;
  longest_ = longest;
  return install();
}

int PacketFilter::add(uint16_t port) {
  unsigned& users = ports_[ntohs(port)];
  if (users++ != 0) return 0;
  int rc = install();
  if (rc != 0) ports_.erase(ntohs(port));
  return rc;
}

void PacketFilter::remove(uint16_t port) {
  auto it = ports_.find(ntohs(port));
  if (it == ports_.end() || --it->second != 0) return;
  ports_.erase(it);
  install();  // on failure the old, wider filter stays: slower, not wrong
}

int PacketFilter::install() {
  Program p;
  if (ports_.empty()) return p.attach(fd_);
  constexpr uint32_t kIp = kEthernetLen;
  p.load_ancillary(SKF_AD_PKTTYPE);
  p.require(PACKET_HOST);
  p.load_ancillary(SKF_AD_VLAN_TAG_PRESENT);
  p.require(0);
  // Several datagrams as one frame: a socket gets them.
  p.load_length();
  p.reject_above(longest_);
  std::vector<size_t> to_ports;

  p.load_half(12);
  size_t v4 = p.begin_if(0x0800);
  p.load_byte(kIp);
  p.require(0x45);  // no options
  p.load_byte(kIp + 9);
  p.require(17);
  p.load_half(kIp + 6);
  p.reject_if_bits(0x3fff);  // fragments
  reject_kernel_opcodes(p, encap_len(true));
  p.load_half(kIp + kIpv4Len + 2);
  p.jump(to_ports);
  p.end_if(v4);

  p.require(0x86dd);
  p.load_byte(kIp + 6);
  p.require(17);
  reject_kernel_opcodes(p, encap_len(false));
  p.load_half(kIp + kIpv6Len + 2);

  p.land(to_ports);
  if (ports_.size() <= kMaxPorts) {
    for (const auto& [port, users] : ports_) p.accept_if(port);
  } else {
    p.accept();
  }
  return p.attach(fd_);
}

}  // namespace usiw
