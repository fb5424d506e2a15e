// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file lent_windows.h
/// Windows of type 2 that other connections try to use. One connection binds each of them to memory of its host, and
/// the window remains bound after that connection. No other connection may use or unbind the window, because its STag
/// is not associated with their streams (RFC 5040, RFC 5041).
#ifndef USIW_TESTS_SIM_LENT_WINDOWS_H
#define USIW_TESTS_SIM_LENT_WINDOWS_H

#include <functional>
#include <vector>

#include "engine/engine.h"
#include "model.h"
#include "world.h"

namespace usiw::sim {

class LentWindows : Reporter {
 public:
  struct Window {
    uint32_t stag, pd, owner;
    std::function<bool()> lives;  ///< returns whether the owner is connected
    bool bound = false;           ///< the completion of its bind has been polled
  };

  /// @p stag: the first of two STags, one for each PD.
  LentWindows(World& world, Engine& engine, int side, uint32_t stag);

  /// Registers a window that the connection @p owner, whose QP is in @p pd, is to bind.
  void add(uint32_t stag, uint32_t pd, uint32_t owner, std::function<bool()> lives);
  void fill_bind(uint32_t stag, Qp::SendWr& wr) const;
  void bound(uint32_t stag);
  /// Returns a window that a connection other than @p owner has bound, or nullptr. @p living: that connection must be
  /// connected.
  const Window* of_another(uint32_t owner, bool living) const;
  /// Returns the start address of the windows to the memory of @p pd.
  uint64_t address(uint32_t pd) const { return block(pd).iova(kAt); }

  /// Checks after each run of the engine that no byte has changed.
  void check();
  /// Checks, when no QP is left, that all bound windows still are bound. Destroys windows and memory.
  void check_end();

 private:
  static constexpr uint32_t kAt = 64;
  const Block& block(uint32_t pd) const { return blocks_[pd == kPd ? 0 : 1]; }

  Engine& engine_;
  Block blocks_[2];
  std::vector<Window> windows_;
};

}  // namespace usiw::sim

#endif  // USIW_TESTS_SIM_LENT_WINDOWS_H
