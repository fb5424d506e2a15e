// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// A server that registers a mapped file and cuts it short while a peer reads it, for a test of who suffers:
//
//   cut_file server ADDRESS          one peer; cuts the file when a line comes from standard input
//   cut_file peer FROM TO PORT       reads all of it again and again, until that fails
//
// The peer ends with 0 when a READ has failed with a status that says why, what is behind it has been flushed, and it
// has been disconnected.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "rig.h"

namespace {

constexpr size_t kBytes = 64 << 10;
constexpr uint64_t kSeed = 5, kReads = 4;

struct Advert {
  uint64_t addr;
  uint32_t rkey;
};

void say(const char* text, unsigned number) {
  std::printf("%s %u\n", text, number);
  std::fflush(stdout);
}

int serve(const std::string& ip) {
  const int fd = memfd_create("cut", MFD_CLOEXEC);
  CHECK(fd >= 0);
  CHECK_CALL(ftruncate(fd, kBytes));
  void* mapped = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  CHECK(mapped != MAP_FAILED);
  fill_pattern(mapped, kBytes, kSeed);
  Listener listener(ip);
  say("listening", listener.port());
  Endpoint end;
  end.adopt(listener.wait_request(4 * kWaitMs).id);
  end.create_qp({});
  ibv_mr* mr = ibv_reg_mr(end.pd, mapped, kBytes, IBV_ACCESS_REMOTE_READ);
  CHECK(mr != nullptr);
  const Advert advert{reinterpret_cast<uint64_t>(mapped), mr->rkey};
  rdma_conn_param param = conn_param({});
  param.private_data = &advert;
  param.private_data_len = sizeof advert;
  CHECK_CALL(rdma_accept(end.id, &param));
  end.events.expect(RDMA_CM_EVENT_ESTABLISHED);
  std::getchar();
  CHECK_CALL(ftruncate(fd, 0));
  say("cut", 0);
  end.events.expect(RDMA_CM_EVENT_DISCONNECTED, 8 * kWaitMs);
  say("disconnected", 0);
  return 0;
}

int peer(const std::string& from, const std::string& to, uint16_t port) {
  Endpoint end;
  end.resolve(from, to, port);
  end.create_qp({});
  Region sink(end.pd, kBytes);
  rdma_conn_param param = conn_param({});
  CHECK_CALL(rdma_connect(end.id, &param));
  const CmEvent established = end.events.expect(RDMA_CM_EVENT_ESTABLISHED);
  Advert advert;
  CHECK(established.private_data.size() >= sizeof advert);
  std::memcpy(&advert, established.private_data.data(), sizeof advert);
  const auto read = [&](uint64_t wr_id) {
    end.send({.wr_id = wr_id, .opcode = IBV_WR_RDMA_READ, .sges = {sink.sge()}, .remote_addr = advert.addr,
              .rkey = advert.rkey});
  };
  uint64_t posted = 0, done = 0;
  while (posted < kReads) read(posted++);
  ibv_wc_status failed = IBV_WC_SUCCESS;
  for (; done < posted; ++done) {
    const ibv_wc wc = wait_wc(end.send_cq, 8 * kWaitMs);
    CHECK_EQ(wc.wr_id, done);
    if (failed != IBV_WC_SUCCESS) {
      CHECK_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
    } else if (wc.status == IBV_WC_SUCCESS) {
      sink.check(kSeed, 0, kBytes);
      if (done == kReads) say("reading", kBytes);
      read(posted++);
    } else {
      failed = wc.status;
      std::printf("failed: %s\n", ibv_wc_status_str(failed));
    }
  }
  // Reset by the process's end, or nothing has come from it for the peer's time-out.
  if (failed != IBV_WC_WR_FLUSH_ERR && failed != IBV_WC_RETRY_EXC_ERR) FAIL("a READ: %s", ibv_wc_status_str(failed));
  end.events.expect(RDMA_CM_EVENT_DISCONNECTED);
  say("disconnected", port);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::string role = argc > 1 ? argv[1] : "";
    if (role == "server" && argc == 3) return serve(argv[2]);
    if (role == "peer" && argc == 5) return peer(argv[2], argv[3], static_cast<uint16_t>(std::stoi(argv[4])));
    return 2;
  } catch (const tap::Failure& failure) {
    std::printf("%s\n", failure.what());
    return 1;
  }
}
