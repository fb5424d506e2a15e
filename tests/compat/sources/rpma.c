// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// A user of librpma: the server offers 1 MiB of memory, the client writes to it and reads it back.
//   rpma server|client ADDRESS PORT
#include <infiniband/verbs.h>
#include <librpma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kSize = 1 << 20 };

static void check(int status, const char* what) {
  if (!status) return;
  fprintf(stderr, "error: %s: %s\n", what, rpma_err_2str(status));
  exit(1);
}

static void expect(struct rpma_conn* conn, enum rpma_conn_event wanted) {
  enum rpma_conn_event event;
  check(rpma_conn_next_event(conn, &event), "rpma_conn_next_event");
  if (event == wanted) return;
  fprintf(stderr, "error: event %s\n", rpma_utils_conn_event_2str(event));
  exit(1);
}

static void completion(struct rpma_conn* conn) {
  struct rpma_cq* cq;
  struct ibv_wc wc;
  check(rpma_conn_get_cq(conn, &cq), "rpma_conn_get_cq");
  check(rpma_cq_wait(cq), "rpma_cq_wait");
  check(rpma_cq_get_wc(cq, 1, &wc, NULL), "rpma_cq_get_wc");
  if (wc.status == IBV_WC_SUCCESS) return;
  fprintf(stderr, "error: completion %s\n", ibv_wc_status_str(wc.status));
  exit(1);
}

static void serve(struct rpma_peer* peer, const char* address, const char* port, char* memory) {
  struct rpma_mr_local* region;
  char descriptor[128];
  size_t size;
  check(rpma_mr_reg(peer, memory, kSize, RPMA_MR_USAGE_READ_SRC | RPMA_MR_USAGE_WRITE_DST, &region), "rpma_mr_reg");
  check(rpma_mr_get_descriptor_size(region, &size), "rpma_mr_get_descriptor_size");
  check(rpma_mr_get_descriptor(region, descriptor), "rpma_mr_get_descriptor");
  struct rpma_ep* endpoint;
  struct rpma_conn_req* request;
  struct rpma_conn* conn;
  struct rpma_conn_private_data data = {descriptor, (uint8_t)size};
  check(rpma_ep_listen(peer, address, port, &endpoint), "rpma_ep_listen");
  check(rpma_ep_next_conn_req(endpoint, NULL, &request), "rpma_ep_next_conn_req");
  check(rpma_conn_req_connect(&request, &data, &conn), "rpma_conn_req_connect");
  expect(conn, RPMA_CONN_ESTABLISHED);
  expect(conn, RPMA_CONN_CLOSED);
  rpma_conn_disconnect(conn);
}

static int use(struct rpma_peer* peer, const char* address, const char* port, char* memory) {
  struct rpma_conn_req* request;
  struct rpma_conn* conn;
  struct rpma_conn_private_data data;
  struct rpma_mr_local *source, *target;
  struct rpma_mr_remote* remote;
  check(rpma_conn_req_new(peer, address, port, NULL, &request), "rpma_conn_req_new");
  check(rpma_conn_req_connect(&request, NULL, &conn), "rpma_conn_req_connect");
  expect(conn, RPMA_CONN_ESTABLISHED);
  check(rpma_conn_get_private_data(conn, &data), "rpma_conn_get_private_data");
  check(rpma_mr_remote_from_descriptor(data.ptr, data.len, &remote), "rpma_mr_remote_from_descriptor");
  for (int i = 0; i < kSize; i++) memory[i] = (char)(i * 7);
  char* back = memory + kSize;
  check(rpma_mr_reg(peer, memory, kSize, RPMA_MR_USAGE_WRITE_SRC, &source), "rpma_mr_reg");
  check(rpma_mr_reg(peer, back, kSize, RPMA_MR_USAGE_READ_DST, &target), "rpma_mr_reg");
  check(rpma_write(conn, remote, 0, source, 0, kSize, RPMA_F_COMPLETION_ALWAYS, NULL), "rpma_write");
  completion(conn);
  check(rpma_read(conn, target, 0, remote, 0, kSize, RPMA_F_COMPLETION_ALWAYS, NULL), "rpma_read");
  completion(conn);
  const int wrong = memcmp(memory, back, kSize) != 0;
  printf("read back: %s\n", wrong ? "wrong" : "right");
  check(rpma_conn_disconnect(conn), "rpma_conn_disconnect");
  return wrong;
}

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const int server = strcmp(argv[1], "server") == 0;
  struct ibv_context* context;
  struct rpma_peer* peer;
  check(rpma_utils_get_ibv_context(argv[2], server ? RPMA_UTIL_IBV_CONTEXT_LOCAL : RPMA_UTIL_IBV_CONTEXT_REMOTE,
                                   &context), "rpma_utils_get_ibv_context");
  check(rpma_peer_new(context, &peer), "rpma_peer_new");
  char* memory = aligned_alloc(4096, 2 * kSize);
  if (server) return serve(peer, argv[2], argv[3], memory), 0;
  return use(peer, argv[2], argv[3], memory);
}
