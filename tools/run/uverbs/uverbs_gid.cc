// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file uverbs_gid.cc
/// The ioctl methods by which libibverbs queries GIDs. Older versions of it read sysfs, as it does on the iWARP face.
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>

#include <cerrno>
#include <cstring>

#include "tools/run/host/gid_table.h"
#include "tools/run/host/settings.h"
#include "tools/run/uverbs/uverbs.h"

namespace usiw::run {
namespace {

constexpr uint32_t kOnlyPort = 1;

ib_uverbs_gid_entry entry_of(const Gid& g, uint32_t index) {
  ib_uverbs_gid_entry entry{};
  std::memcpy(entry.gid, &g.gid, sizeof entry.gid);
  entry.gid_index = index;
  entry.port_num = kOnlyPort;
  entry.gid_type = IB_UVERBS_GID_TYPE_ROCE_V2;
  entry.netdev_ifindex = link_info().ifindex;
  return entry;
}

/// Copies the number in @p attr, of 4 or 8 bytes, to @p value. Returns 0 or -EINVAL.
int value_of(const ib_uverbs_attr* attr, uint64_t& value) {
  if (attr == nullptr || (attr->len != sizeof(uint32_t) && attr->len != sizeof value)) return -EINVAL;
  value = 0;
  std::memcpy(&value, &attr->data, attr->len);
  return 0;
}

int query_entry(const Attributes& attrs) {
  uint64_t port, index, flags;
  if (value_of(attrs.find(UVERBS_ATTR_QUERY_GID_ENTRY_PORT), port) != 0 ||
      value_of(attrs.find(UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX), index) != 0 ||
      value_of(attrs.find(UVERBS_ATTR_QUERY_GID_ENTRY_FLAGS), flags) != 0)
    return -EINVAL;
  const ib_uverbs_attr* out = attrs.find(UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY);
  if (out == nullptr || out->len < sizeof(ib_uverbs_gid_entry) || flags != 0 || port != kOnlyPort) return -EINVAL;
  const GidTable table = gid_table();
  if (index >= table.entries.size()) return -EINVAL;
  if (!table.entries[index].there) return -ENODATA;
  const ib_uverbs_gid_entry entry = entry_of(table.entries[index], static_cast<uint32_t>(index));
  return copy_to_program(out->data, &entry, sizeof entry);
}

int query_table(const Attributes& attrs) {
  uint64_t entry_size, flags, number = 0;
  if (value_of(attrs.find(UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE), entry_size) != 0 ||
      value_of(attrs.find(UVERBS_ATTR_QUERY_GID_TABLE_FLAGS), flags) != 0)
    return -EINVAL;
  const ib_uverbs_attr* out = attrs.find(UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES);
  const ib_uverbs_attr* count = attrs.find(UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES);
  if (out == nullptr || count == nullptr || count->len < sizeof number || flags != 0) return -EINVAL;
  if (entry_size < sizeof(ib_uverbs_gid_entry)) return -EINVAL;
  const GidTable table = gid_table();
  for (uint32_t i = 0; i < table.entries.size(); i++) {
    if (!table.entries[i].there) continue;
    if ((number + 1) * entry_size > out->len) return -EINVAL;
    const ib_uverbs_gid_entry entry = entry_of(table.entries[i], i);
    if (int ret = copy_to_program(out->data + number * entry_size, &entry, sizeof entry); ret != 0) return ret;
    number++;
  }
  return copy_to_program(count->data, &number, sizeof number);
}

}  // namespace

int gid_ioctl(uint16_t method, const Attributes& attrs) {
  if (settings().face != FaceKind::kRoce) return -EPROTONOSUPPORT;
  switch (method) {
    case UVERBS_METHOD_QUERY_GID_ENTRY: return query_entry(attrs);
    case UVERBS_METHOD_QUERY_GID_TABLE: return query_table(attrs);
    default: return -EPROTONOSUPPORT;
  }
}

}  // namespace usiw::run
