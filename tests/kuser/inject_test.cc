// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// A connection from nothing to its end. The tests make each call fail once that can fail, and end the story at each
// step in each way. Nothing may be left, nothing may hang, and iw_cm may get no event that it does not expect. The
// fixture and the mock check that.
#include "fixture.h"

namespace kuser {
namespace {

class Inject : public Kuser {
 protected:
  void SetUp() override {}
  void TearDown() override {}

  /// Runs the story and returns the violations.
  std::string run(const std::function<void(Story&)>& prepare, int* steps = nullptr) {
    mock_reset();
    if (!load()) return "no module";
    {
      Story story;
      prepare(story);
      story.tell();
      mock_inject(0);
      story.on_step = nullptr;
      if (steps) *steps = story.steps;
      established_ = story.both_established;
    }
    return unload();
  }

  /// Runs the story once for each of its steps. That step is the last one, and calls @p strike.
  void strike_at_each_step(const std::function<void(Story&, int at)>& strike) {
    int steps = 0, at = 0;
    do {
      at++;
      mock_reset();
      ASSERT_TRUE(load());
      {
        Story story;
        story.on_step = [&](int step) {
          if (step != at) return;
          strike(story, at);
          throw Story::Stop();
        };
        story.tell();
        steps = story.steps;
      }
      EXPECT_EQ(unload(), "") << "at step " << at;
    } while (at == steps);
    EXPECT_GE(at, 20);
  }
  bool established_ = false;
};

TEST_F(Inject, story__without_errors) {
  for (const bool ipv6 : {false, true}) {
    for (const bool orderly : {false, true}) {
      EXPECT_EQ(run([&](Story& story) {
                  story.ipv6 = ipv6;
                  story.orderly = orderly;
                }),
                "");
      EXPECT_TRUE(established_) << ipv6 << orderly;
    }
  }
}

TEST_F(Inject, module_init__each_failure) {
  for (unsigned n = 0;; n++) {
    mock_reset();
    mock_inject(u64{1} << n);
    const bool all = load();
    const bool more = mock_fallible > n;
    mock_inject(0);
    EXPECT_EQ(unload(), "") << "call " << n;
    if (!more) {
      EXPECT_TRUE(all);
      EXPECT_GE(n, 8u);
      break;
    }
    ASSERT_LT(n, 63u);
  }
}

TEST_F(Inject, connection__each_failure) {
  for (const bool ipv6 : {false, true}) {
    unsigned n = 0, still_established = 0;
    for (bool more = true; more; n++) {
      ASSERT_LT(n, 1000u);
      EXPECT_EQ(run([&](Story& story) {
                  story.ipv6 = ipv6;
                  mock_inject_after(n, 1);
                  story.on_step = [&](int) { more = mock_fallible > n; };
                }),
                "")
          << "call " << n;
      still_established += established_;
    }
    EXPECT_GE(n, 30u);
    // The peer repeats a datagram that was lost or found no memory.
    EXPECT_GE(still_established, 4u);
  }
}

TEST_F(Inject, connection__each_pair_of_failures) {
  for (unsigned first = 0; first < 80; first++)
    for (unsigned apart = 1; apart < 64; apart++)
      EXPECT_EQ(run([&](Story&) { mock_inject_after(first, 1 | u64{1} << apart); }), "")
          << "calls " << first << ", " << first + apart;
}

TEST_F(Inject, connection__all_of_a_kind_fail_from_a_call_on) {
  for (int kind = 0; kind < MOCK_CALLS; kind++)
    for (unsigned n = 0; n < 24; n++)
      EXPECT_EQ(run([&](Story&) { mock_errors[kind] = ~u64{0} << n; }), "") << "kind " << kind << " call " << n;
}

/// A child of fork() keeps the descriptors open.
void dies_but_for_its_files(Process& process) {
  if (!process.ibqp) return;
  process.kill();
  mock_mm_exit(&process.mm);
}

struct Kill {
  const char* name;
  void (*strike)(Story&);
};

const Kill kKills[] = {
    {"client closes its file",
     [](Story& s) {
       s.client->kill();
       s.client->close();
     }},
    {"server closes its file",
     [](Story& s) {
       s.server->kill();
       s.server->close();
     }},
    {"client is killed, cm_id first",
     [](Story& s) {
       s.client->kill();
       s.active->destroy();
     }},
    {"server is killed, cm_ids first",
     [](Story& s) {
       s.server->kill();
       s.listener->destroy();
     }},
    {"client dies, a child lives", [](Story& s) { dies_but_for_its_files(*s.client); }},
    {"server dies, a child lives", [](Story& s) { dies_but_for_its_files(*s.server); }},
    {"client QP to ERR", [](Story& s) { s.client->modify(IB_QPS_ERR); }},
    {"server QP to RESET", [](Story& s) { s.server->modify(IB_QPS_RESET); }},
    {"client QP destroyed", [](Story& s) { s.client->destroy_qp(); }},
    {"server QP destroyed", [](Story& s) { s.server->destroy_qp(); }},
    {"listener destroyed",
     [](Story& s) {
       if (s.listener->id.device) s.listener->id.device->ops->iw_destroy_listen(&s.listener->id);
     }},
    {"client's address removed",
     [](Story&) {
       const in6_addr addr = ipv4("192.0.2.1");
       mock_remove_addr(mock_netdev("eth0"), &addr);
     }},
    {"client's engine dies",
     [](Story& s) {
       if (s.client->ibqp && s.client->qp()->conn)
         s.client->report(USIW_REPORT_FAILED, s.client->qp()->conn->end.id, -ETIMEDOUT, IB_EVENT_QP_FATAL);
     }},
    {"server's engine refuses",
     [](Story& s) {
       if (s.server->ibqp && s.server->qp()->conn)
         s.server->report(USIW_REPORT_REFUSED, s.server->qp()->conn->end.id, -ENOMEM);
     }},
    {"client stops answering", [](Story& s) { s.client->kill(); }},
    {"server stops answering", [](Story& s) { s.server->kill(); }},
};

class InjectKill : public Inject, public ::testing::WithParamInterface<Kill> {};

TEST_P(InjectKill, at_each_step) {
  int steps = 0, at = 0;
  do {
    at++;
    EXPECT_EQ(run(
                  [&](Story& story) {
                    story.on_step = [&](int step) {
                      if (step == at) GetParam().strike(story);
                    };
                  },
                  &steps),
              "")
        << GetParam().name << " at step " << at;
  } while (at < steps && at < 400);
  EXPECT_GE(at, 20);
}

INSTANTIATE_TEST_SUITE_P(Kills, InjectKill, ::testing::ValuesIn(kKills), [](const auto& tested) {
  std::string name = tested.param.name;
  for (char& c : name)
    if (!isalnum(static_cast<unsigned char>(c))) c = '_';
  return name;
});

TEST_F(Inject, device_removal__at_each_step) {
  strike_at_each_step([](Story& story, int) {
    // ib_core ends the objects and the cm_ids first, then the device.
    mock_notify_netdev(mock_netdev("eth0"), NETDEV_UNREGISTER);
    if (story.client) story.client->kill();
    if (story.client) story.client->close();
    if (story.active) story.active->destroy();
    mock_grace_period();
    mock_unregister(mock_device("eth0"));
  });
}

// All netdevs but lo have left the netns, and their devices are being unregistered. lo waits for these, and also for a
// device that was disabled when its netdev left and was not notified.
TEST_F(Inject, net_exit__at_each_step) {
  strike_at_each_step([](Story& story, int at) {
    mock_notify_netdev(mock_netdev("eth0"), NETDEV_UNREGISTER);
    if (at % 2) mock_notify_netdev(mock_netdev("eth1"), NETDEV_UNREGISTER);
    story.end();
    mock_net_exit(&init_net);
    EXPECT_EQ(mock_device("eth0"), nullptr);
    EXPECT_EQ(mock_device("eth1"), nullptr);
    EXPECT_EQ(mock_sockets, 0);
  });
}

}  // namespace
}  // namespace kuser
