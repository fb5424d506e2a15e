// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// The RoCE face (docs/face.md), by verbs alone: every move of the table of states with its attributes, every attribute
// at its limits, the order in which the two ends come, and QPs that are reset, destroyed or connected to another peer.
// Both ends are QPs of this process. FACE_IPV4 and FACE_IPV6 name addresses of the interface that are not loopback
// addresses.
#include <arpa/inet.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>
#include <vector>

#include "by_verbs.h"

namespace {

constexpr int kStates[] = {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD, IBV_QPS_ERR};
/// Bits of enum ibv_qp_attr_mask that libibverbs passes to the device, without IBV_QP_STATE.
constexpr int kFirstBit = 1, kLastBit = 20;

ibv_gid gid_of(const std::string& ip) {
  ibv_gid gid = {};
  if (ip.find(':') == std::string::npos) {
    gid.raw[10] = gid.raw[11] = 0xff;
    CHECK_EQ(inet_pton(AF_INET, ip.c_str(), gid.raw + 12), 1);
  } else {
    CHECK_EQ(inet_pton(AF_INET6, ip.c_str(), gid.raw), 1);
  }
  return gid;
}

std::string from_environment(const char* name) {
  const char* value = std::getenv(name);
  if (!value) FAIL("%s is not set", name);
  return value;
}

std::vector<ibv_gid_entry> gid_table() {
  std::vector<ibv_gid_entry> table(64);
  const ssize_t count = ibv_query_gid_table(context(), table.data(), table.size(), 0);
  CHECK(count > 0);
  table.resize(static_cast<size_t>(count));
  return table;
}

int index_of(const std::string& ip) {
  const ibv_gid gid = gid_of(ip);
  for (const ibv_gid_entry& entry : gid_table())
    if (std::memcmp(&entry.gid, &gid, sizeof gid) == 0) return static_cast<int>(entry.gid_index);
  FAIL("no GID has the address %s", ip.c_str());
}

/// A QP that stays in RESET, as the peer of QPs whose connection does not matter.
OwnQp& nobody() {
  static OwnQp* const qp = new OwnQp;
  return *qp;
}

/// Returns a new QP that has been moved to @p state. Its peer is nobody().
std::unique_ptr<OwnQp> new_qp(int state) {
  auto e = std::make_unique<OwnQp>();
  if (state == IBV_QPS_RESET) return e;
  e->init();
  if (state == IBV_QPS_INIT) return e;
  if (state != IBV_QPS_ERR) e->rtr(nobody().number());
  if (state == IBV_QPS_RTS || state == IBV_QPS_SQD) e->rts();
  if (state != IBV_QPS_RTR && state != IBV_QPS_RTS) e->must(only_state(state));
  CHECK_EQ(e->state(), state);
  return e;
}

// ---- Moves ----

/// A move of the table (IBA 1.4, 11.2.5.2) that RC QPs have, without the attributes of alternate paths.
struct Move {
  int from, to, required, permitted;
};

constexpr int kNames = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
constexpr int kRunning = IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER;
constexpr int kToRtr = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                       IBV_QP_MIN_RNR_TIMER;
constexpr int kToRts = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
/// The table permits IBV_QP_AV here as well, but the path of a connection does not change.
constexpr int kInSqd = IBV_QP_PORT | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC |
                       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_MIN_RNR_TIMER;

constexpr Move kMoves[] = {
    {IBV_QPS_RESET, IBV_QPS_RESET, 0, 0},
    {IBV_QPS_RESET, IBV_QPS_INIT, kNames, 0},
    {IBV_QPS_INIT, IBV_QPS_RESET, 0, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0, kNames},
    {IBV_QPS_INIT, IBV_QPS_RTR, kToRtr, IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
    {IBV_QPS_INIT, IBV_QPS_ERR, 0, 0},
    {IBV_QPS_RTR, IBV_QPS_RESET, 0, 0},
    {IBV_QPS_RTR, IBV_QPS_RTS, kToRts, kRunning},
    {IBV_QPS_RTR, IBV_QPS_ERR, 0, 0},
    {IBV_QPS_RTS, IBV_QPS_RESET, 0, 0},
    {IBV_QPS_RTS, IBV_QPS_RTS, 0, kRunning},
    {IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
    {IBV_QPS_RTS, IBV_QPS_ERR, 0, 0},
    {IBV_QPS_SQD, IBV_QPS_RESET, 0, 0},
    {IBV_QPS_SQD, IBV_QPS_RTS, 0, kRunning},
    {IBV_QPS_SQD, IBV_QPS_SQD, 0, kInSqd},
    {IBV_QPS_SQD, IBV_QPS_ERR, 0, 0},
    {IBV_QPS_ERR, IBV_QPS_RESET, 0, 0},
    {IBV_QPS_ERR, IBV_QPS_ERR, 0, 0},
};

/// Returns a change from @p from to @p to that names the attributes @p mask. The value of each is in bounds.
Change change(int from, int to, int mask) {
  Change c = to_rtr(gid_at(kGidIndex), nobody().number());
  const ibv_qp_attr init = to_init().attr, rts = to_rts().attr;
  c.attr.qp_state = static_cast<ibv_qp_state>(to);
  c.attr.cur_qp_state = static_cast<ibv_qp_state>(from);
  c.attr.port_num = init.port_num;
  c.attr.qp_access_flags = init.qp_access_flags;
  c.attr.timeout = rts.timeout;
  c.attr.retry_cnt = rts.retry_cnt;
  c.attr.rnr_retry = rts.rnr_retry;
  c.attr.sq_psn = rts.sq_psn;
  c.attr.max_rd_atomic = rts.max_rd_atomic;
  c.mask = IBV_QP_STATE | mask;
  return c;
}

/// Applies a change that must work to a new QP. Without IBV_QP_STATE, the present state stays.
void expect_move(const Move& m, int mask) {
  const auto e = new_qp(m.from);
  if (const int error = change(m.from, m.to, mask).apply(e->qp); error != 0)
    FAIL("%d to %d with %#x: error %d", m.from, m.to, mask, error);
  CHECK_EQ(e->state(), m.to);
}

/// Applies a change that must be refused.
void expect_no_move(OwnQp& e, int from, int to, int mask, int wanted = EINVAL) {
  const int error = change(from, to, mask).apply(e.qp);
  if (error != wanted) FAIL("%d to %d with %#x: error %d", from, to, mask, error);
  CHECK_EQ(e.state(), from);
}

}  // namespace

CASE(moves, "moves/required-and-permitted-attributes", .seconds = 120) {
  for (const Move& m : kMoves) {
    expect_move(m, m.required);
    expect_move(m, m.required | m.permitted);
    for (int bit = kFirstBit; bit <= kLastBit; ++bit)
      if ((m.permitted & 1 << bit) != 0) expect_move(m, m.required | 1 << bit);
  }
}

CASE(moves_refused, "moves/missing-and-excess-attributes", .seconds = 120) {
  for (const Move& m : kMoves) {
    const auto e = new_qp(m.from);
    for (int bit = kFirstBit; bit <= kLastBit; ++bit) {
      const int one = 1 << bit;
      if ((m.required & one) != 0) {
        expect_no_move(*e, m.from, m.to, m.required & ~one);
        expect_no_move(*e, m.from, m.to, (m.required | m.permitted) & ~one);
      }
      if (one == IBV_QP_AV && m.from == IBV_QPS_SQD && m.to == IBV_QPS_SQD)
        expect_no_move(*e, m.from, m.to, one, EOPNOTSUPP);
      else if (((m.required | m.permitted) & one) == 0)
        expect_no_move(*e, m.from, m.to, m.required | one);
    }
    // After all these, the move itself still works.
    CHECK_EQ(change(m.from, m.to, m.required).apply(e->qp), 0);
  }
}

CASE(moves_absent, "moves/that-the-table-does-not-have", .seconds = 60) {
  for (const int from : kStates) {
    const auto e = new_qp(from);
    for (const int to : {0, 1, 2, 3, 4, 5, 6, 7, 100}) {
      const bool there = std::any_of(std::begin(kMoves), std::end(kMoves),
                                     [&](const Move& m) { return m.from == from && m.to == to; });
      if (there) continue;
      for (const int mask : {0, kNames, kToRtr, kToRts, int{IBV_QP_CUR_STATE}}) expect_no_move(*e, from, to, mask);
    }
  }
}

// Without IBV_QP_STATE the QP stays in its state, and the attributes are those of a move to the same state.
CASE(moves_stateless, "moves/without-the-state") {
  for (const int from : kStates) {
    const auto e = new_qp(from);
    const auto same = std::find_if(std::begin(kMoves), std::end(kMoves),
                                   [&](const Move& m) { return m.from == from && m.to == from; });
    for (int bit = kFirstBit; bit <= kLastBit; ++bit) {
      const bool may = same != std::end(kMoves) && (same->permitted & 1 << bit) != 0;
      const bool path = from == IBV_QPS_SQD && 1 << bit == IBV_QP_AV;
      const int error = change(from, from, 1 << bit).without(IBV_QP_STATE).apply(e->qp);
      if (error != (may ? 0 : path ? EOPNOTSUPP : EINVAL)) FAIL("in %d with %#x: error %d", from, 1 << bit, error);
      CHECK_EQ(e->state(), from);
    }
  }
}

CASE(moves_cur_state, "moves/current-state-that-is-wrong") {
  for (const Move& m : kMoves) {
    if ((m.permitted & IBV_QP_CUR_STATE) == 0) continue;
    const auto e = new_qp(m.from);
    for (const int named : {0, 1, 2, 3, 4, 5, 6, 7, 100}) {
      if (named == m.from) continue;
      Change c = change(m.from, m.to, m.required | IBV_QP_CUR_STATE);
      c.attr.cur_qp_state = static_cast<ibv_qp_state>(named);
      CHECK_EQ(c.apply(e->qp), EINVAL);
      CHECK_EQ(e->state(), m.from);
    }
  }
}

// ---- Attributes ----

namespace {

/// Sets one attribute to a value that modify_qp must accept or refuse.
struct Value {
  const char* what;
  std::function<void(ibv_qp_attr&)> set;
  bool fits;
};

/// Tries the values in a move from @p from. A value that is refused changes nothing.
void try_values(int from, const Change& move, const std::vector<Value>& values) {
  for (const Value& v : values) {
    const auto e = new_qp(from);
    const ibv_qp_attr before = e->attributes();
    Change c = move;
    v.set(c.attr);
    const int error = c.apply(e->qp);
    if (error != (v.fits ? 0 : EINVAL)) FAIL("%s: error %d", v.what, error);
    CHECK_EQ(e->state(), v.fits ? move.attr.qp_state : from);
    const ibv_qp_attr after = e->attributes();
    if (!v.fits && std::memcmp(&before, &after, sizeof before) != 0) FAIL("%s was refused, but changed the QP", v.what);
  }
}

#define VALUE(member, value, fits)                                                                        \
  Value {                                                                                                 \
#member " " #value, [=](ibv_qp_attr & a) { a.member = static_cast<decltype(a.member)>(value); }, fits \
  }

}  // namespace

CASE(values_init, "attributes/init") {
  const unsigned unknown = 1u << 15;
  try_values(IBV_QPS_RESET, to_init(),
             {VALUE(port_num, 0, false), VALUE(port_num, 1, true), VALUE(port_num, 2, false),
              VALUE(port_num, 255, false), VALUE(pkey_index, 0, true), VALUE(pkey_index, 1, false),
              VALUE(pkey_index, 0xffff, false), VALUE(qp_access_flags, 0, true),
              VALUE(qp_access_flags, IBV_ACCESS_REMOTE_READ, true), VALUE(qp_access_flags, unknown, false)});
}

CASE(values_rtr, "attributes/rtr") {
  ibv_device_attr device;
  CHECK_EQ(ibv_query_device(context(), &device), 0);
  const int most = device.max_qp_rd_atom;
  try_values(IBV_QPS_INIT, to_rtr(gid_at(kGidIndex), nobody().number()),
             {VALUE(path_mtu, 0, false), VALUE(path_mtu, IBV_MTU_256, true), VALUE(path_mtu, IBV_MTU_512, true),
              VALUE(path_mtu, IBV_MTU_1024, true), VALUE(path_mtu, IBV_MTU_2048, true),
              VALUE(path_mtu, IBV_MTU_4096, true), VALUE(path_mtu, 6, false), VALUE(path_mtu, 255, false),
              VALUE(min_rnr_timer, 0, true), VALUE(min_rnr_timer, 31, true), VALUE(min_rnr_timer, 32, false),
              VALUE(min_rnr_timer, 255, false), VALUE(max_dest_rd_atomic, 0, true),
              VALUE(max_dest_rd_atomic, most, true), VALUE(max_dest_rd_atomic, most + 1, false), VALUE(rq_psn, 0, true),
              VALUE(rq_psn, 0xffffff, true), VALUE(dest_qp_num, 0, false),
              // The low 16 bits of a QP number are its UDP port, so no QP has one of these.
              VALUE(dest_qp_num, 0x10000, false), VALUE(dest_qp_num, 0xff0000, false),
              // No QP of the face has one of these numbers either, but they name a port.
              VALUE(dest_qp_num, 1, true), VALUE(dest_qp_num, 0xffffff, true)});
}

CASE(values_rts, "attributes/rts") {
  ibv_device_attr device;
  CHECK_EQ(ibv_query_device(context(), &device), 0);
  const int most = device.max_qp_init_rd_atom;
  try_values(IBV_QPS_RTR, to_rts(),
             {VALUE(timeout, 0, true), VALUE(timeout, 31, true), VALUE(timeout, 32, false), VALUE(timeout, 255, false),
              VALUE(retry_cnt, 0, true), VALUE(retry_cnt, 7, true), VALUE(retry_cnt, 8, false),
              VALUE(rnr_retry, 0, true), VALUE(rnr_retry, 7, true), VALUE(rnr_retry, 8, false),
              VALUE(max_rd_atomic, 0, true), VALUE(max_rd_atomic, most, true), VALUE(max_rd_atomic, most + 1, false),
              VALUE(sq_psn, 0, true), VALUE(sq_psn, 0xffffff, true)});
}

// An attribute that is wrong is refused together with those that are not.
CASE(values_running, "attributes/while-it-runs") {
  Change rts = only_state(IBV_QPS_RTS), sqd = only_state(IBV_QPS_SQD);
  rts.mask |= IBV_QP_MIN_RNR_TIMER | IBV_QP_ACCESS_FLAGS;
  rts.attr.qp_access_flags = IBV_ACCESS_REMOTE_READ;
  try_values(IBV_QPS_RTS, rts, {VALUE(min_rnr_timer, 31, true), VALUE(min_rnr_timer, 32, false)});
  sqd.mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY;
  try_values(IBV_QPS_SQD, sqd,
             {VALUE(timeout, 32, false), VALUE(retry_cnt, 8, false), VALUE(rnr_retry, 8, false),
              VALUE(rnr_retry, 0, true)});
}

// An address handle follows the same rules as RTR.
CASE(address_vectors, "attributes/address-vector") {
  const std::string own4 = from_environment("FACE_IPV4"), own6 = from_environment("FACE_IPV6");
  const int v4 = index_of(own4), v6 = index_of(own6), lo4 = index_of("127.0.0.1"), lo6 = index_of("::1");
  const int filled = static_cast<int>(gid_table().size());
  const auto av = [](int index, const std::string& peer, int wanted) {
    const auto e = new_qp(IBV_QPS_INIT);
    Change rtr = to_rtr(gid_of(peer), nobody().number(), index);
    ibv_ah* ah = ibv_create_ah(e->pd, &rtr.attr.ah_attr);
    const int of_handle = ah ? ibv_destroy_ah(ah) : errno;
    if (of_handle != wanted) FAIL("handle of GID %d to %s: error %d, not %d", index, peer.c_str(), of_handle, wanted);
    const int error = rtr.apply(e->qp);
    if (error != wanted) FAIL("GID %d to %s: error %d, not %d", index, peer.c_str(), error, wanted);
    CHECK_EQ(e->state(), wanted == 0 ? IBV_QPS_RTR : IBV_QPS_INIT);
    if (wanted == 0) return;
    // The refused move has left nothing.
    CHECK_EQ(e->attributes().dest_qp_num, 0);
    e->rtr(nobody().number());
  };
  for (const auto& [index, own] : {std::pair{v4, own4}, {v6, own6}, {lo4, "127.0.0.1"}, {lo6, "::1"}}) {
    av(index, own, 0);
    for (const char* none :
         {"::", "0.0.0.0", "0.0.0.1", "ff02::1", "ff0e::1234", "224.0.0.1", "239.255.255.255", "255.255.255.255"})
      av(index, none, EINVAL);
  }
  // The other family, and loopback addresses from another one.
  av(v4, own6, EINVAL);
  av(v6, own4, EINVAL);
  av(lo4, "::1", EINVAL);
  av(lo6, "127.0.0.1", EINVAL);
  av(v4, "127.0.0.1", EINVAL);
  av(v6, "::1", EINVAL);
  av(lo4, own4, EINVAL);
  av(lo6, own6, EINVAL);
  // The broadcast address of the network of 127.0.0.1/8.
  av(lo4, "127.255.255.255", EINVAL);
  // Entries that are empty, and indexes that the table does not have.
  for (const int index : {filled, 31, 32, 255}) av(index, own4, EINVAL);
  // A correct address to which there is no route.
  av(v4, "198.51.100.7", ENETUNREACH);
  av(v4, "240.0.0.1", ENETUNREACH);
  av(v6, "2001:db8::7", ENETUNREACH);
  // GID 0 of lo is made up, so it reaches this host only.
  const auto e = new_qp(IBV_QPS_INIT);
  CHECK_EQ(to_rtr(gid_of("fe80::1234"), nobody().number(), 0).apply(e->qp), ENETUNREACH);
  e->rtr(nobody().number(), 0);
}

CASE(address_parts, "attributes/address-vector-without-grh-or-port") {
  const auto e = new_qp(IBV_QPS_INIT);
  Change c = to_rtr(gid_at(kGidIndex), nobody().number());
  c.attr.ah_attr.is_global = 0;
  CHECK_EQ(c.apply(e->qp), EINVAL);
  c.attr.ah_attr.is_global = 1;
  for (const uint8_t port : {0, 2, 255}) {
    c.attr.ah_attr.port_num = port;
    CHECK_EQ(c.apply(e->qp), EINVAL);
  }
  CHECK_EQ(e->state(), IBV_QPS_INIT);
  c.attr.ah_attr.port_num = 1;
  CHECK_EQ(c.apply(e->qp), 0);
}

// ---- Queries ----

namespace {

/// Attributes of which none has the value that a query would report of a new QP.
struct Chosen {
  Change init = to_init(), rtr, rts = to_rts();

  explicit Chosen(uint32_t peer_qpn) : rtr(to_rtr(gid_at(kGidIndex), peer_qpn)) {
    init.attr.qp_access_flags = IBV_ACCESS_REMOTE_READ;
    rtr.attr.path_mtu = IBV_MTU_512;
    rtr.attr.rq_psn = 0xabcdef;
    rtr.attr.max_dest_rd_atomic = 3;
    rtr.attr.min_rnr_timer = 17;
    rtr.attr.ah_attr.sl = 5;
    rtr.attr.ah_attr.static_rate = 2;
    rtr.attr.ah_attr.grh.hop_limit = 33;
    rtr.attr.ah_attr.grh.traffic_class = 0x28;
    rtr.attr.ah_attr.grh.flow_label = 0x54321;
    rts.attr.timeout = 18;
    rts.attr.retry_cnt = 5;
    rts.attr.rnr_retry = 4;
    rts.attr.sq_psn = 0x13579b;
    rts.attr.max_rd_atomic = 2;
  }

  void check(const OwnQp& e, int state) const {
    const ibv_qp_attr now = e.attributes();
    CHECK_EQ(now.qp_state, state);
    CHECK_EQ(now.cur_qp_state, state);
    CHECK_EQ(now.port_num, 1);
    CHECK_EQ(now.pkey_index, 0);
    CHECK_EQ(now.qp_access_flags, init.attr.qp_access_flags);
    CHECK_EQ(now.cap.max_send_wr >= 16 && now.cap.max_recv_wr >= 16, 1);
    if (state == IBV_QPS_INIT) return;
    const ibv_qp_attr& r = rtr.attr;
    CHECK_EQ(now.path_mtu, r.path_mtu);
    CHECK_EQ(now.dest_qp_num, r.dest_qp_num);
    CHECK_EQ(now.rq_psn, r.rq_psn);
    CHECK_EQ(now.max_dest_rd_atomic, r.max_dest_rd_atomic);
    CHECK_EQ(now.min_rnr_timer, r.min_rnr_timer);
    CHECK_EQ(now.ah_attr.is_global, 1);
    CHECK_EQ(now.ah_attr.port_num, 1);
    CHECK_EQ(now.ah_attr.sl, r.ah_attr.sl);
    CHECK_EQ(now.ah_attr.static_rate, r.ah_attr.static_rate);
    CHECK_EQ(std::memcmp(&now.ah_attr.grh.dgid, &r.ah_attr.grh.dgid, sizeof now.ah_attr.grh.dgid), 0);
    CHECK_EQ(now.ah_attr.grh.sgid_index, r.ah_attr.grh.sgid_index);
    CHECK_EQ(now.ah_attr.grh.hop_limit, r.ah_attr.grh.hop_limit);
    CHECK_EQ(now.ah_attr.grh.traffic_class, r.ah_attr.grh.traffic_class);
    CHECK_EQ(now.ah_attr.grh.flow_label, r.ah_attr.grh.flow_label);
    if (state == IBV_QPS_RTR) return;
    const ibv_qp_attr& s = rts.attr;
    CHECK_EQ(now.timeout, s.timeout);
    CHECK_EQ(now.retry_cnt, s.retry_cnt);
    CHECK_EQ(now.rnr_retry, s.rnr_retry);
    CHECK_EQ(now.sq_psn, s.sq_psn);
    CHECK_EQ(now.max_rd_atomic, s.max_rd_atomic);
  }
};

}  // namespace

CASE(query_states, "query/what-was-set-in-each-state") {
  for (const bool connected : {false, true}) {
    OwnQp e, peer;
    Chosen c(connected ? peer.number() : nobody().number());
    CHECK_EQ(e.state(), IBV_QPS_RESET);
    e.must(c.init);
    c.check(e, IBV_QPS_INIT);
    e.must(c.rtr);
    c.check(e, IBV_QPS_RTR);
    e.must(c.rts);
    c.check(e, IBV_QPS_RTS);
    if (connected) {
      Change rtr = to_rtr(gid_at(kGidIndex), e.number()), rts = to_rts();
      rtr.attr.rq_psn = c.rts.attr.sq_psn;
      rts.attr.sq_psn = c.rtr.attr.rq_psn;
      peer.init();
      peer.must(rtr);
      peer.must(rts);
      Region at_e(e.pd, 64), at_peer(peer.pd, 64);
      peer.recv(1, {at_peer.sge()});
      e.send({.wr_id = 2, .sges = {at_e.sge()}});
      expect_wc(e.send_cq, 2);
      expect_wc(peer.recv_cq, 1);
      c.check(e, IBV_QPS_RTS);
    }
    Change running = only_state(IBV_QPS_RTS);
    running.mask |= IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER;
    c.init.attr.qp_access_flags = running.attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    c.rtr.attr.min_rnr_timer = running.attr.min_rnr_timer = 3;
    e.must(running);
    c.check(e, IBV_QPS_RTS);
    e.must(only_state(IBV_QPS_SQD));
    c.check(e, IBV_QPS_SQD);
    Change sqd = only_state(IBV_QPS_SQD);
    sqd.mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC |
                IBV_QP_MAX_DEST_RD_ATOMIC;
    c.rts.attr.timeout = sqd.attr.timeout = 20;
    c.rts.attr.retry_cnt = sqd.attr.retry_cnt = 1;
    c.rts.attr.rnr_retry = sqd.attr.rnr_retry = 2;
    c.rts.attr.max_rd_atomic = sqd.attr.max_rd_atomic = 1;
    c.rtr.attr.max_dest_rd_atomic = sqd.attr.max_dest_rd_atomic = 5;
    e.must(sqd);
    c.check(e, IBV_QPS_SQD);
    e.must(only_state(IBV_QPS_RTS));
    c.check(e, IBV_QPS_RTS);
    e.must(only_state(IBV_QPS_ERR));
    c.check(e, IBV_QPS_ERR);
    e.reset();
    CHECK_EQ(e.state(), IBV_QPS_RESET);
  }
}

// INIT to INIT changes the access flags, also on the way to RTR.
CASE(query_init, "query/access-flags-of-init-and-rtr") {
  const auto e = new_qp(IBV_QPS_INIT);
  Change again = only_state(IBV_QPS_INIT);
  again.mask |= IBV_QP_ACCESS_FLAGS;
  again.attr.qp_access_flags = IBV_ACCESS_REMOTE_READ;
  e->must(again);
  CHECK_EQ(e->attributes().qp_access_flags, IBV_ACCESS_REMOTE_READ);
  Change rtr = to_rtr(gid_at(kGidIndex), nobody().number());
  rtr.mask |= IBV_QP_ACCESS_FLAGS;
  rtr.attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  e->must(rtr);
  CHECK_EQ(e->attributes().qp_access_flags, IBV_ACCESS_REMOTE_WRITE);
}

// ---- Connections ----

CASE(order, "connect/each-order-of-the-two-ends", .seconds = 120) {
  const int global4 = index_of(from_environment("FACE_IPV4")), global6 = index_of(from_environment("FACE_IPV6"));
  for (const int index : {0, index_of("127.0.0.1"), index_of("::1"), global4, global6}) {
    std::string order = "AABB";  // the end that goes one state further: RTR, then RTS
    do {
      OwnQp a, b;
      a.init();
      b.init();
      for (const char c : order) {
        OwnQp& one = c == 'A' ? a : b;
        OwnQp& other = c == 'A' ? b : a;
        if (one.state() == IBV_QPS_INIT)
          one.rtr(other.number(), index);
        else
          one.rts();
      }
      exercise(a, b);
    } while (std::next_permutation(order.begin(), order.end()));
  }
}

// A SEND and a WRITE that are posted before the peer has left RESET arrive when it is in RTR.
CASE(early_send, "connect/send-before-the-peer-is-in-rtr", .seconds = 60) {
  OwnQp first, second;
  for (const bool swapped : {false, true}) {  // one end sends REQ, the other answers
    OwnQp& a = swapped ? second : first;
    OwnQp& b = swapped ? first : second;
    Region at_a(a.pd, 30000), at_b(b.pd, 30000), written(b.pd, 100);
    at_a.fill(1);
    a.connect(b.number());
    a.recv(1, {at_a.sge(0, 100)});
    a.send({.wr_id = 2, .sges = {at_a.sge()}});
    a.send({.wr_id = 3,
            .opcode = IBV_WR_RDMA_WRITE,
            .sges = {at_a.sge(0, 100)},
            .remote_addr = written.addr(),
            .rkey = written.rkey()});
    expect_no_wc(a.send_cq, 100);
    b.init();
    b.recv(4, {at_b.sge()});
    expect_no_wc(b.recv_cq, 100);
    expect_no_wc(a.send_cq, 0);
    b.rtr(a.number());
    expect_wc(b.recv_cq, 4);
    at_b.check(1, 0, 30000);
    expect_wc(a.send_cq, 2);
    expect_wc(a.send_cq, 3);
    written.check(1, 0, 100);
    CHECK_EQ(b.state(), IBV_QPS_RTR);
    b.rts();
    b.send({.wr_id = 5, .sges = {at_b.sge(0, 100)}});
    expect_wc(b.send_cq, 5);
    expect_wc(a.recv_cq, 1);
    exercise(a, b);
    a.reset();
    b.reset();
  }
}

// As posting-in-each-state, but the peer is in RTS, and has sent something.
CASE(posting_connected, "connect/posting-in-each-state-of-a-connection", .seconds = 60) {
  OwnQp first, second;
  for (const bool swapped : {false, true}) {  // one end sends REQ, the other answers
    OwnQp& a = swapped ? second : first;
    OwnQp& b = swapped ? first : second;
    Region at_a(a.pd, 64), at_b(b.pd, 64);
    b.connect(a.number());
    a.init();
    a.recv(1, {at_a.sge()});
    a.rtr(b.number());
    b.send({.wr_id = 2, .sges = {at_b.sge()}});
    expect_wc(a.recv_cq, 1);
    expect_wc(b.send_cq, 2);
    CHECK_EQ(a.try_send({.wr_id = 3, .sges = {at_a.sge()}}), EINVAL);
    expect_no_wc(a.send_cq, 10);
    a.rts();
    b.recv(4, {at_b.sge()});
    a.send({.wr_id = 5, .sges = {at_a.sge()}});
    expect_wc(a.send_cq, 5);
    expect_wc(b.recv_cq, 4);
    a.must(only_state(IBV_QPS_SQD));
    a.send({.wr_id = 6, .sges = {at_a.sge()}});
    expect_no_wc(a.send_cq, 50);
    a.must(only_state(IBV_QPS_ERR));
    expect_wc(a.send_cq, 6, IBV_WC_WR_FLUSH_ERR);
    a.send({.wr_id = 7, .sges = {at_a.sge()}});
    expect_wc(a.send_cq, 7, IBV_WC_WR_FLUSH_ERR);
    a.reset();
    b.reset();
    CHECK_EQ(a.try_send({.wr_id = 8, .sges = {at_a.sge()}}), EINVAL);
  }
}

// Receives may be posted from INIT on, SENDs from RTS on.
CASE(posting, "connect/posting-in-each-state") {
  for (const int state : {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR}) {
    const auto e = new_qp(state);
    Region at_e(e->pd, 64);
    CHECK_EQ(e->try_send({.wr_id = 1, .sges = {at_e.sge()}}), EINVAL);
    if (state != IBV_QPS_RESET) CHECK_EQ(e->try_recv(1, {at_e.sge()}), 0);
    expect_no_wc(e->recv_cq, 0);
  }
}

// The end with the smaller number sends REQ, with the PSN that it expects. If the other end has named another one, the
// REQ waits. Then either end names the right one.
CASE(psns, "connect/psns-that-do-not-fit", .seconds = 60) {
  OwnQp first, second;
  OwnQp& asks = first.number() < second.number() ? first : second;
  OwnQp& answers = first.number() < second.number() ? second : first;
  for (const bool other_end_mends : {false, true}) {
    Region source(asks.pd, 64), sink(answers.pd, 64);
    Change rts = to_rts();
    rts.attr.sq_psn = 0x77;
    answers.init();
    answers.recv(2, {sink.sge()});
    answers.rtr(asks.number());
    answers.must(rts);
    asks.connect(answers.number());
    asks.send({.wr_id = 1, .sges = {source.sge()}});
    expect_no_wc(answers.recv_cq, 300);
    expect_no_wc(asks.send_cq, 0);
    CHECK_EQ(asks.state(), IBV_QPS_RTS);
    CHECK_EQ(answers.state(), IBV_QPS_RTS);
    if (other_end_mends) {
      answers.reset();
      answers.init();
      answers.recv(2, {sink.sge()});
      answers.rtr(asks.number());
      answers.rts();
    } else {
      Change rtr = to_rtr(gid_at(kGidIndex), answers.number());
      rtr.attr.rq_psn = rts.attr.sq_psn;
      asks.reset();
      asks.init();
      asks.must(rtr);
      asks.rts();
      asks.send({.wr_id = 1, .sges = {source.sge()}});
    }
    expect_wc(asks.send_cq, 1);
    expect_wc(answers.recv_cq, 2);
    exercise(asks, answers);
    asks.reset();
    answers.reset();
  }
}

// QP numbers and PSNs have 24 bits. Adapters ignore the higher bits that a program gives.
CASE(high_bits, "connect/numbers-of-more-than-24-bits") {
  constexpr uint32_t kHigh = 0xa5000000;
  const auto connect = [](OwnQp& e, const OwnQp& peer) {
    Change rtr = to_rtr(gid_at(kGidIndex), peer.number() | kHigh), rts = to_rts();
    rtr.attr.rq_psn |= kHigh;
    rts.attr.sq_psn |= kHigh;
    e.init();
    e.must(rtr);
    e.must(rts);
    CHECK_EQ(e.attributes().dest_qp_num, peer.number() | kHigh);
  };
  OwnQp a, b;
  connect(a, b);
  connect(b, a);
  exercise(a, b);
  // A QP that is its own peer.
  a.reset();
  connect(a, a);
  Region memory(a.pd, 16);
  a.recv(1, {memory.sge(0, 8)});
  a.send({.wr_id = 2, .sges = {memory.sge(8, 8)}});
  expect_wc(a.recv_cq, 1);
  expect_wc(a.send_cq, 2);
}

// ---- RESET, another peer, and the end ----

// Whichever end is reset first: it connects once more when the other one has been reset.
CASE(again, "again/same-peer-one-end-first", .seconds = 120) {
  OwnQp first, second;
  first.connect(second.number());
  second.connect(first.number());
  exercise(first, second);
  for (int round = 0; round < 6; ++round) {
    OwnQp& a = round % 2 != 0 ? second : first;
    OwnQp& b = round % 2 != 0 ? first : second;
    Region at_a(a.pd, 5000), at_b(b.pd, 5000);
    at_a.fill(round);
    for (uint64_t i = 0; i < 3; ++i) b.recv(i, {at_b.sge(0, 8)});
    for (uint64_t i = 0; i < 3; ++i) a.recv(i, {at_a.sge(0, 8)});
    a.reset();
    CHECK_EQ(a.state(), IBV_QPS_RESET);
    a.connect(b.number());
    a.send({.wr_id = 10, .sges = {at_a.sge()}});
    // The peer still has the old connection, so its receives do not belong to the new one.
    expect_no_wc(b.recv_cq, 200);
    expect_no_wc(a.send_cq, 0);
    CHECK_EQ(b.state(), IBV_QPS_RTS);
    b.reset();
    b.init();
    b.recv(11, {at_b.sge()});
    b.rtr(a.number());
    b.rts();
    expect_wc(b.recv_cq, 11);
    expect_wc(a.send_cq, 10);
    at_b.check(round, 0, 5000);
    // RESET has emptied the queues without completions.
    expect_no_wc(b.recv_cq, 0);
    expect_no_wc(a.recv_cq, 0);
    exercise(a, b);
  }
}

// RESET removes the completions that the program has not polled, in whatever state the QP was. Those of other QPs stay.
CASE(again_unpolled, "again/reset-removes-completions", .seconds = 60) {
  for (const int state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD}) {
    const auto e = new_qp(state);
    Region at_e(e->pd, 64);
    for (uint64_t i = 0; i < 3; ++i) e->recv(i, {at_e.sge()});
    if (state == IBV_QPS_RTS || state == IBV_QPS_SQD) e->send({.wr_id = 10, .sges = {at_e.sge()}});
    e->must(only_state(IBV_QPS_ERR));
    e->reset();
    expect_no_wc(e->recv_cq, 0);
    expect_no_wc(e->send_cq, 0);
  }
  // A QP in RTR receives.
  OwnQp a, b;
  Region at_a(a.pd, 64), at_b(b.pd, 64);
  a.connect(b.number());
  b.init();
  b.recv(1, {at_b.sge()});
  b.rtr(a.number());
  a.send({.wr_id = 2, .sges = {at_a.sge()}});
  expect_wc(a.send_cq, 2);
  b.reset();
  expect_no_wc(b.recv_cq, 0);
  a.reset();
  a.connect(b.number());
  b.connect(a.number());
  exercise(a, b);
}

namespace {

/// Connects two QPs and resets them, again and again, with either end first. @p through: each connection has moved data
/// before RESET. Otherwise RESET may come in the middle of the handshake.
void many_rounds(int rounds, bool through) {
  OwnQp a, b;
  for (int round = 0; round < rounds; ++round) {
    OwnQp& one = round % 3 != 0 ? a : b;
    OwnQp& other = round % 3 != 0 ? b : a;
    one.connect(other.number());
    other.connect(one.number());
    if (through || round % 5 == 0) exercise(a, b);
    for (OwnQp* e : {&other, &one}) {
      if (round % 2 != 0) e->must(only_state(IBV_QPS_ERR));
      e->reset();
    }
  }
}

}  // namespace

CASE(again_many, "again/many-rounds", .seconds = 120) { many_rounds(50, true); }
CASE(again_hasty, "again/reset-in-the-handshake", .seconds = 120) { many_rounds(100, false); }

CASE(again_other, "again/another-peer", .seconds = 60) {
  OwnQp a, b, c;
  a.connect(b.number());
  b.connect(a.number());
  exercise(a, b);
  Region at_b(b.pd, 64);
  for (uint64_t i = 0; i < 3; ++i) b.recv(i, {at_b.sge()});
  const uint32_t number = a.number();
  a.reset();
  c.connect(a.number());
  a.connect(c.number());
  CHECK_EQ(a.number(), number);
  exercise(a, c);
  // The first peer has noticed nothing.
  expect_no_wc(b.recv_cq, 0);
  CHECK_EQ(b.state(), IBV_QPS_RTS);
  // Back to it, while the second one stays as it is.
  a.reset();
  a.connect(b.number());
  b.reset();
  b.connect(a.number());
  exercise(a, b);
  CHECK_EQ(c.state(), IBV_QPS_RTS);
  // Both that have been left can be connected to each other.
  OwnQp d;
  d.connect(c.number());
  c.reset();
  c.connect(d.number());
  exercise(c, d);
  exercise(a, b);
}

// A QP asks two peers in turn, of which the first one never comes.
CASE(again_gave_up, "again/a-peer-that-never-came", .seconds = 60) {
  for (int round = 0; round < 4; ++round) {
    OwnQp a, b;
    a.connect(nobody().number());
    Region at_a(a.pd, 64);
    a.send({.wr_id = 1, .sges = {at_a.sge()}});
    a.reset();
    expect_no_wc(a.send_cq, 0);
    b.connect(a.number());
    a.connect(b.number());
    exercise(a, b);
  }
}

// One end starts anew before the other one has moved to RTR for the first time. The REQ of the first attempt must not
// be taken for that of the second one.
CASE(again_stale, "again/first-attempt-given-up", .seconds = 60) {
  OwnQp first, second;
  OwnQp& asks = first.number() < second.number() ? first : second;
  OwnQp& answers = first.number() < second.number() ? second : first;
  for (const bool answer_first : {false, true}) {
    asks.connect(answers.number());
    usleep(100000);  // for the REQ, which the other end keeps
    asks.reset();
    if (answer_first) answers.connect(asks.number());
    if (answer_first) usleep(100000);
    asks.connect(answers.number());
    if (!answer_first) answers.connect(asks.number());
    exercise(asks, answers);
    asks.reset();
    answers.reset();
  }
}

namespace {

enum class Gone { kDestroyed, kReset, kError };

/// The peer goes in a certain way. This end stays in RTS with its receives posted, gets no event, and can be connected
/// to another QP.
void goes_unnoticed(Gone how) {
  OwnQp first, second;
  first.connect(second.number());
  second.connect(first.number());
  exercise(first, second);
  OwnQp& a = first;
  OwnQp& b = second;
  drain_async(context());
  Region at_a(a.pd, 64), at_b(b.pd, 64);
  for (uint64_t i = 0; i < 3; ++i) a.recv(i, {at_a.sge()});
  for (uint64_t i = 0; i < 2; ++i) b.recv(i, {at_b.sge()});
  switch (how) {
    case Gone::kDestroyed: b.end(); break;
    case Gone::kReset: b.reset(); break;
    case Gone::kError: b.must(only_state(IBV_QPS_ERR)); break;
  }
  if (how == Gone::kError)
    for (uint64_t i = 0; i < 2; ++i) expect_wc(b.recv_cq, i, IBV_WC_WR_FLUSH_ERR);
  expect_no_wc(a.recv_cq, 500);
  CHECK_EQ(a.state(), IBV_QPS_RTS);
  pollfd events = {context()->async_fd, POLLIN, 0};
  CHECK_EQ(poll(&events, 1, 0), 0);
  a.reset();
  OwnQp c;
  c.connect(a.number());
  a.connect(c.number());
  exercise(a, c);
}

}  // namespace

CASE(gone_destroyed, "gone/peer-destroyed-is-not-noticed", .seconds = 60) { goes_unnoticed(Gone::kDestroyed); }
CASE(gone_reset, "gone/peer-reset-is-not-noticed", .seconds = 60) { goes_unnoticed(Gone::kReset); }
CASE(gone_error, "gone/peer-in-error-is-not-noticed", .seconds = 60) { goes_unnoticed(Gone::kError); }

// The next SEND to such a peer fails, and then all other work is flushed.
CASE(gone_send, "gone/send-to-a-peer-that-was-destroyed", .seconds = 150) {
  OwnQp a, b;
  a.connect(b.number());
  b.connect(a.number());
  exercise(a, b);
  b.end();
  Region at_a(a.pd, 64);
  a.recv(1, {at_a.sge()});
  a.send({.wr_id = 2, .sges = {at_a.sge()}});
  a.send({.wr_id = 3, .sges = {at_a.sge()}});
  const ibv_wc wc = wait_wc(a.send_cq, 8 * kWaitMs);
  CHECK_EQ(wc.wr_id, 2);
  if (wc.status != IBV_WC_RETRY_EXC_ERR) FAIL("completion '%s'", ibv_wc_status_str(wc.status));
  expect_wc(a.send_cq, 3, IBV_WC_WR_FLUSH_ERR);
  expect_wc(a.recv_cq, 1, IBV_WC_WR_FLUSH_ERR);
  CHECK_EQ(a.state(), IBV_QPS_ERR);
  // The QP is not lost: it can be connected to another one.
  OwnQp c;
  a.reset();
  a.connect(c.number());
  c.connect(a.number());
  exercise(a, c);
}

// ERR flushes at once what is posted, also in RTR, and before there is a connection.
CASE(gone_flush, "gone/error-flushes-in-each-state") {
  for (const int state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD}) {
    const auto e = new_qp(state);
    Region at_e(e->pd, 64);
    const bool sends = state == IBV_QPS_RTS || state == IBV_QPS_SQD;
    for (uint64_t i = 0; i < 3; ++i) e->recv(i, {at_e.sge()});
    for (uint64_t i = 0; sends && i < 3; ++i) e->send({.wr_id = 10 + i, .sges = {at_e.sge()}});
    e->must(only_state(IBV_QPS_ERR));
    for (uint64_t i = 0; i < 3; ++i) expect_wc(e->recv_cq, i, IBV_WC_WR_FLUSH_ERR);
    for (uint64_t i = 0; sends && i < 3; ++i) expect_wc(e->send_cq, 10 + i, IBV_WC_WR_FLUSH_ERR);
    CHECK_EQ(e->state(), IBV_QPS_ERR);
  }
}
