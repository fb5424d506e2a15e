// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file shared_words.h
/// Two words of a host that the atomics of all its connections work on, and its own program. To one of them numbers are
/// added: each is in the sum once, and no value is found twice. The other counts the wins of compare-and-swaps: from
/// each value on there is one.
#ifndef USIW_TESTS_SIM_SHARED_WORDS_H
#define USIW_TESTS_SIM_SHARED_WORDS_H

#include <map>
#include <set>
#include <vector>

#include "model.h"
#include "world.h"

namespace usiw::sim {

class SharedWords {
 public:
  SharedWords(World& world, int side, uint32_t stag);

  const Block& block() const { return block_; }
  /// Where @p opcode works.
  uint64_t address(WrOpcode opcode) const { return block_.iova(place(opcode).offset); }

  /// An atomic is posted: it may be done from here on. Returns its operands.
  AtomicOperands post(WrOpcode opcode, uint64_t number);
  /// It is not open any more: done, or not posted after all since the queue was full.
  void withdraw(WrOpcode opcode, AtomicOperands operands);
  /// It has been done, and has found @p value.
  void done(WrOpcode opcode, AtomicOperands operands, uint64_t value);
  /// The host's own program adds to the word.
  void add();
  /// No connection is left.
  void check();

 private:
  const Piece& place(WrOpcode opcode) const { return opcode == WrOpcode::kFetchAdd ? sum_ : swaps_; }
  uint64_t& word(const Piece& at) { return *reinterpret_cast<uint64_t*>(block_.bytes.data() + at.offset); }

  World& w_;
  const int side_;
  Block block_;
  Piece sum_, swaps_;
  uint64_t first_sum_ = 0, first_swap_ = 0;
  std::map<uint64_t, uint64_t> added_;     ///< by the value found: what was added to it
  std::multiset<uint64_t> open_;           ///< posted, and nobody knows whether they have been done
  std::multiset<uint64_t> open_swaps_;     ///< the same, by what they compare
  std::set<uint64_t> won_;                 ///< values that a compare-and-swap has found as it wanted
  uint64_t seen_ = 0;                      ///< the latest value of the second word that anybody has heard of
};

}  // namespace usiw::sim

#endif  // USIW_TESTS_SIM_SHARED_WORDS_H
