// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Tests of kmod/usiw_uapi.c: its methods, and arguments that they refuse.
#include "fixture.h"

namespace kuser {
namespace {

class Uapi : public Connected {
 protected:
  const uverbs_method_def* method(u32 object) {
    for (const uapi_definition* def = client->device->driver_def; def->tree; def++)
      if (def->object == object) return def->tree->method;
    return nullptr;
  }
  int call(u32 object, void* handle, const void* data, size_t len) {
    uverbs_attr_bundle attrs{};
    attrs.mock_object = handle;
    attrs.mock_data = data;
    attrs.mock_len = len;
    return mock_uverbs_call(client->device, object, &attrs);
  }
  int cq_event(u32 kind) { return call(UVERBS_OBJECT_CQ, client->ibcq, &kind, sizeof(kind)); }
};

TEST_F(Uapi, definitions__numbers_and_handles) {
  const auto* cq = method(UVERBS_OBJECT_CQ);
  const auto* qp = method(UVERBS_OBJECT_QP);
  const auto* events = method(USIW_OBJECT_EVENT_FILE);
  ASSERT_TRUE(cq && qp && events);
  EXPECT_EQ(events->id, u32{USIW_METHOD_EVENT_FILE_ALLOC});
  EXPECT_EQ(events->object_type, u32{USIW_OBJECT_EVENT_FILE});
  EXPECT_EQ(events->object_attr, u32{USIW_ATTR_EVENT_FILE_HANDLE});
  EXPECT_EQ(cq->id, u32{USIW_METHOD_CQ_EVENT});
  EXPECT_EQ(cq->object_type, u32{UVERBS_OBJECT_CQ});
  EXPECT_EQ(cq->object_attr, u32{USIW_ATTR_CQ_EVENT_HANDLE});
  EXPECT_EQ(cq->data_size, sizeof(u32));
  EXPECT_EQ(qp->id, u32{USIW_METHOD_QP_REPORT});
  EXPECT_EQ(qp->object_type, u32{UVERBS_OBJECT_QP});
  EXPECT_EQ(qp->object_attr, u32{USIW_ATTR_QP_REPORT_HANDLE});
  EXPECT_EQ(qp->data_size, sizeof(usiw_qp_report));
}

TEST_F(Uapi, cq_event__kinds) {
  EXPECT_EQ(cq_event(USIW_CQ_COMPLETION), 0);
  EXPECT_EQ(client->completions, 1);
  EXPECT_EQ(cq_event(USIW_CQ_OVERRUN), 0);
  EXPECT_EQ(client->async_events, std::vector<ib_event_type>{IB_EVENT_CQ_ERR});
  for (const u32 kind : {2u, 0x80000000u, ~0u}) EXPECT_EQ(cq_event(kind), -EINVAL);
  EXPECT_EQ(client->completions, 1);
}

// A process that raises events for ever and reads none has a few of them in the kernel. After each read the next event
// is raised, so a later event always wakes the process again.
TEST_F(Uapi, cq_event__unread_ones_are_bounded) {
  client->reads_events = false;
  ib_ucq_object& object = *client->ibcq->uobject;
  for (int i = 0; i < 1000; i++) {
    EXPECT_EQ(cq_event(USIW_CQ_COMPLETION), 0);
    EXPECT_EQ(cq_event(USIW_CQ_OVERRUN), 0);
  }
  EXPECT_EQ(client->completions, USIW_UNREAD_MOST);
  EXPECT_EQ(client->async_events.size(), 1u);
  for (int i = 1; i <= 1000; i++) {
    client->read_event(object.comp_list, object.comp_events_reported);
    client->read_event(object.uevent.event_list, object.uevent.events_reported);
    EXPECT_EQ(cq_event(USIW_CQ_COMPLETION), 0);
    EXPECT_EQ(cq_event(USIW_CQ_OVERRUN), 0);
    EXPECT_EQ(client->completions, USIW_UNREAD_MOST + i);
    EXPECT_EQ(client->async_events.size(), 1u + i);
  }
  while (!list_empty(&object.comp_list)) client->read_event(object.comp_list, object.comp_events_reported);
  EXPECT_EQ(cq_event(USIW_CQ_COMPLETION), 0);
  EXPECT_FALSE(list_empty(&object.comp_list)) << "a reader that waits now";
}

// The module does not wait for the reading of an event for which uverbs has no memory or no channel.
TEST_F(Uapi, cq_event__that_uverbs_drops_counts_as_read) {
  client->ibcq->comp_handler = [](ib_cq*, void* p) { static_cast<Process*>(p)->completions++; };
  for (int i = 0; i < 100; i++) EXPECT_EQ(cq_event(USIW_CQ_COMPLETION), 0);
  EXPECT_EQ(client->completions, 100);
}

// One event of each type may be unread, in any order of raising and reading.
TEST_F(Uapi, qp_report__unread_events_are_bounded) {
  client->reads_events = false;
  ib_uevent_object& object = client->ibqp->uobject->uevent;
  const std::vector types{IB_EVENT_QP_FATAL, IB_EVENT_QP_LAST_WQE_REACHED, IB_EVENT_COMM_EST};
  for (int i = 0; i < 1000; i++)
    for (const ib_event_type type : types) EXPECT_EQ(client->report(USIW_REPORT_ASYNC, 0, 0, type), 0);
  EXPECT_EQ(client->async_events, types);
  EXPECT_EQ(client->read_event(object.event_list, object.events_reported), IB_EVENT_QP_FATAL);
  for (const ib_event_type type : types) EXPECT_EQ(client->report(USIW_REPORT_ASYNC, 0, 0, type), 0);
  EXPECT_EQ(client->async_events.size(), 4u);
  EXPECT_EQ(client->async_events.back(), IB_EVENT_QP_FATAL);
  for (const ib_event_type type : {IB_EVENT_QP_LAST_WQE_REACHED, IB_EVENT_COMM_EST, IB_EVENT_QP_FATAL})
    EXPECT_EQ(client->read_event(object.event_list, object.events_reported), type);
  for (u32 type = IB_EVENT_QP_FATAL; type <= IB_EVENT_SQ_DRAINED; type++)
    EXPECT_EQ(client->report(USIW_REPORT_ASYNC, 0, 0, type), 0);
  EXPECT_EQ(client->report(USIW_REPORT_ASYNC, 0, 0, IB_EVENT_QP_LAST_WQE_REACHED), 0);
  EXPECT_EQ(client->async_events.size(), 4u + 6u) << "all types that there are";
}

// The objects of uverbs have another layout. Events still arrive, and the log reports that they have no bound.
TEST_F(Uapi, events__unknown_uverbs) {
  ASSERT_EQ(client->destroy_qp(), 0);
  client->device->ops->destroy_cq(client->ibcq, nullptr);
  ib_ucq_object& object = *client->ibcq->uobject;
  object.comp_events_reported = 0x1234;
  usiw_unread_init_completions(&to_usiw_cq(client->ibcq)->completions, &object);
  client->reads_events = false;
  for (int i = 0; i < 100; i++) EXPECT_EQ(cq_event(USIW_CQ_COMPLETION), 0);
  EXPECT_EQ(client->completions, 100);
  free(client->ibcq);
  client->ibcq = nullptr;
}

TEST_F(Uapi, cq_event__without_handlers) {
  client->ibcq->comp_handler = nullptr;
  client->ibcq->event_handler = nullptr;
  EXPECT_EQ(cq_event(USIW_CQ_COMPLETION), 0);
  EXPECT_EQ(cq_event(USIW_CQ_OVERRUN), 0);
}

TEST_F(Uapi, cq_event__fault) {
  mock_errors[MOCK_COPY] = 1;
  EXPECT_EQ(cq_event(USIW_CQ_COMPLETION), -EFAULT);
  EXPECT_EQ(client->completions, 0);
}

TEST_F(Uapi, qp_report__invalid_values) {
  for (const u32 kind : {0u, 8u, 0x80000000u, ~0u}) EXPECT_EQ(client->report(kind, 1), -EINVAL);
  for (const int error : {1, -MAX_ERRNO - 1, INT_MAX, INT_MIN})
    EXPECT_EQ(client->report(USIW_REPORT_FAILED, 1, error), -EINVAL);
  for (const u32 event : {6u, 0x80000000u, ~0u})
    EXPECT_EQ(client->report(USIW_REPORT_ASYNC, 1, 0, event), -EINVAL);
  EXPECT_TRUE(client->async_events.empty());
}

TEST_F(Uapi, qp_report__async_event_only) {
  for (u32 event = 0; event <= IB_EVENT_SQ_DRAINED; event++)
    EXPECT_EQ(client->report(USIW_REPORT_ASYNC, 0, 0, event), 0);
  EXPECT_EQ(client->async_events.size(), 5u);
}

TEST_F(Uapi, qp_report__fault) {
  mock_errors[MOCK_COPY] = 1;
  EXPECT_EQ(client->report(USIW_REPORT_READY, 1), -EFAULT);
}

// The report of an older provider has at least the length of the first version. A newer one has zeros in the fields
// that this module does not know.
TEST_F(Uapi, qp_report__longer_and_shorter) {
  struct {
    usiw_qp_report report;
    u8 more[24];
  } newer{{USIW_REPORT_ASYNC, 0, 0, IB_EVENT_QP_FATAL, 0, 0}, {}};
  EXPECT_EQ(call(UVERBS_OBJECT_QP, client->ibqp, &newer, sizeof(newer)), 0);
  EXPECT_EQ(client->async_events, std::vector<ib_event_type>{IB_EVENT_QP_FATAL});
  EXPECT_EQ(call(UVERBS_OBJECT_QP, client->ibqp, &newer, offsetof(usiw_qp_report, port) - 1), -EINVAL);
  newer.more[23] = 1;
  EXPECT_EQ(call(UVERBS_OBJECT_QP, client->ibqp, &newer, sizeof(newer)), -EOPNOTSUPP);
  EXPECT_EQ(client->async_events.size(), 1u);
}

TEST_F(Uapi, qp_report__each_kind_in_each_state) {
  for (u32 kind = USIW_REPORT_READY; kind <= USIW_REPORT_FAILED; kind++) {
    ASSERT_EQ(active.connect(*client, ipv4("192.0.2.1"), 9000, ipv4("192.0.2.2"), kPort), 0);
    const u32 id = client_conn()->end.id;
    EXPECT_EQ(client->report(kind, id, -EIO), 0);
    settle({client.get(), server.get()});
    EXPECT_EQ(client->report(kind, id, -EIO), 0);
    client->modify(IB_QPS_ERR);
    client->modify(IB_QPS_RESET);
    client->modify(IB_QPS_INIT);
    EXPECT_EQ(client->report(kind, id, -EIO), 0);
    active.destroy();
    active.events.clear();
    mock_advance_ms(3000);
    settle({client.get(), server.get()});
  }
}

}  // namespace
}  // namespace kuser
