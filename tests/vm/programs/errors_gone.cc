// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// A peer that cannot be reached any more: the wire is cut by tc on A's netdev (A_NETDEV), so nothing that A
// sends arrives, and no acknowledgement comes. lo is taken down.
#include <cstdlib>
#include <string>
#include <vector>

#include "rig.h"

namespace {

/// Cuts the wire from A to B while it lives. On a slow kernel, where tc takes seconds and B may give up before A, it
/// cuts the way back, too: A must not hear of that.
class Cut {
 public:
  Cut() {
    if (on_lo()) {
      run("ip link set lo down");
      return;
    }
    for (const char* end : tap::patience() > 1 ? std::vector{"B_NETDEV", "A_NETDEV"} : std::vector{"A_NETDEV"}) {
      netdevs_.push_back(netdev(end));
      run("tc qdisc replace dev " + netdevs_.back() + " root netem loss 100%");
    }
  }
  ~Cut() {
    bool whole = !on_lo() || std::system("ip link set lo up") == 0;
    for (const std::string& name : netdevs_) whole &= std::system(("tc qdisc del dev " + name + " root").c_str()) == 0;
    if (!whole) tap::note("the wire stays cut");
    // Neighbour discovery may have given up meanwhile. rdma_cm does not see an answer that comes before it
    // begins to wait, as on veth, and would take its whole time-out.
    const std::string ping = "for i in 1 2 3 4 5 6; do ping -q -c 1 -W 1 -I " + site_a().ip + " " + site_b().ip +
                             " >/dev/null && exit 0; done; exit 1";
    if (std::system(ping.c_str())) tap::note("the peer cannot be reached");
  }
  Cut(const Cut&) = delete;
  Cut& operator=(const Cut&) = delete;

 private:
  static std::string netdev(const char* variable) {
    const char* name = std::getenv(variable);
    return name ? name : "";
  }
  static bool on_lo() { return netdev("A_NETDEV") == "lo"; }
  static void run(const std::string& command) {
    if (std::system(command.c_str())) FAIL("%s", command.c_str());
  }

  std::vector<std::string> netdevs_;
};

const int kPatienceMs = 40000 * static_cast<int>(tap::patience());  ///< "bounded time"

/// Posts @p opcode and more to a peer that is gone. The first work request completes with RETRY_EXC_ERR, all
/// others are flushed, both ends are disconnected.
void gone(ibv_wr_opcode opcode, bool events) {
  Options options;
  options.with_channel = events;
  Pair p(options);
  exercise(p);
  Region at_a(p.a.pd, 20000), at_b(p.b.pd, 20000);
  for (uint64_t i = 0; i < 4; ++i) {
    p.a.recv(10 + i, {at_a.sge()});
    p.b.recv(10 + i, {at_b.sge()});
  }
  if (events) CHECK_EQ(ibv_req_notify_cq(p.a.send_cq, 0), 0);
  const uint64_t start = tap::now_ms();
  {
    Cut cut;
    for (uint64_t i = 0; i < 4; ++i)
      p.a.send({.wr_id = i, .opcode = i ? IBV_WR_SEND : opcode,
                .flags = i == 2 ? 0u : static_cast<unsigned>(IBV_SEND_SIGNALED), .sges = {at_a.sge()},
                .remote_addr = at_b.addr(), .rkey = at_b.rkey()});
    if (events && !wait_cq_event(p.a.send_channel, kPatienceMs)) FAIL("no completion event");
    for (uint64_t i = 0; i < 4; ++i) {
      const ibv_wc wc = wait_wc(p.a.send_cq, kPatienceMs);
      CHECK_EQ(wc.wr_id, i);
      const ibv_wc_status wanted = i ? IBV_WC_WR_FLUSH_ERR : IBV_WC_RETRY_EXC_ERR;
      if (wc.status != wanted) FAIL("work request %d: '%s'", static_cast<int>(i), ibv_wc_status_str(wc.status));
    }
    tap::note("RETRY_EXC_ERR after %d ms", static_cast<int>(tap::now_ms() - start));
    for (uint64_t i = 0; i < 4; ++i) expect_wc(p.a.recv_cq, 10 + i, IBV_WC_WR_FLUSH_ERR);
    p.a.events.expect(RDMA_CM_EVENT_DISCONNECTED, kPatienceMs);
    p.b.events.expect(RDMA_CM_EVENT_DISCONNECTED, kPatienceMs);
    for (uint64_t i = 0; i < 4; ++i) expect_wc(p.b.recv_cq, 10 + i, IBV_WC_WR_FLUSH_ERR);
    CHECK_EQ(p.a.state(), IBV_QPS_ERR);
    at_b.check_clear(0, 20000);
  }
  drain_async(p.a.id->verbs);
  drain_async(p.b.id->verbs);
  Pair fresh;  // the wire is whole again
  exercise(fresh);
  fresh.close();
}

}  // namespace

CASE(gone_send, "peer-gone/send", .seconds = 90, .core = true) { gone(IBV_WR_SEND, false); }
CASE(gone_write, "peer-gone/write", .seconds = 90) { gone(IBV_WR_RDMA_WRITE, false); }
CASE(gone_read, "peer-gone/read-in-event-mode", .seconds = 90) { gone(IBV_WR_RDMA_READ, true); }

// Disconnecting from a peer that is gone ends in bounded time too.
CASE(gone_disconnect, "peer-gone/disconnect", .seconds = 90) {
  Pair p;
  exercise(p);
  {
    Cut cut;
    CHECK_CALL(rdma_disconnect(p.a.id));
    p.a.events.expect(RDMA_CM_EVENT_DISCONNECTED, kPatienceMs);
    p.b.events.expect(RDMA_CM_EVENT_DISCONNECTED, kPatienceMs);
  }
  Pair fresh;
  exercise(fresh);
  fresh.close();
}
