// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "tools/trace_reader.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

namespace usiw::tools {
namespace {

constexpr size_t kFlowsAt = kTraceHeaderBytes;
constexpr size_t kEventsAt = kFlowsAt + kTraceFlows * sizeof(TraceFlow);

template <typename T>
T load(std::span<const std::byte> file, size_t at) {
  T value;
  std::memcpy(&value, file.data() + at, sizeof value);
  return value;
}

uint64_t number_at(std::span<const std::byte> file, size_t at) {
  return load<uint64_t>(file, at + offsetof(TraceEvent, number));
}

bool is_packet(TraceKind kind) { return kind == TraceKind::kTx || kind == TraceKind::kRx; }

/// Checks the header of a file of @p file_bytes bytes. Returns "" or what is wrong.
std::string check_header(const TraceHeader& h, size_t file_bytes) {
  if (h.magic != kTraceMagic) return "not a trace of usiw";
  if (h.event_bytes != sizeof(TraceEvent) || h.flow_bytes != sizeof(TraceFlow) || h.flows != kTraceFlows)
    return "a trace of another version of usiw";
  if (!std::has_single_bit(h.events) || h.events < kTraceMinEvents || h.events > kTraceMaxEvents ||
      file_bytes < trace_bytes(h.events))
    return "the header of the trace is damaged";
  return "";
}

std::string read_whole(int fd, std::vector<std::byte>& out) {
  size_t done = 0;
  while (done < out.size()) {
    const ssize_t n = pread(fd, out.data() + done, out.size() - done, static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return strerror(errno);
    if (n == 0) return "the file has become shorter";
    done += static_cast<size_t>(n);
  }
  return "";
}

}  // namespace

std::string parse_trace(std::span<const std::byte> first, std::span<const std::byte> middle,
                        std::span<const std::byte> last, Trace& out) {
  const size_t bytes = std::min({first.size(), middle.size(), last.size()});
  if (bytes < kEventsAt) return "not a trace of usiw";
  const auto header = load<TraceHeader>(middle, 0);
  if (std::string why = check_header(header, bytes); !why.empty()) return why;

  out = {};
  const auto* name = header.device;
  out.device.assign(name, std::find(name, name + sizeof header.device, '\0'));
  out.pid = header.pid;
  out.on = header.on != 0;
  out.wall_ns = header.wall_ns;
  for (uint32_t i = 0; i < kTraceFlows; ++i) {
    const size_t at = kFlowsAt + i * sizeof(TraceFlow);
    const auto flow = load<TraceFlow>(middle, at);
    const size_t id_at = at + offsetof(TraceFlow, id);
    if (flow.id != 0 && flow.id % kTraceFlows == i && load<uint32_t>(first, id_at) == flow.id &&
        load<uint32_t>(last, id_at) == flow.id)
      out.flows.emplace(flow.id, flow);
  }

  uint64_t newest = 0;
  for (uint32_t i = 0; i < header.events; ++i) {
    const size_t at = kEventsAt + i * sizeof(TraceEvent);
    auto event = load<TraceEvent>(middle, at);
    if (event.number == 0 || number_at(first, at) != event.number || number_at(last, at) != event.number) continue;
    --event.number;
    if ((event.number & (header.events - 1)) != i || event.kind <= TraceKind::kNone || event.kind >= TraceKind::kEnd)
      continue;
    if (is_packet(event.kind) && (event.kept > kTraceKept || event.kept > event.len || event.len > UINT16_MAX))
      continue;
    newest = std::max(newest, event.number);
    out.events.push_back(event);
  }
  // The ring has space for the newest header.events events only. A file with older ones is damaged or forged.
  std::erase_if(out.events, [&](const TraceEvent& e) { return newest - e.number >= header.events; });
  std::sort(out.events.begin(), out.events.end(),
            [](const TraceEvent& a, const TraceEvent& b) { return a.number < b.number; });
  return "";
}

std::string read_trace(int fd, Trace& out) {
  struct stat st;
  if (fstat(fd, &st) != 0) return strerror(errno);
  if (!S_ISREG(st.st_mode)) return "not a regular file";
  const auto size = static_cast<uint64_t>(st.st_size);
  if (size < kEventsAt || size > trace_bytes(kTraceMaxEvents)) return "not a trace of usiw";
  std::vector<std::byte> copies[3];
  for (auto& copy : copies) {
    copy.resize(size);
    if (std::string why = read_whole(fd, copy); !why.empty()) return why;
  }
  return parse_trace(copies[0], copies[1], copies[2], out);
}

}  // namespace usiw::tools
