// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "runtime/patience.h"

#include <charconv>
#include <cstdlib>
#include <string>

#include "base/say.h"

namespace usiw {

unsigned parse_patience(std::string_view text) {
  unsigned seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  const bool whole = error == std::errc{} && end == text.data() + text.size();
  return whole && seconds >= kPatienceMin && seconds <= kPatienceMax ? seconds : 0;
}

uint64_t patience_ns() {
  unsigned seconds = kPatienceDefault;
  if (const char* text = getenv(kPatienceVariable); text != nullptr && *text != 0) {
    seconds = parse_patience(text);
    if (seconds == 0) {
      seconds = kPatienceDefault;
      say_once(std::string(kPatienceVariable) + ": " + std::to_string(kPatienceMin) + " to " +
               std::to_string(kPatienceMax) + " seconds, not '" + text + "'; " + std::to_string(seconds) +
               " are taken");
    }
  }
  return uint64_t{seconds} * 1'000'000'000;
}

}  // namespace usiw
