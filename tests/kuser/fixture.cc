// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "fixture.h"

#include <arpa/inet.h>

#include "mock/state.h"

namespace kuser {

in6_addr ipv4(const char* text) {
  in_addr a{};
  in6_addr mapped;
  inet_pton(AF_INET, text, &a);
  ipv6_addr_set_v4mapped(a.s_addr, &mapped);
  return mapped;
}

in6_addr ipv6(const char* text) {
  in6_addr a{};
  inet_pton(AF_INET6, text, &a);
  return a;
}

sockaddr_storage endpoint(const in6_addr& addr, uint16_t port, int scope) {
  sockaddr_storage sa{};
  if (ipv6_addr_v4mapped(&addr)) {
    auto* sin = reinterpret_cast<sockaddr_in*>(&sa);
    sin->sin_family = AF_INET;
    sin->sin_port = cpu_to_be16(port);
    sin->sin_addr.s_addr = addr.s6_addr32[3];
  } else {
    auto* sin6 = reinterpret_cast<sockaddr_in6*>(&sa);
    sin6->sin6_family = AF_INET6;
    sin6->sin6_port = cpu_to_be16(port);
    sin6->sin6_addr = addr;
    sin6->sin6_scope_id = scope;
  }
  return sa;
}

std::string violations() {
  std::string all;
  for (const auto& text : mock::violations) all += text + "\n";
  return all;
}

// ---- Process ----

Process::Process(const char* netdev) : device(mock_device(netdev)) {
  atomic_set(&mm.mm_users, 1);
  mm.areas[0] = {0x10000, 0x20000, VM_READ | VM_WRITE};
  mm.areas[1] = {0x20000, 0x30000, VM_READ};
  mm.areas[2] = {0x40000, 0x50000, VM_READ | VM_WRITE};
  task.mm = &mm;
  task.signal = &signal;
  task.nsproxy = &ns_;
  enter();
}

Process::~Process() {
  close();
  if (mm.grabbed) mock_violation("%d references of the address space are left", mm.grabbed);
  if (mm.notifier) mock_violation("a notifier of the address space is left");
  if (task.pid_refs) mock_violation("%d references of the pid are left", task.pid_refs);
  mock_current = nullptr;
}

int Process::open() {
  usiw_alloc_ucontext_req req{.abi_version = USIW_ABI_VERSION, .comp_mask = 0, .caps = caps};
  usiw_alloc_ucontext_resp resp{};
  ib_udata udata{&req, &resp, sizeof(req), sizeof(resp), nullptr};
  enter();
  ibuc = static_cast<ib_ucontext*>(calloc(1, device->ops->size_ib_ucontext));
  ibuc->device = device;
  const int ret = device->ops->alloc_ucontext(ibuc, &udata);
  if (ret) {
    free(ibuc);
    ibuc = nullptr;
    return ret;
  }
  mock_idle_check("alloc_ucontext");
  return open_events();
}

int Process::open_events() {
  const int fd = mock_uverbs_open(ibuc, USIW_OBJECT_EVENT_FILE);
  if (fd >= 0) event_fd = fd;
  mock_idle_check("open_events");
  return fd < 0 ? fd : 0;
}

int Process::create_cq() {
  usiw_create_cq_resp resp{};
  uverbs_attr_bundle attrs{};
  ib_udata& udata = attrs.driver_udata;
  const ib_cq_init_attr attr{.cqe = 16};
  if (!ibuc) return -EINVAL;
  enter();
  usiw_create_cq_req req{};
  udata = {&req, &resp, sizeof(req), sizeof(resp), ibuc};
  ibcq = static_cast<ib_cq*>(calloc(1, device->ops->size_ib_cq));
  ibcq->device = device;
  ibcq->uobject = mock_ucq_object(&ibcq->mock_uobject);
  ibcq->cq_context = this;
  ibcq->comp_handler = [](ib_cq* cq, void* p) {
    auto* process = static_cast<Process*>(p);
    process->completions++;
    process->on_event(cq->uobject->comp_list, cq->uobject->comp_events_reported, {});
  };
  ibcq->event_handler = [](ib_event* event, void* p) {
    auto& object = event->element.cq->uobject->uevent;
    static_cast<Process*>(p)->async_events.push_back(event->event);
    static_cast<Process*>(p)->on_event(object.event_list, object.events_reported, event->event);
  };
#if USIW_MOCK_KERNEL >= 611
  const int ret = device->ops->create_cq(ibcq, &attr, &attrs);
#else
  const int ret = device->ops->create_cq(ibcq, &attr, &udata);
#endif
  if (ret) {
    free(ibcq);
    ibcq = nullptr;
  }
  return ret;
}

int Process::create_qp() {
  usiw_create_qp_resp resp{};
  usiw_create_qp_req req{};
  ib_udata udata{&req, &resp, sizeof(req), sizeof(resp), ibuc};
  if (!ibcq) return -EINVAL;
  enter();
  ib_qp_init_attr attr{};
  attr.qp_type = IB_QPT_RC;
  attr.send_cq = attr.recv_cq = ibcq;
  attr.cap = {16, 16, 1, 1, 0};
  ibqp = static_cast<ib_qp*>(calloc(1, device->ops->size_ib_qp));
  ibqp->device = device;
  ibqp->uobject = mock_ucq_object(&ibqp->mock_uobject);
  ibqp->qp_type = IB_QPT_RC;
  ibqp->send_cq = ibqp->recv_cq = ibcq;
  ibqp->qp_context = this;
  ibqp->event_handler = [](ib_event* event, void* p) {
    auto& object = event->element.qp->uobject->uevent;
    static_cast<Process*>(p)->async_events.push_back(event->event);
    static_cast<Process*>(p)->on_event(object.event_list, object.events_reported, event->event);
  };
  const int ret = device->ops->create_qp(ibqp, &attr, &udata);
  mock_idle_check("create_qp");
  if (ret) {
    free(ibqp);
    ibqp = nullptr;
  }
  return ret;
}

void Process::on_event(list_head& unread, u32& reported, ib_event_type type) {
  if (reads_events) {
    reported++;
    return;
  }
  UnreadEvent& event = unread_events_.emplace_back();
  event.type = type;
  list_add_tail(&event.node, &unread);
}

ib_event_type Process::read_event(list_head& unread, u32& reported) {
  UnreadEvent* event = list_entry(unread.next, UnreadEvent, node);
  const ib_event_type type = event->type;
  reported++;
  list_del(&event->node);
  unread_events_.remove_if([&](const UnreadEvent& e) { return &e == event; });
  return type;
}

int Process::open_all() {
  int ret = open();
  if (!ret) ret = create_cq();
  if (!ret) ret = create_qp();
  if (!ret) ret = modify(IB_QPS_INIT);
  return ret;
}

int Process::modify(ib_qp_state state) {
  ib_udata udata{};
  ib_qp_attr attr{};
  attr.qp_state = state;
  if (!ibqp) return -EINVAL;
  enter();
  return device->ops->modify_qp(ibqp, &attr, IB_QP_STATE, &udata);
}

int Process::destroy_qp() {
  if (!ibqp) return 0;
  const int ret = device->ops->destroy_qp(ibqp, nullptr);
  mock_idle_check("destroy_qp");
  free(ibqp);
  ibqp = nullptr;
  return ret;
}

void Process::close() {
  destroy_qp();
  if (ibcq) {
    device->ops->destroy_cq(ibcq, nullptr);
    free(ibcq);
    ibcq = nullptr;
  }
  if (ibuc) {
    mock_uverbs_cleanup(ibuc, RDMA_REMOVE_CLOSE);
    device->ops->dealloc_ucontext(ibuc);
    free(ibuc);
    ibuc = nullptr;
  }
  if (event_fd >= 0) mock_close(event_fd);
  event_fd = -1;
  for (int fd : data_fds) mock_close(fd);
  data_fds.clear();
}

std::vector<usiw_event> Process::events() {
  std::vector<usiw_event> found;
  file* events = mock_file(event_fd);
  if (!events || killed_) return found;
  enter();
  events->f_flags |= O_NONBLOCK;
  usiw_event record;
  while (events->f_op->read(events, reinterpret_cast<char*>(&record), sizeof(record), nullptr) ==
         sizeof(record)) {
    found.push_back(record);
    seen.push_back(record);
    if (record.type == USIW_EVENT_CONNECT && (record.conn.flags & USIW_CONN_F_SOCKET) && record.conn.data_fd >= 0)
      data_fds.push_back(record.conn.data_fd);
  }
  return found;
}

int Process::report(uint32_t kind, uint32_t conn_id, int error, uint32_t async_event) {
  return report({kind, conn_id, error, async_event, 0, 0});
}

int Process::report_port(uint32_t conn_id, uint32_t port, uint32_t why) {
  return report({USIW_REPORT_PORT, conn_id, 0, 0, port, why});
}

int Process::report(const usiw_qp_report& report) {
  uverbs_attr_bundle attrs{};
  attrs.mock_object = ibqp;
  attrs.mock_data = &report;
  attrs.mock_len = sizeof(report);
  enter();
  if (!ibqp) return -EINVAL;
  return mock_uverbs_call(device, UVERBS_OBJECT_QP, &attrs);
}

int Process::answer() {
  const auto found = events();
  for (const auto& event : found) {
    if (event.type == USIW_EVENT_CONNECT && (context()->caps & USIW_CAP_PORT_REPORT))
      report_port(event.conn_id, event.conn.flags & USIW_CONN_F_PACKET ? USIW_PORT_PACKET : USIW_PORT_SOCKET);
    if (event.type == USIW_EVENT_CONNECT) report(USIW_REPORT_READY, event.conn_id);
    if (event.type == USIW_EVENT_DISCONNECT) report(USIW_REPORT_CLOSED, event.conn_id);
  }
  return found.size();
}

ib_qp* get_qp(ib_device* device, int qpn) {
  mock::context.irq_off++;
  ib_qp* qp = device->ops->iw_get_qp(device, qpn);
  mock::context.irq_off--;
  return qp;
}

// ---- CmId ----

CmId::CmId() {
  user.route.addr.dev_addr.net = &init_net;
  user.ps = RDMA_PS_TCP;
  id.context = &user;
  id.event_handler = [](iw_cm_id* at, iw_cm_event* event) {
    return container_of(at, CmId, id)->on_event(event);
  };
  id.add_ref = [](iw_cm_id* at) { container_of(at, CmId, id)->refs++; };
  id.rem_ref = [](iw_cm_id* at) {
    if (--container_of(at, CmId, id)->refs < 1) mock_violation("cm_id: reference dropped twice");
  };
}

CmId::~CmId() {
  destroy();
  requests.clear();
  if (refs != 1) mock_violation("cm_id: %d references are left", refs - 1);
}

bool CmId::told(iw_cm_event_type type) const {
  for (const Event& event : events)
    if (event.type == type) return true;
  return false;
}

bool CmId::established() const {
  for (const Event& event : events)
    if (event.type == IW_CM_EVENT_ESTABLISHED || (event.type == IW_CM_EVENT_CONNECT_REPLY && !event.status))
      return true;
  return false;
}

// iw_cm runs into BUG() at the places that report a violation here.
int CmId::on_event(iw_cm_event* event) {
  if (mock::context.softirq || mock::context.spin) mock_violation("upcall in atomic context");
  const bool fails = (event->event == IW_CM_EVENT_CONNECT_REQUEST || event->private_data_len) &&
                     mock_fails(MOCK_CORE, "iw_cm event");
  if (fails) return -ENOMEM;
  if (event->event == IW_CM_EVENT_CONNECT_REQUEST) {
    if (state_ != State::kListening) mock_violation("request for what does not listen");
    auto request = std::make_unique<CmId>();
    request->id.device = id.device;
    request->id.provider_data = event->provider_data;
    request->id.local_addr = event->local_addr;
    request->id.m_remote_addr = event->remote_addr;
    request->state_ = State::kRequest;
    request->events.push_back({event->event, 0,
                               {static_cast<char*>(event->private_data), event->private_data_len},
                               event->ird, event->ord});
    requests.push_back(std::move(request));
    return 0;
  }
  switch (event->event) {
    case IW_CM_EVENT_CONNECT_REPLY:
      if (state_ != State::kConnecting || told(IW_CM_EVENT_CONNECT_REPLY)) mock_violation("odd CONNECT_REPLY");
      break;
    case IW_CM_EVENT_ESTABLISHED:
      if (state_ != State::kAccepting || told(IW_CM_EVENT_ESTABLISHED)) mock_violation("odd ESTABLISHED");
      break;
    default:
      if (!established() || told(IW_CM_EVENT_CLOSE)) mock_violation("odd DISCONNECT or CLOSE");
  }
  events.push_back({event->event, event->status,
                    {static_cast<char*>(event->private_data), event->private_data_len}, event->ird, event->ord});
  return 0;
}

bool CmId::take_qp(Process& process) {
  process.enter();
  id.device = process.device;
  // iw_cm calls both with interrupts off.
  mock::context.irq_off++;
  proxy_ = process.ibqp ? get_qp(process.device, process.ibqp->qp_num) : nullptr;
  if (proxy_) process.device->ops->iw_add_ref(proxy_);
  mock::context.irq_off--;
  return proxy_;
}

void CmId::drop_qp() {
  if (proxy_) id.device->ops->iw_rem_ref(proxy_);
  proxy_ = nullptr;
}

int CmId::listen(ib_device* device, const in6_addr& addr, uint16_t port, int backlog, bool only) {
  id.device = device;
  id.local_addr = endpoint(addr, port, scope);
  id.afonly = only;
  const int ret = device->ops->iw_create_listen(&id, backlog);
  mock_idle_check("iw_create_listen");
  if (!ret) state_ = State::kListening;
  return ret;
}

int CmId::connect(Process& process, const in6_addr& from, uint16_t from_port, const in6_addr& to,
                  uint16_t to_port, const std::string& private_data) {
  if (!take_qp(process)) return -EINVAL;
  id.local_addr = endpoint(from, from_port, scope);
  id.m_remote_addr = endpoint(to, to_port, scope);
  iw_cm_conn_param param{private_data.data(), static_cast<u16>(private_data.size()), 4, 8, process.ibqp->qp_num};
  state_ = State::kConnecting;
  const int ret = id.device->ops->iw_connect(&id, &param);
  mock_idle_check("iw_connect");
  if (ret) {
    state_ = State::kFailed;
    drop_qp();
  }
  return ret;
}

int CmId::accept(Process& process, const std::string& private_data) {
  drop_qp();
  if (!take_qp(process)) return -EINVAL;
  iw_cm_conn_param param{private_data.data(), static_cast<u16>(private_data.size()), 4, 8, process.ibqp->qp_num};
  state_ = State::kAccepting;
  const int ret = id.device->ops->iw_accept(&id, &param);
  mock_idle_check("iw_accept");
  if (ret) {
    state_ = State::kFailed;
    drop_qp();
  }
  return ret;
}

int CmId::reject(const std::string& private_data) {
  const int ret = id.device->ops->iw_reject(&id, private_data.data(), private_data.size());
  mock_idle_check("iw_reject");
  state_ = State::kFailed;
  return ret;
}

int CmId::disconnect(bool abrupt) {
  ib_qp_attr attr{};
  if (!proxy_) return -EINVAL;
  attr.qp_state = abrupt ? IB_QPS_ERR : IB_QPS_SQD;
  const int ret = id.device->ops->modify_qp(proxy_, &attr, IB_QP_STATE, nullptr);
  mock_idle_check("modify_qp");
  return ret;
}

void CmId::destroy() {
  switch (state_) {
    case State::kListening:
      id.device->ops->iw_destroy_listen(&id);
      break;
    case State::kRequest:
      id.device->ops->iw_reject(&id, nullptr, 0);
      break;
    case State::kConnecting:
    case State::kAccepting:
      // iw_cm waits until its user has got an answer.
      while (!told(IW_CM_EVENT_CONNECT_REPLY) && !established() && mock_let_others_run("answer for iw_cm")) {
      }
      if (established() && !told(IW_CM_EVENT_CLOSE)) disconnect(true);
      break;
    default:
      break;
  }
  state_ = State::kDestroyed;
  drop_qp();
  for (auto& request : requests) request->destroy();
}

void CmId::drop_requests() {
  while (!requests.empty()) {
    const auto first = std::move(requests.front());
    requests.erase(requests.begin());
  }
}

// ---- The module ----

Kuser::Kuser() { mock_reset(); }
Kuser::~Kuser() = default;

bool Kuser::load() {
  static task_struct init{};
  static nsproxy ns{&init_net};
  init.nsproxy = &ns;
  mock_current = &init;
  *mock_param_netdevs = nullptr;
  const int ret = mock_module_init();
  mock_idle_check("module_init");
  if (ret) return false;
  loaded_ = true;
  const bool both = !mock_link_ops->newlink("usiw0", mock_netdev("eth0")) &&
                    !mock_link_ops->newlink("usiw1", mock_netdev("eth1"));
  mock_idle_check("newlink");
  return both;
}

std::string Kuser::unload() {
  if (loaded_) mock_module_exit();
  loaded_ = false;
  mock_grace_period();
  mock_idle_check("module_exit");
  std::string left = violations();
  if (mock_allocations())
    left += std::to_string(mock_allocations()) + " allocations are left, one of " + mock_first_allocation() + "\n";
  if (mock_pending_works()) left += "work is left\n";
  if (mock_sockets) left += "sockets are left\n";
  if (mock_routes || mock_neighbours) left += "routes or neighbours are left\n";
  if (mock_open_fds()) left += "files are left\n";
  if (mock_memcg_refs()) left += "references of a cgroup are left\n";
  for (const char* name : {"lo", "eth0", "eth1", "eth0.3", "eth0.4"})
    if (mock_netdev(name)->refs) left += std::string("references of ") + name + " are left\n";
  return left;
}

void Kuser::SetUp() { ASSERT_TRUE(load()); }

void Kuser::TearDown() {
  mock_inject(0);
  EXPECT_EQ(unload(), "");
}

void Kuser::pump() {
  mock_datagram d;
  do {
    mock_run();
    while (mock_take(&d)) mock_deliver(&d, 64);
  } while (mock_run());
}

void Kuser::settle(std::initializer_list<Process*> processes) {
  int answers;
  do {
    pump();
    answers = 0;
    for (Process* process : processes) answers += process->answer();
  } while (answers || mock_sent());
}

mock_datagram client_datagram(unsigned len) {
  mock_datagram d{};
  d.from = ipv4("192.0.2.1");
  d.from_port = cpu_to_be16(9000);
  d.to = ipv4("192.0.2.2");
  d.to_port = cpu_to_be16(kPort);
  d.len = len;
  return d;
}

void Kuser::start_anew(std::initializer_list<CmId*> ids) {
  TearDown();
  for (CmId* id : ids) {
    std::destroy_at(id);
    new (id) CmId;
  }
  SetUp();
}

// ---- Story ----

Story::Story() = default;
Story::~Story() { end(); }

void Story::step() {
  steps++;
  mock_idle_check("step");
  if (on_step) on_step(steps);
}

void Story::settle() {
  mock_datagram d;
  for (bool busy = true; busy;) {
    busy = mock_run();
    step();
    while (mock_take(&d)) {
      mock_deliver(&d, 20);
      busy = true;
      step();
    }
    for (Process* process : {client.get(), server.get()}) {
      if (!process || !process->answer()) continue;
      busy = true;
      step();
    }
  }
}

void Story::tell() {
  try {
    tell_all();
  } catch (const Stop&) {
  }
}

void Story::tell_all() {
  const in6_addr from = ipv6 ? kuser::ipv6("2001:db8::1") : ipv4("192.0.2.1");
  const in6_addr to = ipv6 ? kuser::ipv6("2001:db8::2") : ipv4("192.0.2.2");
  server = std::make_unique<Process>("eth1");
  client = std::make_unique<Process>("eth0");
  listener = std::make_unique<CmId>();
  active = std::make_unique<CmId>();
  server->caps = USIW_CAP_DATA_SOCKET;
  client->caps = USIW_CAP_DATA_SOCKET | USIW_CAP_PORT_REPORT | USIW_CAP_PORT_MOVE;
  server->open_all();
  step();
  client->open_all();
  step();
  listener->listen(server->device, ipv6 ? in6addr_any : to, kPort);
  step();
  if (client->ibqp && !client->killed()) active->connect(*client, from, 9000, to, kPort, "hello");
  step();
  settle();
  for (int retry = 0; retry < 3 && !passive(); retry++) {
    mock_advance_ms(1000);
    settle();
  }
  if (passive() && server->ibqp && !server->killed()) passive()->accept(*server, "welcome");
  step();
  settle();
  for (int retry = 0; retry < 3 && !active->told(IW_CM_EVENT_CONNECT_REPLY); retry++) {
    mock_advance_ms(1000);
    settle();
  }
  both_established = passive() && active->established() && passive()->established();
  if (active->established() && !client->killed()) active->disconnect(!orderly);
  step();
  settle();
  mock_advance_ms(3000);
  settle();
}

void Story::end() {
  for (Process* process : {client.get(), server.get()})
    if (process) process->close();
  if (active) active->destroy();
  if (listener) listener->destroy();
  mock_grace_period();
  client.reset();
  server.reset();
  active.reset();
  listener.reset();
}

// ---- Connected ----

void Connected::SetUp() {
  Kuser::SetUp();
  server = std::make_unique<Process>("eth1");
  client = std::make_unique<Process>("eth0");
  server->caps = client->caps = caps;
  ASSERT_EQ(server->open_all(), 0);
  ASSERT_EQ(client->open_all(), 0);
  ASSERT_EQ(listener.listen(server->device, ipv4("192.0.2.2"), kPort), 0);
}

void Connected::establish() {
  ASSERT_EQ(active.connect(*client, ipv4("192.0.2.1"), 9000, ipv4("192.0.2.2"), kPort, "hello"), 0);
  settle({client.get(), server.get()});
  ASSERT_EQ(listener.requests.size(), 1u);
  passive = listener.requests[0].get();
  ASSERT_EQ(passive->accept(*server, "welcome"), 0);
  settle({client.get(), server.get()});
  ASSERT_TRUE(active.established());
  ASSERT_TRUE(passive->established());
}

void Connected::TearDown() {
  mock_inject(0);
  client->close();
  server->close();
  active.destroy();
  listener.destroy();
  mock_grace_period();
  client.reset();
  server.reset();
  Kuser::TearDown();
}

}  // namespace kuser
