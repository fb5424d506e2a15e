// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "base/say.h"

#include <unistd.h>

#include <mutex>
#include <set>

namespace usiw {

void say_once(const std::string& line) {
  // Without a rank: a leaf, below which nothing but write(2) is called, and locks of every rank may be held.
  static std::mutex& lock = *new std::mutex;  // never destroyed: exit handlers may speak
  static auto& said = *new std::set<std::string>;
  std::lock_guard hold(lock);
  if (!said.insert(line).second) return;
  std::string text = "usiw: " + line + "\n";
  [[maybe_unused]] ssize_t n = write(STDERR_FILENO, text.data(), text.size());
}

}  // namespace usiw
