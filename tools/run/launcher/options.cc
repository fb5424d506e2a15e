// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "tools/run/launcher/options.h"

#include <cctype>
#include <cstdlib>
#include <cstring>

#include "tools/arguments.h"
#include "tools/run/host/host.h"
#include "tools/run/host/settings.h"

namespace usiw::run {
namespace {

bool is_device_name(const std::string& text) {
  if (text.empty() || text.size() > 60) return false;
  for (unsigned char c : text)
    if (isalnum(c) == 0 && c != '_' && c != '-' && c != '.') return false;
  return isalpha(static_cast<unsigned char>(text[0])) != 0;
}

/// Converts a time such as "50us", "2ms" or "1s" to microseconds. Returns an empty string if @p text is no time of up
/// to 60 s.
std::string microseconds(const std::string& text) {
  char* unit = nullptr;
  double value = strtod(text.c_str(), &unit);
  double scale = strcmp(unit, "us") == 0 ? 1 : strcmp(unit, "ms") == 0 ? 1e3 : strcmp(unit, "s") == 0 ? 1e6 : 0;
  if (unit == text.c_str() || scale == 0 || !(value >= 0) || value * scale > 60e6) return {};
  return std::to_string(value * scale);
}

bool is_probability(const std::string& text) {
  char* end = nullptr;
  double value = strtod(text.c_str(), &end);
  return !text.empty() && *end == '\0' && value >= 0 && value <= 1;
}

bool is_count(const std::string& text) {
  return !text.empty() && text.size() < 19 && text.find_first_not_of("0123456789") == std::string::npos;
}

using tools::kLong;

/// The options of usiw-run. Those with the letter 'f' describe faults, which the provider makes.
constexpr option kNames[] = {{"check", no_argument, nullptr, kLong + 'c'},
                             {"device", required_argument, nullptr, kLong + 'd'},
                             {"address", required_argument, nullptr, kLong + 'a'},
                             {"port", required_argument, nullptr, kLong + 'p'},
                             {"face", required_argument, nullptr, kLong + 'F'},
                             {"loss", required_argument, nullptr, kLong + 'f'},
                             {"reorder", required_argument, nullptr, kLong + 'f'},
                             {"delay", required_argument, nullptr, kLong + 'f'},
                             {"seed", required_argument, nullptr, kLong + 'f'},
                             {"fail-wr", required_argument, nullptr, kLong + 'f'},
                             {"kill-after", required_argument, nullptr, kLong + 'f'},
                             {"help", no_argument, nullptr, kLong + 'h'},
                             {"version", no_argument, nullptr, kLong + 'V'},
                             {}};

/// Adds a fault option to the list for the provider. Returns an empty string, or why @p value is wrong.
std::string add_fault(std::string key, const std::string& value, std::string& faults) {
  const std::string option = "--" + key;
  std::string text = value;
  if (key == "delay") {
    key = "delay-us";
    text = microseconds(value);
    if (text.empty()) return "--delay: a time of up to 60s like 50us or 2ms, not '" + value + "'";
  } else if (key == "loss" || key == "reorder") {
    if (!is_probability(value)) return option + ": a probability from 0 to 1, not '" + value + "'";
  } else if (!is_count(value)) {
    return option + ": a whole number, not '" + value + "'";
  }
  faults += (faults.empty() ? "" : ",") + key + "=" + text;
  return {};
}

}  // namespace

const char* usage() {
  return "usage: usiw-run [OPTION...] PROGRAM [ARGUMENT...]\n"
         "       usiw-run --check\n"
         "Runs a program that uses RDMA verbs or rdma_cm without any RDMA support of the kernel.\n"
         "\n"
         "  --check            show what this host has and what would be used, and connect by each port\n"
         "  --device NAME      name of the RDMA device that the program sees (usiw0)\n"
         "  --address ADDR     source address of connections whose program names none\n"
         "  --port KIND        how data travels:\n"
         "                     auto    shared memory to this user's processes on this host; raw packets to other "
         "hosts\n"
         "                             if they are permitted (CAP_NET_RAW) and the route leaves by the device's\n"
         "                             interface; UDP sockets to all others (the default)\n"
         "                     shm     like auto, without raw packets\n"
         "                     socket  UDP sockets only\n"
         "                     packet  like auto, but without CAP_NET_RAW the program is not started\n"
         "  --face KIND        what the program sees:\n"
         "                     iwarp   an RNIC, which connects by rdma_cm (the default)\n"
         "                     roce    a RoCE device. Programs may also connect by GID and QP number\n"
         "\n"
         "Options that imitate a bad fabric. The fate of the n-th datagram that a process sends depends on the seed\n"
         "and on n only.\n"
         "  --loss P           lose datagrams with this probability, 0 to 1\n"
         "  --reorder P        let later datagrams overtake a datagram with this probability, 0 to 1\n"
         "  --delay TIME       delay each datagram: 50us, 2ms, 1s\n"
         "  --seed N           seed of loss and order (0)\n"
         "  --fail-wr N        fail the n-th send work request of the process (LOC_PROT_ERR)\n"
         "  --kill-after N     end each connection after this end has sent N bytes\n"
         "\n"
         "  -h, --help         this text\n"
         "  --version          the version\n"
         "\n"
         "Variables of the environment; usiw(7) describes them:\n"
         "  USIW_PORT          like --port, which overrides it\n"
         "  USIW_FACE          like --face, which overrides it\n"
         "  USIW_PEER_TIMEOUT  seconds to wait for a silent peer\n"
         "  USIW_RETRY_TIME    the same on the RoCE face, in place of timeout and retry_cnt\n"
         "  USIW_PROGRESS      adaptive; or thread, so that the progress thread polls all the time\n"
         "  USIW_TRACE         directory for traces from the start of the program (usiw help trace)\n"
         "  USIW_FAULTS        set by the options for a bad fabric\n";
}

std::string parse(int argc, char** argv, Options& out) {
  std::string faults, wrong;
  for (int letter, index = 0; (letter = tools::next_option(argc, argv, "+:h", kNames, wrong, &index)) != -1;) {
    const std::string value = optarg != nullptr ? optarg : "";
    PortWish requested;
    FaceKind face;
    Endpoint address;
    if (letter == 'c') out.check = true;
    if (letter == 'h') out.help = true;
    if (letter == 'V') out.version = true;
    if (letter == 'f') wrong = add_fault(kNames[index].name, value, faults);
    if (letter == 'd' && !is_device_name(value))
      wrong = "--device: a name of letters, digits, '_', '-' and '.', not '" + value + "'";
    if (letter == 'p' && !parse_port_wish(value, requested))
      wrong = std::string("--port: ") + kPortNames + ", not '" + value + "'";
    if (letter == 'F' && !parse_face(value, face)) wrong = "--face: iwarp or roce, not '" + value + "'";
    if (letter == 'a' && !parse_address(value, address))
      wrong = "--address: an IPv4 or IPv6 address, not '" + value + "'";
    if (!wrong.empty()) return wrong;
    if (letter == 'd') out.environment.emplace_back(kDeviceVariable, value);
    if (letter == 'p') out.environment.emplace_back(kRunPortVariable, value);
    if (letter == 'F') out.environment.emplace_back(kFaceVariable, value);
    if (letter == 'a') out.environment.emplace_back(kAddressVariable, value);
  }
  if (!faults.empty()) out.environment.emplace_back(kFaultsVariable, faults);
  if (optind < argc) out.program = argv + optind;
  if (out.program == nullptr && !out.check && !out.help && !out.version)
    return "no program is named; see usiw-run --help";
  return {};
}

}  // namespace usiw::run
