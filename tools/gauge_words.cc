// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "tools/gauge_words.h"

#include <algorithm>
#include <iterator>
#include <span>

#include "uapi/usiw_abi.h"
#include "uapi/usiw_names.h"

namespace usiw::tools {
namespace {

struct Word {
  uint64_t value;
  const char* text;
};

#define USIW_WORD_PORT(id, text) {1 + USIW_PORT_##id, text},
#define USIW_WORD_WHY(id, text) {USIW_PORT_WHY_##id, text},
constexpr Word kPorts[] = {{0, USIW_PORT_NAME_NONE}, USIW_PORT_NAMES(USIW_WORD_PORT)};
constexpr Word kReasons[] = {USIW_PORT_WHY_NAMES(USIW_WORD_WHY)};
static_assert(std::size(kPorts) == 1 + USIW_PORT_KIND_MAX && std::size(kReasons) == USIW_PORT_WHY_MAX);

#define USIW_NAME_OF(id, text) \
  if constexpr (USIW_GAUGE_##id == gauge) return text;
template <int gauge>
constexpr std::string_view name_of() {
  USIW_GAUGE_NAMES(USIW_NAME_OF)
}

std::span<const Word> words_of(std::string_view gauge) {
  if (gauge == name_of<USIW_GAUGE_PORT>()) return kPorts;
  if (gauge == name_of<USIW_GAUGE_PORT_WHY>()) return kReasons;
  return {};
}

}  // namespace

const char* gauge_word(std::string_view gauge, uint64_t value) {
  const std::span<const Word> words = words_of(gauge);
  if (words.empty()) return nullptr;
  const auto found = std::ranges::find(words, value, &Word::value);
  return found != words.end() ? found->text : "?";
}

bool gauge_is_missing(std::string_view gauge, uint64_t value) {
  return value == 0 && (gauge == name_of<USIW_GAUGE_SRTT_NS>() || gauge == name_of<USIW_GAUGE_MIN_RTT_NS>());
}

uint64_t gauge_value(std::string_view gauge, std::string_view word) {
  const std::span<const Word> words = words_of(gauge);
  const auto found = std::ranges::find_if(words, [word](const Word& w) { return word == w.text; });
  return found != words.end() ? found->value : UINT64_MAX;
}

}  // namespace usiw::tools
