// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "port/fault_port.h"

#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>

#include "uapi/usiw_wire.h"

namespace usiw {
namespace {

/// A reordered datagram goes out behind one to three later ones; if none come, after so long.
constexpr uint64_t kReorderNs = 200'000;
constexpr uint64_t kReorderMost = 3;

uint64_t now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(t.tv_nsec);
}

/// The finaliser of SplitMix64: every input bit changes half of the output.
uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

enum Question : uint64_t { kLost = 1, kReordered = 2, kHowFar = 3 };

}  // namespace

FaultPort::FaultPort(std::unique_ptr<NetPort> inner, const Faults& faults)
    : ForwardingPort(std::move(inner)), faults_(faults) {
  held_.reserve(kMaxHeldBack);
  resets_.reserve(16);
  epoll_ = epoll_create1(EPOLL_CLOEXEC);
  timer_ = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
  epoll_event event{.events = EPOLLIN, .data = {}};
  epoll_ctl(epoll_, EPOLL_CTL_ADD, inner_->wait_fd(), &event);
  epoll_ctl(epoll_, EPOLL_CTL_ADD, timer_, &event);
}

FaultPort::~FaultPort() {
  for (Held& h : held_) inner_->tx_free({&h.buf, 1});
  if (timer_ >= 0) close(timer_);
  if (epoll_ >= 0) close(epoll_);
}

double FaultPort::chance(uint64_t number, uint64_t of_what) const {
  return static_cast<double>(mix(mix(faults_.seed + of_what) + number) >> 11) * 0x1p-53;
}

/// The datagram that goes over the limit of its connection is answered as a peer answers that has
/// forgotten the connection; so are those behind it, should there be any.
bool FaultPort::is_killed(const TxBuf& buf) {
  if (faults_.kill_after == 0) return false;
  auto s = std::find_if(sent_.begin(), sent_.end(), [&](const Sent& o) { return o.flow == buf.path->flow; });
  if (s == sent_.end()) s = sent_.insert(sent_.end(), {buf.path->flow, 0});
  s->bytes += buf.len;
  if (s->bytes <= faults_.kill_after || buf.len < sizeof(usiw_trp_hdr)) return false;
  usiw_trp_hdr sent, reset{};
  std::memcpy(&sent, buf.data, sizeof sent);
  reset.psn = sent.ack_psn;
  reset.ack_psn = sent.psn;
  reset.opflags = __builtin_bswap16(USIW_TRP_RESET << USIW_TRP_OPCODE_SHIFT | USIW_TRP_F_STRAY);
  if (resets_.size() == resets_.capacity()) return true;
  Reset& r = resets_.emplace_back();
  r.flow = buf.path->flow;
  r.len = sizeof reset;
  std::memcpy(r.data, &reset, sizeof reset);
  return true;
}

size_t FaultPort::tx(std::span<TxBuf> bufs) {
  bool room = true;
  size_t taken = 0;
  for (TxBuf& buf : bufs) {
    uint64_t number = number_++;
    if (!room || is_killed(buf) || chance(number, kLost) < faults_.loss) {
      inner_->tx_free({&buf, 1});
    } else {
      uint64_t due = faults_.delay_ns, due_number = 0;
      bool late = chance(number, kReordered) < faults_.reorder;
      if (late) {
        due += kReorderNs;
        due_number = number + 1 + mix(faults_.seed + number + kHowFar) % kReorderMost;
      }
      if (due != 0 && held_.size() < kMaxHeldBack) {
        held_.push_back({buf, *buf.path, now() + due, faults_.delay_ns == 0 ? due_number : 0});
        held_.back().buf.path = nullptr;
      } else {
        room = inner_->tx({&buf, 1}) == 1;
      }
    }
    if (room) taken++;
    if (!held_.empty()) send_due();
  }
  set_timer();
  return taken;
}

/// In the order in which they became due, as far as one call can tell.
void FaultPort::send_due() {
  uint64_t at = now();
  for (size_t i = 0; i < held_.size();) {
    Held& h = held_[i];
    if (h.due_ns > at && (h.due_number == 0 || h.due_number >= number_)) {
      i++;
      continue;
    }
    h.buf.path = &h.path;
    inner_->tx({&h.buf, 1});
    held_.erase(held_.begin() + static_cast<ptrdiff_t>(i));
  }
}

void FaultPort::set_timer() {
  if (held_.empty() && resets_.empty()) return;
  uint64_t next = resets_.empty() ? UINT64_MAX : 1;
  for (const Held& h : held_) next = std::min(next, h.due_ns);
  itimerspec when{};
  when.it_value.tv_sec = static_cast<time_t>(next / 1'000'000'000u);
  when.it_value.tv_nsec = static_cast<long>(next % 1'000'000'000u);
  timerfd_settime(timer_, TFD_TIMER_ABSTIME, &when, nullptr);
}

size_t FaultPort::rx(std::span<RxBuf> bufs) {
  uint64_t fired;
  if (!held_.empty() || !resets_.empty()) {
    [[maybe_unused]] ssize_t n = read(timer_, &fired, sizeof fired);
    send_due();
    set_timer();
  }
  if (!resets_.empty() && !bufs.empty()) {
    Reset& r = resets_.back();
    auto* copy = new std::byte[r.len];
    std::memcpy(copy, r.data, r.len);
    bufs[0] = {copy, r.len, r.flow, nullptr, false};
    resets_.pop_back();
    return 1;
  }
  return inner_->rx(bufs);
}

void FaultPort::rx_free(std::span<RxBuf> bufs) {
  for (RxBuf& b : bufs)
    if (b.handle == nullptr)
      delete[] b.data;  // a RESET made here
    else
      inner_->rx_free({&b, 1});
}

}  // namespace usiw
