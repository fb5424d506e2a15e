// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "shared_words.h"

#include <algorithm>

namespace usiw::sim {

SharedWords::SharedWords(World& world, int side, uint32_t stag)
    : Reporter(world, side),
      block_(stag << 8 | 0x88, kAccessLocalWrite | kAccessRemoteAtomic, world.sc.seed + stag),
      sum_(block_.take(8)),
      swaps_(block_.take(8)) {
  block_.make();
  first_sum_ = word(sum_);
  first_swap_ = seen_ = word(swaps_);
}

/// Each number to add is, almost certainly, different and not the sum of others. All swaps try to increment the latest
/// known value.
AtomicOperands SharedWords::post(WrOpcode opcode, uint64_t number) {
  if (opcode == WrOpcode::kFetchAdd) {
    const uint64_t n = Rng::mix(number) >> 24 | 1;
    open_.insert(n);
    return {n, 0};
  }
  open_swaps_.insert(seen_);
  return {seen_, seen_ + 1};
}

void SharedWords::withdraw(WrOpcode opcode, AtomicOperands operands) {
  auto& open = opcode == WrOpcode::kFetchAdd ? open_ : open_swaps_;
  open.erase(open.find(operands.compare_add));
}

void SharedWords::done(WrOpcode opcode, AtomicOperands operands, uint64_t value) {
  withdraw(opcode, operands);
  if (opcode == WrOpcode::kFetchAdd) {
    if (!added_.emplace(value, operands.compare_add).second)
      fail("atomic", "two atomics have found %llx in the sum", ull(value));
    if (w_.mutation == Mutation::kRepeatAtomic) word(sum_) += operands.compare_add, ++w_.mutated;
    return;
  }
  if (value - first_swap_ > word(swaps_) - first_swap_)
    fail("atomic", "a compare-and-swap has found what was never there");
  const bool won = value == operands.compare_add;
  if (won && !won_.insert(value).second) fail("atomic", "two have won from %llx on", ull(value));
  const uint64_t now = won ? value + 1 : value;
  if (now - first_swap_ > seen_ - first_swap_) seen_ = now;
  if (won && w_.mutation == Mutation::kTwoWinners) --word(swaps_), --seen_, ++w_.mutated;
}

void SharedWords::add() {
  const uint64_t n = Rng::mix(w_.rng()) >> 24 | 1;
  if (!added_.emplace(word(sum_), n).second) fail("atomic", "an atomic has found what the sum is now");
  word(sum_) += n;
}

void SharedWords::check() {
  // Each value found and the number added to it form a link of one chain. A gap in the chain means that one or more
  // atomics were done whose completion did not report success.
  uint64_t at = first_sum_;
  const uint64_t end = word(sum_);
  size_t gaps = 0;
  const auto gap = [&](uint64_t to) {
    ++gaps;
    if (const auto one = open_.find(to - at); one != open_.end()) {
      open_.erase(one);
      --gaps;
      return;
    }
    uint64_t most = 0;
    for (const uint64_t n : open_) most += n;
    if (to - at > most) fail("atomic", "the sum is larger than what was added: an atomic has been done twice");
  };
  std::vector<std::pair<uint64_t, uint64_t>> links(added_.begin(), added_.end());
  std::sort(links.begin(), links.end(),
            [&](const auto& a, const auto& b) { return a.first - first_sum_ < b.first - first_sum_; });
  for (const auto& [found, n] : links) {
    if (found - first_sum_ < at - first_sum_)
      return fail("atomic", "two atomics have found the sum as one of them did");
    if (found != at) gap(found);
    at = found + n;
  }
  if (end != at) gap(end);
  if (end - first_sum_ < at - first_sum_) fail("atomic", "something has been added, and is not in the sum");
  if (gaps != 0 && open_.empty()) fail("atomic", "there is in the sum what nobody has added");

  for (uint64_t n = first_swap_; n != word(swaps_); ++n)
    if (!won_.contains(n) && !open_swaps_.contains(n)) return fail("atomic", "nobody has won from %llx on", ull(n));
  if (block_.changed_outside({sum_, swaps_})) fail("memory", "a byte beside the words has changed");
}

}  // namespace usiw::sim
