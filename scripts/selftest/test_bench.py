# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""scripts/bench's parsing, statistics and output, by recorded outputs of the tools."""

import pytest

from benchlib import instructions, parse, results
from benchlib.ends import Failed

LAT = " #bytes #iterations t_min\n 64      500   7.41   1864.17   118.75   \t 299.64  \t398.93 \t\t1702.72 \t\t1864.17\n"
BW = " 64         500              34.92              4.09   \t\t   0.066969\n"
FI = "bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec\n" \
     "64k     500     =500     62m         3.75s     17.49    3748.04       0.00\n"
UCX = "|     Test     | # iterations | 50.0%ile |\n" \
      "                         500      0.633     1.306     1.307       46.73      46.75      765663      765663\n"


def test_each_tools_output():
    assert parse.perftest_lat(LAT, 64) == {"us": 118.75, "p99_us": 1702.72}
    assert parse.perftest_bw(BW, 64)["mb_s"] == pytest.approx(4.09 * 1.048576)
    assert parse.fi_pingpong(FI) == {"us": 3748.04, "mb_s": 17.49}
    assert parse.ucx_perftest(UCX, "lat") == {"us": 0.633}
    assert parse.ucx_perftest(UCX, "bw")["mb_s"] == pytest.approx(46.75 * 1.048576)
    assert parse.qperf("tcp_lat:\n    latency  =  11.5 us\nquit:\n") == {"us": 11.5}
    assert parse.qperf("tcp_bw:\n    bw  =  1.5 GB/sec\n") == {"mb_s": 1500}
    assert parse.callgrind_total("==7== Collected : 12345\n") == 12345


def test_output_without_a_figure_is_a_failure():
    for call in (lambda: parse.perftest_lat(LAT, 128), lambda: parse.perftest_bw(BW.replace("4.09", "0.00"), 64),
                 lambda: parse.fi_pingpong(""), lambda: parse.ucx_perftest("", "lat"), lambda: parse.qperf("no")):
        with pytest.raises(Failed):
            call()


def test_report_names_what_failed_and_what_is_missing(tmp_path):
    cell = results.Cell("lo, SEND", "a", "64 B", 64, "lat")
    gone = cell._replace(row="b")
    these = [results.Result(n, cell, results.OK, {"us": us}, "") for n, us in enumerate((3.0, 1.0, 2.0))]
    these += [results.Result(3, cell, results.FAILED, {}, "no answer"),
              results.Result(0, gone, results.MISSING, {}, "b is not installed")]
    text = results.markdown(these, [])
    assert "| a | 2.00 (1.00 to 3.00), 1 of 4 failed |" in text and "| b | missing |" in text
    assert "failed: lo, SEND, a, 64 B: no answer" in text and "missing: lo, SEND, b: b is not installed" in text
    results.write_csv(tmp_path / "c.csv", these)
    lines = (tmp_path / "c.csv").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 6 and lines[1] == '0,"lo, SEND",a,64 B,64,lat,ok,3.0,,,,,'


def test_instructions_beyond_the_noise_differ(tmp_path):
    path = tmp_path / "kept"
    path.write_text(instructions.written({"x": 1000}), encoding="ascii")
    assert instructions.read(path) == {"x": 1000}
    assert not instructions.difference({"x": 1000}, {"x": 1010})[1]
    assert instructions.difference({"x": 1000}, {"x": 1100})[1] and instructions.difference({"x": 1000}, {})[1]
