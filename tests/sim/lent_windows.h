// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file lent_windows.h
/// Memory of a host with windows of type 2 to it, each bound by one connection and left so when that is gone. No other
/// connection may work on it by them, or unbind them: STag not associated with the stream (RFC 5040, RFC 5041).
#ifndef USIW_TESTS_SIM_LENT_WINDOWS_H
#define USIW_TESTS_SIM_LENT_WINDOWS_H

#include <functional>
#include <vector>

#include "engine/engine.h"
#include "model.h"
#include "world.h"

namespace usiw::sim {

class LentWindows {
 public:
  struct Window {
    uint32_t stag, pd, owner;
    std::function<bool()> lives;  ///< the owner is connected
    bool bound = false;  ///< the completion of its bind was polled
  };

  /// @p stag: two of them, one for each PD.
  LentWindows(World& world, Engine& engine, int side, uint32_t stag);

  /// The connection @p owner of @p pd is to bind @p stag.
  void add(uint32_t stag, uint32_t pd, uint32_t owner, std::function<bool()> lives);
  void fill_bind(uint32_t stag, Qp::SendWr& wr) const;
  void bound(uint32_t stag);
  /// One that is bound by another connection than @p owner, @p living: which is connected; nullptr: there is none.
  const Window* of_another(uint32_t owner, bool living) const;
  /// Where a window to the memory of @p pd begins.
  uint64_t address(uint32_t pd) const { return block(pd).iova(kAt); }

  /// After each run of the engine: all is as it was.
  void check();
  /// No QP is left: all that were bound still are. Destroys everything.
  void check_end();

 private:
  static constexpr uint32_t kAt = 64;
  const Block& block(uint32_t pd) const { return blocks_[pd == kPd ? 0 : 1]; }

  World& w_;
  Engine& engine_;
  const int side_;
  Block blocks_[2];
  std::vector<Window> windows_;
};

}  // namespace usiw::sim

#endif  // USIW_TESTS_SIM_LENT_WINDOWS_H
