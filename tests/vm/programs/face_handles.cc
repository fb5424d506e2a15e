// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Address handles on the RoCE face (docs/face.md): what they need, how long they live, and how many there may be. The
// case "attributes/address-vector" of face_cases.cc has the addresses that a handle may have.
#include <netinet/ip.h>
#include <netinet/ip6.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <vector>

#include "by_verbs.h"

namespace {

/// Returns the attributes of a handle for this host itself, by the GID with this index.
ibv_ah_attr to_itself(int index = kGidIndex) { return to_rtr(gid_at(index), 1, index).attr.ah_attr; }

ibv_ah* create(ibv_pd* pd, ibv_ah_attr attr) {
  errno = 0;
  return ibv_create_ah(pd, &attr);
}

void expect_no_handle(ibv_pd* pd, const ibv_ah_attr& attr, int wanted) {
  CHECK(create(pd, attr) == nullptr);
  CHECK_EQ(errno, wanted);
}

uint32_t most() {
  ibv_device_attr device;
  CHECK_EQ(ibv_query_device(context(), &device), 0);
  CHECK(device.max_ah > 0);
  return static_cast<uint32_t>(device.max_ah);
}

/// Returns the complement of the sum of the 16-bit words, as an IPv4 header has it.
uint16_t checksum_of(const iphdr& header) {
  std::array<uint16_t, sizeof header / sizeof(uint16_t)> words;
  std::memcpy(words.data(), &header, sizeof header);
  uint32_t sum = 0;
  for (const uint16_t word : words) sum += word;
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<uint16_t>(~sum);
}

}  // namespace

CASE(handle_parts, "handle/grh-port-service-level") {
  const ibv_ah_attr good = to_itself();
  ibv_ah_attr bad = good;
  bad.is_global = 0;
  expect_no_handle(pd_a(), bad, EINVAL);
  for (const uint8_t port : {0, 2, 255}) {
    bad = good;
    bad.port_num = port;
    expect_no_handle(pd_a(), bad, EINVAL);
  }
  for (const uint8_t sl : {16, 255}) {
    bad = good;
    bad.sl = sl;
    expect_no_handle(pd_a(), bad, EINVAL);
  }
  bad = good;
  bad.sl = 15;
  ibv_ah* ah = create(pd_a(), bad);
  CHECK(ah != nullptr);
  CHECK(ah->pd == pd_a() && ah->context == context());
  CHECK_EQ(ibv_destroy_ah(ah), 0);
}

// A PD or a parent domain stays while it has a handle.
CASE(handle_pd, "handle/keeps-its-pd") {
  ibv_pd* pd = ibv_alloc_pd(context());
  CHECK(pd != nullptr);
  ibv_parent_domain_init_attr of_domain = {};
  of_domain.pd = pd;
  ibv_pd* domain = ibv_alloc_parent_domain(context(), &of_domain);
  CHECK(domain != nullptr);
  ibv_ah* of_parent = create(domain, to_itself());
  ibv_ah* ah = create(pd, to_itself());
  CHECK(ah != nullptr && of_parent != nullptr);
  CHECK_EQ(ibv_dealloc_pd(domain), EBUSY);
  CHECK_EQ(ibv_destroy_ah(of_parent), 0);
  CHECK_EQ(ibv_dealloc_pd(domain), 0);
  CHECK_EQ(ibv_dealloc_pd(pd), EBUSY);
  CHECK_EQ(ibv_destroy_ah(ah), 0);
  CHECK_EQ(ibv_dealloc_pd(pd), 0);
}

// The kernel refuses a PD that is busy even if the library does not count its users.
CASE(handle_foreign, "handle/foreign-numbers") {
  ibv_context* second = ibv_open_device(context()->device);
  CHECK(second != nullptr);
  ibv_pd* pd = ibv_alloc_pd(second);
  CHECK(pd != nullptr);
  ibv_ah* ah = create(pd, to_itself());
  CHECK(ah != nullptr);
  const uint32_t own = ah->handle, of_pd = pd->handle;
  for (const uint32_t handle : {of_pd, own + 1000, 0xffffffffu}) {
    ah->handle = handle;
    const int error = ibv_destroy_ah(ah);
    if (error != ENOENT && error != EINVAL) FAIL("ibv_destroy_ah of handle %u: error %d", handle, error);
  }
  ah->handle = own;
  for (const uint32_t handle : {own, own + 1000, 0xffffffffu}) {
    pd->handle = handle;
    expect_no_handle(pd, to_itself(), EINVAL);
  }
  pd->handle = of_pd;
  CHECK_EQ(ibv_destroy_ah(ah), 0);
  CHECK_EQ(ibv_dealloc_pd(pd), 0);
  CHECK_EQ(ibv_close_device(second), 0);
}

// A context that is closed with handles gives them back.
CASE(handle_limit, "handle/as-many-as-the-device-says", .seconds = 240) {
  const uint32_t limit = most();
  ibv_context* second = ibv_open_device(context()->device);
  CHECK(second != nullptr);
  ibv_pd* pd = ibv_alloc_pd(second);
  CHECK(pd != nullptr);
  for (uint32_t i = 0; i < 1000; ++i) CHECK(create(pd, to_itself()) != nullptr);
  std::vector<ibv_ah*> handles;
  const ibv_ah_attr attr = to_itself();
  while (handles.size() < limit - 1000) {
    handles.push_back(create(pd_a(), attr));
    if (!handles.back()) FAIL("handle %zu: %s", handles.size(), std::strerror(errno));
  }
  expect_no_handle(pd_a(), attr, ENOMEM);
  expect_no_handle(pd, attr, ENOMEM);
  CHECK_EQ(ibv_close_device(second), 0);
  for (uint32_t i = 0; i < 1000; ++i) {
    handles.push_back(create(pd_a(), attr));
    CHECK(handles.back() != nullptr);
  }
  expect_no_handle(pd_a(), attr, ENOMEM);
  CHECK_EQ(ibv_destroy_ah(handles.back()), 0);
  handles.back() = create(pd_a(), attr);
  CHECK(handles.back() != nullptr);
  for (ibv_ah* ah : handles) CHECK_EQ(ibv_destroy_ah(ah), 0);
}

// The sender of a datagram is in the GRH, which is an IPv6 header, or an IPv4 header in its last 20 bytes.
CASE(handle_from_wc, "handle/from-a-completion") {
  ibv_wc wc = {};
  wc.wc_flags = IBV_WC_GRH;
  wc.sl = 3;
  for (const int index : {0, kGidIndex}) {
    const ibv_gid gid = gid_at(index);
    ibv_grh grh = {};
    if (index == 0) {
      grh.version_tclass_flow = htonl(6u << 28);
      grh.next_hdr = IPPROTO_UDP;
      grh.hop_limit = 64;
      grh.sgid = grh.dgid = gid;
    } else {
      iphdr ip4 = {};
      ip4.version = 4;
      ip4.ihl = 5;
      ip4.ttl = 64;
      ip4.protocol = IPPROTO_UDP;
      std::memcpy(&ip4.saddr, gid.raw + 12, sizeof ip4.saddr);
      ip4.daddr = ip4.saddr;
      ip4.check = checksum_of(ip4);
      std::memcpy(reinterpret_cast<uint8_t*>(&grh) + sizeof grh - sizeof ip4, &ip4, sizeof ip4);
    }
    ibv_ah_attr attr = {};
    CHECK_EQ(ibv_init_ah_from_wc(context(), 1, &wc, &grh, &attr), 0);
    CHECK_EQ(attr.is_global, 1);
    CHECK_EQ(attr.port_num, 1);
    CHECK_EQ(attr.sl, 3);
    CHECK_EQ(attr.grh.sgid_index, index);
    CHECK_EQ(std::memcmp(&attr.grh.dgid, &gid, sizeof gid), 0);
    ibv_ah* ah = ibv_create_ah_from_wc(pd_a(), &wc, &grh, 1);
    if (!ah) FAIL("GID %d: %s", index, std::strerror(errno));
    CHECK_EQ(ibv_destroy_ah(ah), 0);
  }
  // Without a GRH there is no address.
  wc.wc_flags = 0;
  ibv_grh none = {};
  CHECK(ibv_create_ah_from_wc(pd_a(), &wc, &none, 1) == nullptr);
}
