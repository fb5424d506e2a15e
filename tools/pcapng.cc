// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "tools/pcapng.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/ip.h"
#include "tools/json.h"
#include "tools/trace_text.h"

namespace usiw::tools {
namespace {

constexpr uint32_t kSectionHeader = 0x0a0d0d0a, kInterface = 1, kEnhancedPacket = 6;
constexpr uint16_t kOptComment = 1, kOptAppl = 4, kOptIfName = 2, kOptIfTsresol = 9, kOptFlags = 2;
constexpr uint16_t kLinkEthernet = 1;
constexpr size_t kMaxComment = 4000;  ///< bytes of all events that are comments of a packet, so that blocks stay small
constexpr uint8_t kHopLimit = 64, kUdp = 17;

class Buffer {
 public:
  void bytes(const void* data, size_t size) {
    const auto* p = static_cast<const std::byte*>(data);
    out_.insert(out_.end(), p, p + size);
  }
  template <typename T>
  void host(T value) {
    bytes(&value, sizeof value);
  }
  void be16(unsigned value) {
    const uint8_t b[] = {static_cast<uint8_t>(value >> 8), static_cast<uint8_t>(value)};
    bytes(b, sizeof b);
  }
  void pad() {
    while (out_.size() % 4 != 0) out_.push_back(std::byte{0});
  }
  void option(uint16_t code, std::string_view value) {
    host(code);
    host(static_cast<uint16_t>(value.size()));
    bytes(value.data(), value.size());
    pad();
  }
  const std::vector<std::byte>& get() const { return out_; }

 private:
  std::vector<std::byte> out_;
};

/// Appends a block: type, total length, @p body, total length again. The size of @p body is a multiple of 4 bytes.
void append_block(std::vector<std::byte>& file, uint32_t type, const Buffer& body) {
  const auto length = static_cast<uint32_t>(12 + body.get().size());
  Buffer block;
  block.host(type);
  block.host(length);
  block.bytes(body.get().data(), body.get().size());
  block.host(length);
  file.insert(file.end(), block.get().begin(), block.get().end());
}

uint16_t ipv4_checksum(const uint8_t (&header)[20]) {
  uint32_t sum = 0;
  for (size_t i = 0; i < sizeof header; i += 2) sum += static_cast<uint32_t>(header[i] << 8 | header[i + 1]);
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<uint16_t>(~sum);
}

/// Appends the Ethernet, IP and UDP headers of a datagram with @p len bytes of payload.
void put_headers(Buffer& out, const TraceFlow& f, bool tx, uint32_t len) {
  const bool v4 = usiw::is_mapped_ipv4(f.local_addr);
  const auto& from = tx ? f.local_addr : f.remote_addr;
  const auto& to = tx ? f.remote_addr : f.local_addr;
  out.bytes(tx ? f.remote_mac : f.local_mac, 6);
  out.bytes(tx ? f.local_mac : f.remote_mac, 6);
  out.be16(v4 ? 0x0800 : 0x86dd);
  if (v4) {
    const unsigned total = usiw::kIpv4UdpLen + len;
    uint8_t ip[20] = {0x45,      0,   static_cast<uint8_t>(total >> 8), static_cast<uint8_t>(total), 0, 0, 0x40, 0,
                      kHopLimit, kUdp};
    std::memcpy(ip + 12, from + 12, 4);
    std::memcpy(ip + 16, to + 12, 4);
    const uint16_t sum = ipv4_checksum(ip);
    ip[10] = static_cast<uint8_t>(sum >> 8);
    ip[11] = static_cast<uint8_t>(sum);
    out.bytes(ip, sizeof ip);
  } else {
    out.be16(0x6000);
    out.be16(0);
    out.be16(8 + len);
    const uint8_t next[] = {kUdp, kHopLimit};
    out.bytes(next, sizeof next);
    out.bytes(from, 16);
    out.bytes(to, 16);
  }
  out.bytes(tx ? f.local_port : f.remote_port, 2);
  out.bytes(tx ? f.remote_port : f.local_port, 2);
  out.be16(8 + len);
  out.be16(0);
}

/// Returns a flow without addresses, for a datagram whose connection is no longer in the trace's table.
const TraceFlow& unknown_flow() {
  static const TraceFlow flow = [] {
    TraceFlow f{};
    f.local_addr[10] = f.local_addr[11] = f.remote_addr[10] = f.remote_addr[11] = 0xff;
    return f;
  }();
  return flow;
}

using Comments = std::unordered_map<size_t, std::vector<std::string>>;

/// Returns the comments of each datagram, by the index of the datagram's event.
Comments assign_comments(const Trace& trace) {
  Comments comments;
  std::unordered_map<uint32_t, size_t> last;  // index of the latest datagram so far, by QP
  std::unordered_map<uint32_t, std::vector<std::string>> waiting;
  for (size_t i = 0; i < trace.events.size(); ++i) {
    const TraceEvent& e = trace.events[i];
    if (is_packet(e)) {
      last[e.qpn] = i;
      if (auto w = waiting.find(e.qpn); w != waiting.end()) {
        comments[i] = std::move(w->second);
        waiting.erase(w);
      }
      continue;
    }
    std::string text = line_of(trace, e);
    if (const auto before = last.find(e.qpn); before != last.end())
      comments[before->second].push_back(std::move(text));
    else
      waiting[e.qpn].push_back(std::move(text));
  }
  return comments;
}

void append_packet(std::vector<std::byte>& file, const Trace& trace, const TraceEvent& e,
                   const std::vector<std::string>* comments) {
  const TraceFlow* flow = trace.flow_of(e);
  const bool tx = e.kind == TraceKind::kTx;
  Buffer frame;
  put_headers(frame, flow != nullptr ? *flow : unknown_flow(), tx, e.len);
  frame.bytes(e.bytes, e.kept);

  const uint64_t ns = e.time_ns + trace.wall_ns;
  Buffer body;
  body.host(uint32_t{0});  // interface
  body.host(static_cast<uint32_t>(ns >> 32));
  body.host(static_cast<uint32_t>(ns));
  body.host(static_cast<uint32_t>(frame.get().size()));
  body.host(static_cast<uint32_t>(frame.get().size() + e.len - e.kept));
  body.bytes(frame.get().data(), frame.get().size());
  body.pad();
  const uint32_t direction = tx ? 2 : 1;
  body.option(kOptFlags, {reinterpret_cast<const char*>(&direction), sizeof direction});
  if (flow == nullptr) body.option(kOptComment, "addresses not known: too many connections since");
  size_t room = kMaxComment;
  if (comments != nullptr) {
    for (const std::string& text : *comments) {
      if (text.size() > room) break;
      room -= text.size();
      body.option(kOptComment, text);
    }
  }
  body.option(0, "");
  append_block(file, kEnhancedPacket, body);
}

}  // namespace

std::vector<std::byte> to_pcapng(const Trace& trace) {
  std::vector<std::byte> file;
  Buffer section;
  section.host(uint32_t{0x1a2b3c4d});
  section.host(uint16_t{1});
  section.host(uint16_t{0});
  section.host(uint64_t{UINT64_MAX});
  section.option(kOptAppl, "usiw trace");
  section.option(kOptComment, "device " + printable(trace.device) + ", process " + std::to_string(trace.pid));
  section.option(0, "");
  append_block(file, kSectionHeader, section);

  Buffer interface;
  interface.host(kLinkEthernet);
  interface.host(uint16_t{0});
  interface.host(uint32_t{0});
  interface.option(kOptIfName, printable(trace.device));
  interface.option(kOptIfTsresol, std::string_view("\x09", 1));
  interface.option(0, "");
  append_block(file, kInterface, interface);

  const Comments comments = assign_comments(trace);
  for (size_t i = 0; i < trace.events.size(); ++i) {
    if (!is_packet(trace.events[i])) continue;
    const auto found = comments.find(i);
    append_packet(file, trace, trace.events[i], found == comments.end() ? nullptr : &found->second);
  }
  return file;
}

}  // namespace usiw::tools
