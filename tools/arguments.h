// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file arguments.h
/// Parses the command lines of usiw and usiw-run by getopt_long(3), and explains a wrong option in one line.
#ifndef USIW_TOOLS_ARGUMENTS_H
#define USIW_TOOLS_ARGUMENTS_H

#include <getopt.h>

#include <charconv>
#include <string>
#include <string_view>
#include <system_error>

namespace usiw::tools {

/// Number that a table of long options adds to each letter. So next_option() sees which form of an option was wrong,
/// and reports the option as the user wrote it.
inline constexpr int kLong = 256;

/// Returns the letter of the next option and sets optarg. Returns -1 at the end. If the option is unknown or lacks its
/// value, returns '?' and sets @p wrong to the reason. If @p letters begins with "-:", returns 1 for a word that is not
/// an option, with the word in optarg. If @p letters begins with "+:", the first such word ends the options. For a long
/// option, sets @p index to its index in @p names, unless @p index is null. The caller sets optind to 0 before the
/// first call.
inline int next_option(int argc, char** argv, const char* letters, const option* names, std::string& wrong,
                       int* index = nullptr) {
  const int letter = getopt_long(argc, argv, letters, names, index);
  if (letter == -1 && letters[0] == '-' && optind < argc) {  // after "--"
    optarg = argv[optind++];
    return 1;
  }
  if (letter != '?' && letter != ':') return letter == -1 ? -1 : letter % kLong;
  const bool is_short = optopt != 0 && optopt < kLong;
  const std::string word = is_short ? std::string{'-', static_cast<char>(optopt)} : argv[optind - 1];
  wrong = letter == ':' ? word + " needs a value" : "unknown option " + word;
  return '?';
}

/// Parses @p text, all of which must be one number that fits into @p out. Returns false if it is not.
template <typename Number>
bool parse_number(std::string_view text, Number& out) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, out);
  return error == std::errc() && stop == end;
}

}  // namespace usiw::tools

#endif  // USIW_TOOLS_ARGUMENTS_H
