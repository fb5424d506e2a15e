// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file gauge_words.h
/// Words for the values of two gauges: the port of a connection, and the reason why that port was chosen. The values of
/// all other gauges are figures.
#ifndef USIW_TOOLS_GAUGE_WORDS_H
#define USIW_TOOLS_GAUGE_WORDS_H

#include <cstdint>
#include <string_view>

namespace usiw::tools {

/// Returns the word for @p value of the gauge named @p gauge. Returns "?" for an unknown value, and nullptr if the
/// gauge has no words.
const char* gauge_word(std::string_view gauge, uint64_t value);

/// Returns true if @p value of the gauge named @p gauge means that nothing has been measured: 0 for the smoothed or the
/// minimum round-trip time.
bool gauge_is_missing(std::string_view gauge, uint64_t value);

/// Returns the value of the gauge named @p gauge whose word is @p word. Returns UINT64_MAX for an unknown word, and if
/// the gauge has no words.
uint64_t gauge_value(std::string_view gauge, std::string_view word);

}  // namespace usiw::tools

#endif  // USIW_TOOLS_GAUGE_WORDS_H
