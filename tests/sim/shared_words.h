// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file shared_words.h
/// Two words of a host on which the atomics of all its connections work, and its own program. Fetch-and-adds add to the
/// first word: each number must be in the sum once, and no two atomics find the same value. Compare-and-swaps increment
/// the second word: exactly one of them succeeds for each value.
#ifndef USIW_TESTS_SIM_SHARED_WORDS_H
#define USIW_TESTS_SIM_SHARED_WORDS_H

#include <map>
#include <set>
#include <vector>

#include "model.h"
#include "world.h"

namespace usiw::sim {

class SharedWords : Reporter {
 public:
  SharedWords(World& world, int side, uint32_t stag);

  const Block& block() const { return block_; }
  /// Returns the address of the word on which @p opcode works.
  uint64_t address(WrOpcode opcode) const { return block_.iova(place(opcode).offset); }

  /// Records that an atomic is posted, and may be done from now on. Returns its operands.
  AtomicOperands post(WrOpcode opcode, uint64_t number);
  /// Records that the atomic is not open any more: it was done, or not posted because the queue was full.
  void withdraw(WrOpcode opcode, AtomicOperands operands);
  /// Records that the atomic was done and has found @p value.
  void done(WrOpcode opcode, AtomicOperands operands, uint64_t value);
  /// Adds a number to the first word, as a program of the host itself.
  void add();
  /// Checks both words when no connection is left.
  void check();

 private:
  const Piece& place(WrOpcode opcode) const { return opcode == WrOpcode::kFetchAdd ? sum_ : swaps_; }
  uint64_t& word(const Piece& at) { return *reinterpret_cast<uint64_t*>(block_.bytes.data() + at.offset); }

  Block block_;
  Piece sum_, swaps_;
  uint64_t first_sum_ = 0, first_swap_ = 0;
  std::map<uint64_t, uint64_t> added_;  ///< the number that was added, by the value found
  std::multiset<uint64_t> open_;        ///< numbers of posted atomics that may have been done
  std::multiset<uint64_t> open_swaps_;  ///< the same for compare-and-swaps, by the value that they compare
  std::set<uint64_t> won_;              ///< values for which a compare-and-swap succeeded
  uint64_t seen_ = 0;                   ///< the latest known value of the second word
};

}  // namespace usiw::sim

#endif  // USIW_TESTS_SIM_SHARED_WORDS_H
