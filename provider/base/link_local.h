// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file link_local.h
/// Which link a link-local address is on, kept in the address itself, whose bits 16 to 63 are zeros (RFC 4291, 2.5.6).
/// So a key that says it is no longer than another, and costs nothing where no address is a link's.
#ifndef USIW_BASE_LINK_LOCAL_H
#define USIW_BASE_LINK_LOCAL_H

#include <cstdint>
#include <cstring>

#include "base/random_bytes.h"

namespace usiw {

inline constexpr uint8_t kLinkLocalPrefix[8] = {0xfe, 0x80};

/// @p address has 16 bytes, and no mark. One with other bits behind its prefix, which nobody should have, is none here.
inline bool is_link_local(const void* address) {
  return std::memcmp(address, kLinkLocalPrefix, sizeof kLinkLocalPrefix) == 0;
}

/// The interface @p ifindex, which is not 0, in 48 bits. Nobody else can tell them: an address that comes by the wire
/// with such bits in it is not taken for one of another link.
inline uint64_t link_mark(uint32_t ifindex) {
  static const uint64_t secret = [] {
    uint64_t random = 0;
    [[maybe_unused]] const bool got = random_bytes(&random, sizeof random);
    return random >> 17;  // with any interface added it still has 48 bits
  }();
  return secret + ifindex;
}

/// Marks a link-local address of 16 bytes with its interface.
inline void put_link(void* address, uint32_t ifindex) {
  const uint64_t mark = link_mark(ifindex);
  std::memcpy(static_cast<uint8_t*>(address) + 2, &mark, 6);
}

/// Takes the mark off.
inline void take_link(void* address) { std::memset(static_cast<uint8_t*>(address) + 2, 0, 6); }

}  // namespace usiw

#endif  // USIW_BASE_LINK_LOCAL_H
