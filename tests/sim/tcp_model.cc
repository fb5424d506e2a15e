// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "tcp_model.h"

#include <algorithm>
#include <cmath>

namespace usiw::sim {

namespace {

constexpr double kCubicC = 0.4, kCubicBeta = 0.7, kRenoBeta = 0.5;
constexpr double kMinRto = 200e6;  ///< ns, the value of Linux
constexpr uint64_t kReordering = 3;

}  // namespace

void TcpModel::fill() {
  while (static_cast<double>(inflight_) < std::floor(cwnd_)) {
    Packet p{.from = from_, .to = to_, .bytes = kSegmentOnLine, .capable = capable_, .tcp = true, .number = next_};
    sent_.push_back({next_++, w_.clock.now, false});
    ++inflight_;
    out_(std::move(p));
  }
  if (!armed_) arm();
}

void TcpModel::arrive(const Packet& p) {
  if (p.to == from_) return acked(p);
  delivered_ += kSegment;
  // The acknowledgement returns the mark of this segment.
  out_({.from = to_, .to = from_, .bytes = kAckOnLine, .marked = p.marked, .tcp = true, .number = p.number});
}

void TcpModel::acked(const Packet& p) {
  if (sent_.empty() || p.number < sent_.front().number) return;  // late: the segment counts as lost
  Sent& s = sent_[p.number - sent_.front().number];
  if (s.acked) return;
  s.acked = true;
  --inflight_;
  const auto rtt = static_cast<double>(w_.clock.now - s.at);
  if (srtt_ == 0) srtt_ = rtt, rttvar_ = rtt / 2;
  rttvar_ += (std::fabs(srtt_ - rtt) - rttvar_) / 4;
  srtt_ += (rtt - srtt_) / 8;
  backoffs_ = 0;
  rto_at_ = w_.clock.now + static_cast<uint64_t>(std::max(kMinRto, srtt_ + 4 * rttvar_));
  highest_acked_ = std::max(highest_acked_, p.number);
  bool lost = false;
  while (!sent_.empty() && (sent_.front().acked || sent_.front().number + kReordering <= highest_acked_)) {
    if (!sent_.front().acked) {
      --inflight_;
      lost |= sent_.front().number > recover_;
    }
    sent_.pop_front();
  }
  if (lost || (p.marked && p.number > recover_))
    reduce();
  else if (p.number > recover_)
    grow();
  fill();
}

/// Reduces the window, once for each window of data.
void TcpModel::reduce() {
  recover_ = next_ - 1;
  const double beta = kind_ == TcpKind::kCubic ? kCubicBeta : kRenoBeta;
  w_max_ = cwnd_ < w_max_ ? cwnd_ * (1 + kCubicBeta) / 2 : cwnd_;  // fast convergence
  cwnd_ = std::max(2.0, cwnd_ * beta);
  ssthresh_ = cwnd_;
  epoch_ = 0;
}

double TcpModel::cubic_window(double seconds) const {
  const double k = std::cbrt(std::max(0.0, w_max_ - ssthresh_) / kCubicC), t = seconds - k;
  return kCubicC * t * t * t + w_max_;
}

void TcpModel::grow() {
  if (cwnd_ < ssthresh_) return void(cwnd_ += 1);
  if (kind_ == TcpKind::kReno) return void(cwnd_ += 1 / cwnd_);
  if (epoch_ == 0) {
    epoch_ = w_.clock.now;
    reno_ = cwnd_;
    w_max_ = std::max(w_max_, cwnd_);
  }
  const double target = cubic_window((static_cast<double>(w_.clock.now - epoch_) + srtt_) / 1e9);
  reno_ += 3 * (1 - kCubicBeta) / (1 + kCubicBeta) / cwnd_;  // at least as fast as Reno
  cwnd_ = std::max(cwnd_ + std::clamp((target - cwnd_) / cwnd_, 0.0, 0.5), reno_);
}

void TcpModel::arm() {
  armed_ = true;
  if (rto_at_ <= w_.clock.now) rto_at_ = w_.clock.now + static_cast<uint64_t>(kMinRto) * 5;  // no RTT sample yet
  w_.after(rto_at_ - w_.clock.now, life_, [this] {
    armed_ = false;
    if (rto_at_ > w_.clock.now) return arm();
    timed_out();
  });
}

void TcpModel::timed_out() {
  ssthresh_ = std::max(2.0, cwnd_ * kRenoBeta);
  cwnd_ = 1;
  epoch_ = 0;
  w_max_ = 0;
  recover_ = next_ - 1;
  sent_.clear();
  inflight_ = 0;
  const double rto = std::max(kMinRto, srtt_ + 4 * rttvar_);
  backoffs_ = std::min(backoffs_ + 1, 6u);
  rto_at_ = w_.clock.now + (static_cast<uint64_t>(rto) << backoffs_);
  fill();
}

}  // namespace usiw::sim
