// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file faults.h
/// What USIW_FAULTS asks for (usiw-run's --loss, --kill-after, ...).
#ifndef USIW_PORT_FAULTS_H
#define USIW_PORT_FAULTS_H

#include <cstdint>
#include <string>

namespace usiw {

struct Faults {
  double loss = 0, reorder = 0;  ///< probability per datagram, 0..1
  uint64_t delay_ns = 0;         ///< of every datagram
  uint64_t seed = 0;
  uint64_t kill_after = 0;       ///< bytes of a connection (UDP payload), 0: never
  uint64_t fail_wr = 0;          ///< the n-th send work request of the process, 0: none

  bool on_wire() const { return loss > 0 || reorder > 0 || delay_ns != 0 || kill_after != 0; }
  /// Parses "loss=0.01,reorder=0.05,delay-us=50,seed=7,kill-after=65536,fail-wr=3". False if it is
  /// something else.
  static bool parse(const std::string& text, Faults& out);
  /// As USIW_FAULTS says; none if it says nothing, or nothing that can be understood.
  static const Faults& from_environment();
};

}  // namespace usiw

#endif  // USIW_PORT_FAULTS_H
