// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file stat_test.cc
/// What `usiw stat` prints.
#include "tools/stat.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "tools/gauge_words.h"
#include "tools/json.h"
#include "tools/prometheus.h"

namespace usiw::tools {
namespace {

Sample sample(uint64_t packets, uint64_t rtt, const std::string& comm = "rping") {
  return {{.name = "usiw0",
           .counters = {{"tx_pkts", packets}, {"rto", 0}},
           .qps = {{.info = {.qpn = 17, .pid = 4711, .state = 3, .values = {{"tx_pkts", packets}, {"srtt_ns", rtt}}},
                    .process = comm}}}};
}

/// What Python's json makes of it: `expression` on the document, as text.
std::string python(const std::string& json, const std::string& expression) {
  const std::string path = ::testing::TempDir() + "usiw_stat_" + std::to_string(getpid()) + ".json";
  FILE* file = std::fopen(path.c_str(), "w");
  std::fputs(json.c_str(), file);
  std::fclose(file);
  const std::string command = "/usr/bin/python3 -c 'import json,sys; d = json.load(open(sys.argv[1])); print(" +
                              expression + ")' " + path + " 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  std::string out;
  for (int c; (c = std::fgetc(pipe)) != EOF;) out += static_cast<char>(c);
  pclose(pipe);
  std::remove(path.c_str());
  return out;
}

TEST(Stat, TextShowsWhatIsNotZero) {
  EXPECT_EQ("link usiw0/1\n    tx_pkts 5\n  qp 17 state RTS pid 4711 comm rping\n    tx_pkts 5  srtt_ns 70\n",
            stat_text(sample(5, 70)));
}

TEST(Stat, JsonIsJson) {
  EXPECT_EQ(
      "5 0 70 4711 rping RTS\n",
      python(stat_json(sample(5, 70)),
             "d[0][\"counters\"][\"tx_pkts\"], d[0][\"counters\"][\"rto\"], d[0][\"qps\"][0][\"gauges\"][\"srtt_ns\"], "
             "d[0][\"qps\"][0][\"pid\"], d[0][\"qps\"][0][\"comm\"], d[0][\"qps\"][0][\"state\"]"));
  EXPECT_EQ("[]\n", python(stat_json({}), "d"));
  EXPECT_EQ("18446744073709551615\n", python(stat_json(sample(UINT64_MAX, 0)), "d[0][\"counters\"][\"tx_pkts\"]"));
}

TEST(Stat, PrometheusHasEachMetricOnceWithAllItsLines) {
  Sample s = sample(5, 70, "a \"b\"\\\n");
  s[0].qps[0].info.values.push_back({"data_port", 3});
  s[0].qps.push_back({.info = {.qpn = 18, .pid = 1, .state = 3, .values = {{"tx_pkts", 6}, {"srtt_ns", 0}}},
                      .process = "x"});
  const std::string device = "{device=\"usiw0\",by=\"module\"";
  const std::string first = device + ",qpn=\"17\",pid=\"4711\",comm=\"a \\\"b\\\"\\\\\\n\"";
  const std::string second = device + ",qpn=\"18\",pid=\"1\",comm=\"x\"";
  EXPECT_EQ("# TYPE usiw_device_rto_total counter\nusiw_device_rto_total" + device + "} 0\n" +
                "# TYPE usiw_device_tx_pkts_total counter\nusiw_device_tx_pkts_total" + device + "} 5\n" +
                "# TYPE usiw_qp_data_port gauge\nusiw_qp_data_port" + first + ",value=\"" +
                gauge_word("data_port", 3) + "\"} 1\n" +  //
                "# TYPE usiw_qp_srtt_ns gauge\nusiw_qp_srtt_ns" + first + "} 70\n" +
                "# TYPE usiw_qp_state gauge\nusiw_qp_state" + first + ",value=\"RTS\"} 1\nusiw_qp_state" + second +
                ",value=\"RTS\"} 1\n" +  //
                "# TYPE usiw_qp_tx_pkts_total counter\nusiw_qp_tx_pkts_total" + first + "} 5\nusiw_qp_tx_pkts_total" +
                second + "} 6\n",
            stat_prometheus(s));
  EXPECT_EQ("", stat_prometheus({}));
  s[0].counters = {{"a b{}\n1", 1}};
  EXPECT_NE(std::string::npos, stat_prometheus(s).find("\nusiw_device_a_b___1_total{")) << stat_prometheus(s);
}

TEST(Stat, WhatWasNotMeasuredIsNotShown) {
  Sample s = sample(5, 0);
  s[0].qps[0].info.values = {{"srtt_ns", 0}, {"min_rtt_ns", 0}, {"cwnd", 0}};
  EXPECT_EQ("{'cwnd': 0}\n", python(stat_json(s), "d[0][\"qps\"][0][\"gauges\"]"));
  EXPECT_EQ(std::string::npos, stat_text(s).find("rtt_ns")) << stat_text(s);
}

TEST(Stat, PortsByName) {
  Sample s = sample(5, 70);
  s[0].qps[0].info.values = {{"data_port", 3}, {"data_port_why", 4}};
  EXPECT_NE(std::string::npos, stat_text(s).find("data_port shm  data_port_why rights\n")) << stat_text(s);
  EXPECT_EQ("{'data_port': 'shm', 'data_port_why': 'rights'}\n", python(stat_json(s), "d[0][\"qps\"][0][\"gauges\"]"));
  s[0].qps[0].info.values = {{"data_port", 77}};  // the process's word, where it has told the module nothing
  EXPECT_EQ("?\n", python(stat_json(s), "d[0][\"qps\"][0][\"gauges\"][\"data_port\"]"));
}

TEST(Stat, HostileNames) {
  std::string name;
  for (int c = 1; c < 256; ++c) name += static_cast<char>(c);
  EXPECT_EQ("True\n", python(stat_json(sample(1, 1, name)),
                             "d[0][\"qps\"][0][\"comm\"] == \"\".join(map(chr, range(1, 256)))"));
  const std::string text = stat_text(sample(1, 1, "\33[2J\nqp 1"));
  EXPECT_NE(std::string::npos, text.find("comm ?[2J?qp 1\n")) << text;
}

TEST(Stat, DifferenceOfCountersNotOfGauges) {
  const Sample d = difference(sample(12, 50), sample(5, 70));
  EXPECT_EQ(7u, d[0].counters[0].second);
  EXPECT_EQ((Values{{"tx_pkts", 7}, {"srtt_ns", 50}}), d[0].qps[0].info.values);
  // A process that turns its counters back, and a QP that is new.
  EXPECT_EQ(0u, difference(sample(5, 1), sample(12, 1))[0].qps[0].info.values[0].second);
  Sample other = sample(5, 70);
  other[0].qps[0].info.pid = 1;
  EXPECT_EQ(12u, difference(sample(12, 1), other)[0].qps[0].info.values[0].second);
  EXPECT_EQ(12u, difference(sample(12, 1), {})[0].counters[0].second);
}

TEST(Stat, BadArguments) {
  for (std::vector<std::string> words : {std::vector<std::string>{"-x"},
                                         {"qp"},
                                         {"qp", "x"},
                                         {"qp", ""},
                                         {"qp", "99999999999"},
                                         {"-i", "0"},
                                         {"-i", "nan"},
                                         {"-c", "0"},
                                         {"a", "b"},
                                         {"-i"},
                                         {"--jso=1"},
                                         {"--", "-j", "x"}}) {
    std::string command = "stat";
    std::vector<char*> arguments = {command.data()};
    for (std::string& w : words) arguments.push_back(w.data());
    EXPECT_EQ(2, stat_command(arguments)) << words[0];
  }
}

}  // namespace
}  // namespace usiw::tools
