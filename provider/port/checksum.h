// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file checksum.h
/// The Internet checksum (RFC 1071) in one pass. Sums are kept in memory byte
/// order: the ones' complement sum does not depend on it.
#ifndef USIW_PORT_CHECKSUM_H
#define USIW_PORT_CHECKSUM_H

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace usiw {

/// The sum of @p len bytes, a multiple of 32, as 32-bit words (checksum.cc).
uint64_t checksum_bulk(const void* data, size_t len);

/// Adds @p len bytes to a partial sum. An odd length is padded with a zero byte, so
/// only the last piece of a datagram may be odd. Safe from overflow up to 2^30 bytes.
inline uint64_t checksum_add(uint64_t sum, const void* data, size_t len) {
  const auto* p = static_cast<const unsigned char*>(data);
  if (len >= 128) {
    size_t bulk = len & ~size_t{31};
    sum += checksum_bulk(p, bulk);
    p += bulk;
    len -= bulk;
  }
  while (len >= 4) {
    uint32_t w;
    std::memcpy(&w, p, 4);
    sum += w;
    p += 4;
    len -= 4;
  }
  if (len >= 2) {
    uint16_t w;
    std::memcpy(&w, p, 2);
    sum += w;
    p += 2;
    len -= 2;
  }
  if (len != 0) {
    uint16_t w = 0;
    std::memcpy(&w, p, 1);
    sum += w;
  }
  return sum;
}

/// Folds a partial sum to 16 bits, in memory byte order, not complemented.
inline uint16_t checksum_fold(uint64_t sum) {
  sum = (sum & 0xffffffffu) + (sum >> 32);
  sum = (sum & 0xffffffffu) + (sum >> 32);
  sum = (sum & 0xffff) + (sum >> 16);
  sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<uint16_t>((sum & 0xffff) + (sum >> 16));
}

}  // namespace usiw

#endif  // USIW_PORT_CHECKSUM_H
