// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// One thread, with one CQ per device for all connections. The thread polls the CQs. After kPollMs without a completion
// it sleeps in poll(2) until an event, so that an idle server leaves the processor to others. With --events it sleeps
// whenever there is nothing to do.
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>

#include <map>

#include "rig.h"
#include "traffic.h"

namespace traffic {
namespace {

volatile sig_atomic_t stopping;

constexpr uint64_t kPollMs = 3;

struct Peer {
  explicit Peer(ibv_pd* pd)
      : window(pd, kMaxSize), receives(pd, kReceives * kSlot), answers(pd, kReceives * kSlot) {}
  static constexpr size_t kSlot = kMaxSize + sizeof(Header);
  Region window, receives, answers;
  rdma_cm_id* id = nullptr;
  uint64_t rounds = 0;
};

struct PerDevice {
  ibv_comp_channel* channel = nullptr;
  ibv_cq* cq = nullptr;
};

class Server {
 public:
  explicit Server(const Arguments& arguments)
      : arguments_(arguments), listener_(arguments.to, arguments.backlog, arguments.port) {
    std::printf("listening %u\n", listener_.port());
  }

  int run() {
    uint64_t last_busy = 0;
    while (!stopping && !corrupt_) {
      bool busy = false;
      if (listener_.events().ready(0)) {
        connection_event(listener_.events().wait());
        busy = true;
      }
      for (auto& [context, device] : devices_) busy |= take_completions(device);
      const uint64_t now = tap::now_ms();
      if (busy)
        last_busy = now;
      else if (arguments_.events || now > last_busy + kPollMs)
        sleep_until_something();
      else sched_yield();
    }
    for (auto& [qpn, peer] : peers_) verify_guards(*peer);
    std::printf("served %llu connections, %llu rounds, %llu of them lost\n",
                static_cast<unsigned long long>(accepted_), static_cast<unsigned long long>(rounds_),
                static_cast<unsigned long long>(lost_));
    while (!peers_.empty()) remove(peers_.begin()->second->id);
    for (auto& [context, device] : devices_) {
      ibv_destroy_cq(device.cq);
      ibv_destroy_comp_channel(device.channel);
    }
    return corrupt_ ? kCorrupt : removed_ ? kGone : kFine;
  }

 private:
  PerDevice& device_of(ibv_context* context) {
    PerDevice& device = devices_[context];
    if (!device.cq) {
      device.channel = ibv_create_comp_channel(context);
      CHECK(device.channel != nullptr);
      CHECK_EQ(fcntl(device.channel->fd, F_SETFL, O_NONBLOCK), 0);
      device.cq = ibv_create_cq(context, 4000, nullptr, device.channel, 0);
      CHECK(device.cq != nullptr);
      CHECK_EQ(ibv_req_notify_cq(device.cq, 0), 0);
    }
    return device;
  }

  void connection_event(const CmEvent& event) {
    switch (event.type) {
      case RDMA_CM_EVENT_CONNECT_REQUEST: accept(event); break;
      case RDMA_CM_EVENT_ESTABLISHED: break;
      case RDMA_CM_EVENT_DISCONNECTED:
      case RDMA_CM_EVENT_CONNECT_ERROR:
      case RDMA_CM_EVENT_UNREACHABLE:
      case RDMA_CM_EVENT_REJECTED: remove(event.id); break;
      case RDMA_CM_EVENT_DEVICE_REMOVAL:
        std::printf("device removed\n");
        removed_ = true;
        stopping = 1;
        break;
      default: break;
    }
  }

  void accept(const CmEvent& event) {
    rdma_cm_id* id = event.id;
    std::unique_ptr<Peer> peer;
    try {
      peer = std::make_unique<Peer>(pd_of(id->verbs));
    } catch (const tap::Failure& e) {  // the device is going
      std::printf("refused: %s\n", e.what());
      rdma_destroy_id(id);
      return;
    }
    PerDevice& device = device_of(id->verbs);
    ibv_qp_init_attr init = {};
    init.send_cq = init.recv_cq = device.cq;
    init.qp_type = IBV_QPT_RC;
    init.cap = {kReceives * 2, kReceives, 1, 1, 0};
    if (rdma_create_qp(id, pd_of(id->verbs), &init)) {
      std::printf("refused: rdma_create_qp: %s\n", std::strerror(errno));
      rdma_destroy_id(id);
      return;
    }
    peer->id = id;
    const Window window = {peer->window.addr(), peer->window.rkey(), kMaxSize};
    const uint32_t qpn = id->qp->qp_num;
    for (uint32_t i = 0; i < kReceives; ++i) post_receive(*peer, i);
    peers_[qpn] = std::move(peer);
    rdma_conn_param param = {};
    param.responder_resources = param.initiator_depth = 4;
    param.retry_count = param.rnr_retry_count = 7;
    param.private_data = &window;
    param.private_data_len = sizeof window;
    ++accepted_;
    if (rdma_accept(id, &param)) remove(id);  // the client has gone meanwhile
  }

  void remove(rdma_cm_id* id) {
    for (auto it = peers_.begin(); it != peers_.end(); ++it) {
      if (it->second->id != id) continue;
      verify_guards(*it->second);
      rdma_destroy_qp(id);
      rdma_destroy_id(id);
      peers_.erase(it);
      return;
    }
  }

  void verify_guards(const Peer& peer) {
    try {
      peer.window.check_guards();
      peer.receives.check_guards();
      peer.answers.check_guards();
    } catch (const tap::Failure& e) {
      std::printf("CORRUPT %s\n", e.what());
      corrupt_ = true;
    }
  }

  void post_receive(Peer& peer, uint64_t slot) {
    ibv_sge sge = peer.receives.sge(slot * Peer::kSlot, Peer::kSlot);
    ibv_recv_wr wr = {}, *bad;
    wr.wr_id = slot;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    ibv_post_recv(peer.id->qp, &wr, &bad);
  }

  bool take_completions(PerDevice& device) {
    ibv_wc wc[16];
    const int n = ibv_poll_cq(device.cq, 16, wc);
    CHECK(n >= 0);
    for (int i = 0; i < n; ++i) {
      const auto peer = peers_.find(wc[i].qp_num);
      if (peer == peers_.end()) continue;  // of a connection that has been removed
      if (wc[i].status != IBV_WC_SUCCESS) {
        if (wc[i].status != IBV_WC_WR_FLUSH_ERR) ++lost_;
        if (arguments_.strict && !is_connection_error(wc[i].status)) {
          std::printf("CORRUPT completion: %s\n", ibv_wc_status_str(wc[i].status));
          corrupt_ = true;
        }
        continue;
      }
      if (wc[i].opcode == IBV_WC_RECV) answer(*peer->second, wc[i]);
    }
    return n > 0;
  }

  void answer(Peer& peer, const ibv_wc& wc) {
    const uint64_t slot = wc.wr_id;
    uint8_t* message = peer.receives.data() + slot * Peer::kSlot;
    Header header;
    std::memcpy(&header, message, sizeof header);
    if (wc.byte_len < sizeof header || header.length != wc.byte_len - sizeof header ||
        pattern_mismatch(message + sizeof header, header.length, header.seed) != header.length) {
      std::printf("CORRUPT message of %u bytes in round %u\n", wc.byte_len, header.round);
      corrupt_ = true;
      return;
    }
    if (header.round != peer.rounds) {
      std::printf("CORRUPT order: round %u where %llu is due\n", header.round,
                  static_cast<unsigned long long>(peer.rounds));
      corrupt_ = true;
      return;
    }
    // The SEND came behind the WRITE: what was written is in place.
    if (header.at > kMaxSize - header.length ||
        pattern_mismatch(peer.window.data() + header.at, header.length, header.seed + 1) != header.length) {
      std::printf("CORRUPT written data of round %u\n", header.round);
      corrupt_ = true;
      return;
    }
    ++peer.rounds;
    ++rounds_;
    uint8_t* reply = peer.answers.data() + slot * Peer::kSlot;
    std::memcpy(reply, message, wc.byte_len);
    post_receive(peer, slot);
    ibv_sge sge = peer.answers.sge(slot * Peer::kSlot, wc.byte_len);
    ibv_send_wr wr = {}, *bad;
    wr.wr_id = 100 + slot;
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    ibv_post_send(peer.id->qp, &wr, &bad);
  }

  void sleep_until_something() {
    std::vector<pollfd> fds = {{listener_.events().get()->fd, POLLIN, 0}};
    for (auto& [context, device] : devices_) fds.push_back({device.channel->fd, POLLIN, 0});
    poll(fds.data(), fds.size(), 1000);
    for (auto& [context, device] : devices_) {
      ibv_cq* cq;
      void* unused;
      if (ibv_get_cq_event(device.channel, &cq, &unused)) continue;
      ibv_ack_cq_events(cq, 1);
      CHECK_EQ(ibv_req_notify_cq(cq, 0), 0);
    }
  }

  const Arguments& arguments_;
  Listener listener_;
  std::map<ibv_context*, PerDevice> devices_;
  std::map<uint32_t, std::unique_ptr<Peer>> peers_;
  uint64_t accepted_ = 0, rounds_ = 0, lost_ = 0;
  bool corrupt_ = false, removed_ = false;
};

}  // namespace

int run_server(const Arguments& arguments) {
  struct sigaction action = {};
  action.sa_handler = [](int) { stopping = 1; };
  sigaction(SIGTERM, &action, nullptr);
  return Server(arguments).run();
}

}  // namespace traffic
