// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "port/faults.h"

#include <algorithm>
#include <cstdlib>
#include <string>

#include "base/say.h"

namespace usiw {

bool Faults::parse(const std::string& text, Faults& out) {
  out = {};
  for (size_t at = 0; at < text.size();) {
    size_t end = std::min(text.find(',', at), text.size());
    size_t equals = text.find('=', at);
    if (equals >= end) return false;
    std::string key = text.substr(at, equals - at), value = text.substr(equals + 1, end - equals - 1);
    char* rest = nullptr;
    double real = strtod(value.c_str(), &rest);
    if (value.empty() || *rest != '\0' || !(real >= 0)) return false;
    uint64_t whole = strtoull(value.c_str(), nullptr, 10);
    if (key == "loss" && real <= 1) out.loss = real;
    else if (key == "reorder" && real <= 1) out.reorder = real;
    else if (key == "delay-us") out.delay_ns = static_cast<uint64_t>(real * 1000);
    else if (key == "seed") out.seed = whole;
    else if (key == "kill-after") out.kill_after = whole;
    else if (key == "fail-wr") out.fail_wr = whole;
    else return false;
    at = end + 1;
  }
  return true;
}

const Faults& Faults::from_environment() {
  static const Faults once = [] {
    Faults f;
    const char* text = getenv("USIW_FAULTS");
    if (text != nullptr && !parse(text, f)) {
      say_once(std::string("USIW_FAULTS: '") + text + "' is not understood (usiw(7)); no fault is played");
      f = {};
    }
    return f;
  }();
  return once;
}

}  // namespace usiw
