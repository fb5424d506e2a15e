// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file arguments.h
/// Command lines of usiw and usiw-run: getopt_long(3), with one line for a wrong option.
#ifndef USIW_TOOLS_ARGUMENTS_H
#define USIW_TOOLS_ARGUMENTS_H

#include <getopt.h>

#include <charconv>
#include <string>
#include <string_view>

namespace usiw::tools {

/// Added to the letter of a long option in its table, so that a wrong option is reported as it was written.
inline constexpr int kLong = 256;

/// Returns the letter of the next option and sets optarg; -1 at the end; '?' with the reason in @p wrong. If @p letters
/// begins with "-:", words that are no options are returned as 1, with the word in optarg. If @p letters begins with
/// "+:", the first such word is the end. @p index is set to the long option's index in @p names. Set optind to 0 before
/// the first call.
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

/// Parses all of @p text as a number. Returns false if it is none.
template <typename Number>
bool parse_number(std::string_view text, Number& out) {
  return !text.empty() && std::from_chars(text.data(), text.data() + text.size(), out).ptr == text.data() + text.size();
}

}  // namespace usiw::tools

#endif  // USIW_TOOLS_ARGUMENTS_H
