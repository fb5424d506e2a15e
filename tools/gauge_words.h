// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file gauge_words.h
/// Gauges whose values are no figures: a connection's port, and why it is that one.
#ifndef USIW_TOOLS_GAUGE_WORDS_H
#define USIW_TOOLS_GAUGE_WORDS_H

#include <cstdint>
#include <string_view>

namespace usiw::tools {

/// The word for the value @p value of the gauge named @p gauge, "?" for one that is unknown; nullptr: it is a figure.
const char* gauge_word(std::string_view gauge, uint64_t value);

/// True if @p value of the gauge named @p gauge says that nothing has been measured: 0 of a round trip.
bool gauge_is_missing(std::string_view gauge, uint64_t value);

/// The reverse of gauge_word(); UINT64_MAX for a word that is unknown.
uint64_t gauge_value(std::string_view gauge, std::string_view word);

}  // namespace usiw::tools

#endif  // USIW_TOOLS_GAUGE_WORDS_H
