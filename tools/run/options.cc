// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "options.h"

#include <cctype>
#include <cstdlib>
#include <cstring>

#include "host.h"
#include "settings.h"

namespace usiw::run {
namespace {

bool is_device_name(const std::string& text) {
  if (text.empty() || text.size() > 60) return false;
  for (unsigned char c : text)
    if (isalnum(c) == 0 && c != '_' && c != '-' && c != '.') return false;
  return isalpha(static_cast<unsigned char>(text[0])) != 0;
}

/// "50us", "2ms", "1s" in microseconds; empty if it is something else.
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

/// Adds what a fault option says to the list for the provider. Empty, or what is wrong.
std::string add_fault(const std::string& option, const std::string& value, std::string& faults) {
  std::string key = option.substr(2), text = value;
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
         "  --check            say what is here, what would be used, and what is missing; connect by each port\n"
         "  --device NAME      name of the RDMA device that the program sees (usiw0)\n"
         "  --address ADDR     source address of connections whose source the program leaves open\n"
         "  --port KIND        how data goes: auto (the default), by shared memory to this user's processes on this\n"
         "                     host, by raw packets to other hosts where that is permitted (CAP_NET_RAW) and the\n"
         "                     route leaves by the device's interface, else by UDP sockets; shm, the same without\n"
         "                     raw packets; socket, by UDP sockets only; packet, as auto, or not at all without the "
         "right\n"
         "\n"
         "A bad fabric, to see what the program makes of it. What happens to the n-th datagram that a process\n"
         "sends depends on the seed and on n only.\n"
         "  --loss P           lose datagrams with this probability, 0 to 1\n"
         "  --reorder P        let datagrams be overtaken with this probability\n"
         "  --delay TIME       hold every datagram back: 50us, 2ms, 1s\n"
         "  --seed N           another sequence of the above (0)\n"
         "  --fail-wr N        let the process's n-th send work request fail (LOC_PROT_ERR)\n"
         "  --kill-after N     end each connection when this end has sent so many bytes\n"
         "\n"
         "  -h, --help         this text\n"
         "  --version          the version\n"
         "\n"
         "Variables of the environment; usiw(7) describes them:\n"
         "  USIW_PORT          as --port, where that is absent\n"
         "  USIW_PEER_TIMEOUT  seconds to wait for a silent peer\n"
         "  USIW_PROGRESS      adaptive, or thread: the progress thread polls all the time\n"
         "  USIW_TRACE         directory for a trace from the start (usiw help trace)\n"
         "  USIW_FAULTS        set by the options for a bad fabric\n";
}

std::string parse(int argc, char** argv, Options& out) {
  int i = 1;
  std::string faults;
  for (; i < argc && argv[i][0] == '-'; i++) {
    std::string option = argv[i], value;
    if (option == "--") {
      i++;
      break;
    }
    if (option == "--check" || option == "--help" || option == "-h") {
      (option == "--check" ? out.check : out.help) = true;
      continue;
    }
    if (option == "--version") {
      out.version = true;
      continue;
    }
    size_t equals = option.find('=');
    bool known = false;
    for (const char* name : {"--device", "--address", "--port", "--loss", "--reorder", "--delay", "--seed",
                             "--fail-wr", "--kill-after"})
      known = known || option.substr(0, equals) == name;
    if (!known) return "unknown option " + option;
    if (equals != std::string::npos) {
      value = option.substr(equals + 1);
      option.resize(equals);
    } else {
      if (++i >= argc) return option + " needs a value";
      value = argv[i];
    }
    if (option == "--device") {
      if (!is_device_name(value)) return "--device: a name of letters, digits, '_', '-' and '.', not '" + value + "'";
      out.environment.emplace_back(kDeviceVariable, value);
    } else if (option == "--port") {
      PortWish wish;
      if (!parse_port_wish(value, wish)) return std::string("--port: ") + kPortNames + ", not '" + value + "'";
      out.environment.emplace_back(kRunPortVariable, value);
    } else if (option != "--address") {
      if (std::string wrong = add_fault(option, value, faults); !wrong.empty()) return wrong;
    } else {
      if (Endpoint e; !parse_address(value, e)) return "--address: an IPv4 or IPv6 address, not '" + value + "'";
      out.environment.emplace_back(kAddressVariable, value);
    }
  }
  if (!faults.empty()) out.environment.emplace_back(kFaultsVariable, faults);
  if (i < argc) out.program = argv + i;
  if (out.program == nullptr && !out.check && !out.help && !out.version) return "which program? (usiw-run --help)";
  return {};
}

}  // namespace usiw::run
