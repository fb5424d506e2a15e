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

/// Adds @p len bytes to a partial sum. An odd length is padded with a zero byte, so
/// only the last piece of a datagram may be odd. Safe from overflow up to 2^30 bytes.
inline uint64_t checksum_add(uint64_t sum, const void* data, size_t len) {
  const auto* p = static_cast<const unsigned char*>(data);
  uint64_t a = 0, b = 0, c = 0, d = 0;
  while (len >= 16) {
    uint32_t w[4];
    std::memcpy(w, p, 16);
    a += w[0];
    b += w[1];
    c += w[2];
    d += w[3];
    p += 16;
    len -= 16;
  }
  sum += a + b + c + d;
  while (len >= 2) {
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
