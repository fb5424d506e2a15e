-- SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
--
-- Wireshark dissector of usiw's wire protocol (docs/protocol.md): TRP and its handshake over UDP,
-- DDP (RFC 5041), RDMAP (RFC 5040).
--
--     tshark -X lua_script:usiw.lua -r wire.pcap
--
-- Or copy this file into Wireshark's folder of personal Lua plugins. Programs may use any UDP port,
-- so the dissector recognises datagrams by their format. Use "Decode As..." for datagrams that it
-- does not recognise.

local trp = Proto("usiw", "usiw TRP")

-- ---- Names -----------------------------------------------------------------------------

local DATA, REQ, ACCEPT, REJECT, SHUTDOWN, SACK, CONFIRM, RESET = 0, 1, 2, 3, 4, 5, 6, 7
local OPCODES = { [0] = "DATA", "REQ", "ACCEPT", "REJECT", "SHUTDOWN", "SACK", "CONFIRM", "RESET" }
local F_ACK_REQ, F_NOT_READY, F_RETRANS, F_PENDING, F_STRAY = 0x001, 0x002, 0x004, 0x008, 0x010
local FLAGS = {
  { F_ACK_REQ, "ACK_REQ" }, { F_NOT_READY, "NOT_READY" }, { F_RETRANS, "RETRANS" },
  { F_PENDING, "PENDING" }, { F_STRAY, "STRAY" }, { 0x200, "MERGED" },
  { 0x400, "SKIP" }, { 0x800, "SKIPPED" },
}
local F_TELLS_CE, CE_COUNT, F_MERGED, F_SKIP, F_SKIPPED = 0x020, 0x1c0, 0x200, 0x400, 0x800
local FLAGS_OF = {
  [DATA] = 0xfe5, [REQ] = 0, [ACCEPT] = F_PENDING, [REJECT] = 0, [SHUTDOWN] = 0xbe5, [SACK] = 0xbe7,
  [CONFIRM] = 0, [RESET] = F_STRAY,
}
local REASONS = {
  [0] = "user", "no listener", "version", "features", "malformed", "no resource", "MTU",
}
local WRITE, READ_REQ, READ_RESP, SEND, SEND_INV, SEND_SE, SEND_SE_INV, TERMINATE = 0, 1, 2, 3, 4, 5, 6, 7
local IMM, IMM_SE, ATOMIC_REQ, ATOMIC_RESP, SEND_IMM, SEND_SE_IMM = 8, 9, 10, 11, 12, 13
local RDMAP = {
  [0] = "WRITE", "READ_REQ", "READ_RESP", "SEND", "SEND_INV", "SEND_SE", "SEND_SE_INV", "TERMINATE",
  "IMM", "IMM_SE", "ATOMIC_REQ", "ATOMIC_RESP", "SEND_IMM", "SEND_SE_IMM",
}
local QN_OF = {
  [READ_REQ] = 1, [SEND] = 0, [SEND_INV] = 0, [SEND_SE] = 0, [SEND_SE_INV] = 0, [TERMINATE] = 2,
  [IMM] = 0, [IMM_SE] = 0, [ATOMIC_REQ] = 1, [ATOMIC_RESP] = 3, [SEND_IMM] = 0, [SEND_SE_IMM] = 0,
}
local QUEUES = { [0] = "SEND", "READ request", "Terminate", "Atomic response" }
local ATOMICS = { [0] = "FetchAdd", [2] = "CmpSwap" }
local LAYERS = { [0] = "RDMAP", "DDP", "LLP" }
-- Keys: layer << 12 | error type << 8 | error code (RFC 5040 figure 11; layer 1: RFC 5041)
local ERRORS = {
  [0x0000] = "local catastrophic error",
  [0x0100] = "invalid STag", [0x0101] = "base or bounds", [0x0102] = "access rights",
  [0x0103] = "STag not associated", [0x0104] = "TO wrap",
  [0x0109] = "STag cannot be invalidated",
  [0x0205] = "RDMAP version", [0x0206] = "unexpected opcode", [0x0207] = "catastrophic, stream",
  [0x1100] = "invalid STag", [0x1101] = "base or bounds", [0x1102] = "STag not associated",
  [0x1103] = "TO wrap", [0x1104] = "DDP version",
  [0x1201] = "invalid queue", [0x1202] = "no buffer", [0x1203] = "MSN out of range",
  [0x1204] = "invalid offset", [0x1205] = "message too long", [0x1206] = "DDP version",
}

local TRP_BYTES, TAGGED_BYTES, UNTAGGED_BYTES, READ_BYTES, PARAMS_BYTES = 14, 14, 18, 28, 16
local IMM_BYTES, ATOMIC_REQ_BYTES, ATOMIC_RESP_BYTES = 8, 52, 12
local MAX_WINDOW, MAX_PRIVATE_DATA, WIRE_VERSION = 1024, 512, 1

-- ---- Fields ----------------------------------------------------------------------------

local f = {
  psn = ProtoField.uint32("usiw.psn", "PSN", base.HEX),
  ack_psn = ProtoField.uint32("usiw.ack_psn", "ACK PSN", base.HEX),
  opcode = ProtoField.uint16("usiw.opcode", "Opcode", base.DEC, OPCODES, 0xf000),
  flags = ProtoField.uint16("usiw.flags", "Flags", base.HEX, nil, 0x0fff),
  ack_req = ProtoField.bool("usiw.flags.ack_req", "Acknowledge at once", 16, nil, F_ACK_REQ),
  not_ready = ProtoField.bool("usiw.flags.not_ready", "Receiver not ready", 16, nil, F_NOT_READY),
  retrans = ProtoField.bool("usiw.flags.retrans", "Retransmission", 16, nil, F_RETRANS),
  pending = ProtoField.bool("usiw.flags.pending", "Not decided yet", 16, nil, F_PENDING),
  tells_ce = ProtoField.bool("usiw.flags.tells_ce", "Counts ECN CE", 16, nil, F_TELLS_CE),
  merged = ProtoField.bool("usiw.flags.merged", "Accepts GRO aggregates", 16, nil, F_MERGED),
  skip = ProtoField.bool("usiw.flags.skip", "Skip the message if no receive is posted", 16, nil, F_SKIP),
  skipped = ProtoField.bool("usiw.flags.skipped", "A message is skipped", 16, nil, F_SKIPPED),
  ce = ProtoField.uint16("usiw.ce", "ECN CE count", base.DEC, nil, CE_COUNT),
  stray = ProtoField.bool("usiw.flags.stray", "Answer to a stray datagram", 16, nil, F_STRAY),
  credit = ProtoField.uint16("usiw.credit", "Credit", base.DEC),
  echo = ProtoField.uint16("usiw.echo", "Time stamp", base.DEC),

  bitmap = ProtoField.bytes("usiw.sack.bitmap", "Bitmap"),
  have = ProtoField.string("usiw.sack.have", "Arrived"),
  missing = ProtoField.uint32("usiw.sack.missing", "Missing datagrams", base.DEC),

  version = ProtoField.uint8("usiw.cm.version", "Version", base.DEC),
  reserved = ProtoField.uint8("usiw.cm.reserved", "Reserved", base.HEX),
  pd_len = ProtoField.uint16("usiw.cm.pd_len", "Private data length", base.DEC),
  features = ProtoField.uint32("usiw.cm.features", "Features", base.HEX),
  ird = ProtoField.uint16("usiw.cm.ird", "IRD", base.DEC),
  ord = ProtoField.uint16("usiw.cm.ord", "ORD", base.DEC),
  mtu = ProtoField.uint16("usiw.cm.mtu", "MTU", base.DEC),
  window = ProtoField.uint16("usiw.cm.window", "Window", base.DEC),
  reason = ProtoField.uint8("usiw.cm.reason", "Reason", base.DEC, REASONS),
  private_data = ProtoField.bytes("usiw.cm.private_data", "Private data"),

  tagged = ProtoField.bool("usiw.ddp.tagged", "Tagged", 8, nil, 0x80),
  last = ProtoField.bool("usiw.ddp.last", "Last", 8, nil, 0x40),
  dv = ProtoField.uint8("usiw.ddp.version", "DDP version", base.DEC, nil, 0x03),
  rv = ProtoField.uint8("usiw.rdmap.version", "RDMAP version", base.DEC, nil, 0xc0),
  rdmap = ProtoField.uint8("usiw.rdmap.opcode", "RDMAP opcode", base.DEC, RDMAP, 0x0f),
  stag = ProtoField.uint32("usiw.ddp.stag", "STag", base.HEX),
  to = ProtoField.uint64("usiw.ddp.to", "Tagged offset", base.HEX),
  inv_stag = ProtoField.uint32("usiw.ddp.inv_stag", "STag to invalidate, or immediate data", base.HEX),
  qn = ProtoField.uint32("usiw.ddp.qn", "Queue", base.DEC, QUEUES),
  msn = ProtoField.uint32("usiw.ddp.msn", "MSN", base.DEC),
  mo = ProtoField.uint32("usiw.ddp.mo", "Message offset", base.DEC),
  length = ProtoField.uint32("usiw.ddp.length", "Payload length", base.DEC),
  payload = ProtoField.bytes("usiw.ddp.payload", "Payload"),

  sink_stag = ProtoField.uint32("usiw.read.sink_stag", "Sink STag", base.HEX),
  sink_to = ProtoField.uint64("usiw.read.sink_to", "Sink offset", base.HEX),
  read_size = ProtoField.uint32("usiw.read.size", "Size", base.DEC),
  src_stag = ProtoField.uint32("usiw.read.src_stag", "Source STag", base.HEX),
  src_to = ProtoField.uint64("usiw.read.src_to", "Source offset", base.HEX),

  imm = ProtoField.uint32("usiw.imm.data", "Immediate data", base.HEX),
  imm_length = ProtoField.uint32("usiw.imm.length", "Bytes of the WRITE", base.DEC),

  atomic_op = ProtoField.uint32("usiw.atomic.op", "Operation", base.DEC, ATOMICS, 0x0f),
  atomic_id = ProtoField.uint32("usiw.atomic.id", "Request identifier", base.DEC),
  atomic_stag = ProtoField.uint32("usiw.atomic.stag", "STag", base.HEX),
  atomic_to = ProtoField.uint64("usiw.atomic.to", "Tagged offset", base.HEX),
  add_swap = ProtoField.uint64("usiw.atomic.add_swap", "Add or swap data", base.HEX),
  add_swap_mask = ProtoField.uint64("usiw.atomic.add_swap_mask", "Add or swap mask", base.HEX),
  compare = ProtoField.uint64("usiw.atomic.compare", "Compare data", base.HEX),
  compare_mask = ProtoField.uint64("usiw.atomic.compare_mask", "Compare mask", base.HEX),
  found_id = ProtoField.uint32("usiw.found.id", "Original request identifier", base.DEC),
  found = ProtoField.uint64("usiw.found.value", "Original remote value", base.HEX),

  layer = ProtoField.uint8("usiw.term.layer", "Layer", base.DEC, LAYERS, 0xf0),
  etype = ProtoField.uint8("usiw.term.etype", "Error type", base.DEC, nil, 0x0f),
  ecode = ProtoField.uint8("usiw.term.ecode", "Error code", base.HEX),
  seg_len = ProtoField.uint16("usiw.term.seg_len", "DDP segment length", base.DEC),
  term_ddp = ProtoField.bytes("usiw.term.ddp", "DDP header at fault"),
  term_read = ProtoField.bytes("usiw.term.read", "READ request at fault"),
}
do
  local list = {}
  for _, field in pairs(f) do list[#list + 1] = field end
  trp.fields = list
end

local e = {
  retrans = ProtoExpert.new("usiw.expert.retrans", "Retransmission", expert.group.SEQUENCE, expert.severity.NOTE),
  not_ready = ProtoExpert.new("usiw.expert.not_ready", "Receiver not ready", expert.group.SEQUENCE,
                              expert.severity.WARN),
  terminate = ProtoExpert.new("usiw.expert.terminate", "Terminate", expert.group.RESPONSE_CODE,
                              expert.severity.ERROR),
  reset = ProtoExpert.new("usiw.expert.reset", "Connection reset", expert.group.RESPONSE_CODE,
                          expert.severity.WARN),
  malformed = ProtoExpert.new("usiw.expert.malformed", "Malformed", expert.group.MALFORMED, expert.severity.ERROR),
}
trp.experts = { e.retrans, e.not_ready, e.terminate, e.reset, e.malformed }

-- ---- Parts of a datagram. `tvb` has the captured bytes; `length` is the length when sent. -----

local function malformed(tree, text) tree:add_proto_expert_info(e.malformed, text) end

local function sack_text(tvb, at, bits)
  local text, missing = {}, 0
  for i = 0, bits - 1 do
    local byte = at + math.floor(i / 8)
    if byte >= tvb:len() then break end
    local bit_set = math.floor(tvb(byte, 1):uint() / 2 ^ (i % 8)) % 2
    text[#text + 1] = bit_set
    if bit_set == 0 then missing = missing + 1 end
  end
  return table.concat(text), missing
end

local function dissect_sack(tvb, length, tree, span)
  if span > MAX_WINDOW or length - TRP_BYTES ~= math.floor((span + 7) / 8) then
    malformed(tree, "bitmap does not fit the PSNs")
    return ""
  end
  if span == 0 or tvb:len() == TRP_BYTES then return "" end
  local have, missing = sack_text(tvb, TRP_BYTES, span)
  tree:add(f.bitmap, tvb(TRP_BYTES))
  tree:add(f.have, tvb(TRP_BYTES), have)
  tree:add(f.missing, tvb(TRP_BYTES), missing)
  return " missing=" .. missing
end

local function private_data(tvb, length, tree, at, pd_len)
  if pd_len > MAX_PRIVATE_DATA or at + pd_len ~= length then malformed(tree, "private data length") end
  if tvb:len() > at then tree:add(f.private_data, tvb(at)) end
end

local function dissect_params(tvb, length, tree)
  if tvb:len() < TRP_BYTES + PARAMS_BYTES then
    malformed(tree, "parameters cut short")
    return ""
  end
  local at = TRP_BYTES
  tree:add(f.version, tvb(at, 1))
  tree:add(f.reserved, tvb(at + 1, 1))
  tree:add(f.pd_len, tvb(at + 2, 2))
  tree:add(f.features, tvb(at + 4, 4))
  tree:add(f.ird, tvb(at + 8, 2))
  tree:add(f.ord, tvb(at + 10, 2))
  tree:add(f.mtu, tvb(at + 12, 2))
  tree:add(f.window, tvb(at + 14, 2))
  private_data(tvb, length, tree, at + PARAMS_BYTES, tvb(at + 2, 2):uint())
  return string.format(" ird=%d ord=%d mtu=%d", tvb(at + 8, 2):uint(), tvb(at + 10, 2):uint(),
                       tvb(at + 12, 2):uint())
end

local function dissect_reject(tvb, length, tree)
  if tvb:len() < TRP_BYTES + 4 then
    malformed(tree, "REJECT cut short")
    return ""
  end
  local reason = tvb(TRP_BYTES + 1, 1):uint()
  tree:add(f.version, tvb(TRP_BYTES, 1))
  tree:add(f.reason, tvb(TRP_BYTES + 1, 1))
  tree:add(f.pd_len, tvb(TRP_BYTES + 2, 2))
  private_data(tvb, length, tree, TRP_BYTES + 4, tvb(TRP_BYTES + 2, 2):uint())
  return " " .. (REASONS[reason] or reason)
end

local function dissect_read_request(tvb, at, tree)
  if tvb:len() < at + READ_BYTES then return "" end
  local sub = tree:add(trp, tvb(at, READ_BYTES), "READ request")
  sub:add(f.sink_stag, tvb(at, 4))
  sub:add(f.sink_to, tvb(at + 4, 8))
  sub:add(f.read_size, tvb(at + 12, 4))
  sub:add(f.src_stag, tvb(at + 16, 4))
  sub:add(f.src_to, tvb(at + 20, 8))
  return string.format(" size=%d", tvb(at + 12, 4):uint())
end

local function dissect_immediate(tvb, at, tree)
  if tvb:len() < at + IMM_BYTES then return "" end
  local sub = tree:add(trp, tvb(at, IMM_BYTES), "Immediate data")
  sub:add(f.imm, tvb(at, 4))
  sub:add(f.imm_length, tvb(at + 4, 4))
  return string.format(" imm=0x%08x", tvb(at, 4):uint())
end

local function dissect_atomic_request(tvb, at, tree)
  if tvb:len() < at + ATOMIC_REQ_BYTES then return "" end
  local sub = tree:add(trp, tvb(at, ATOMIC_REQ_BYTES), "Atomic request")
  sub:add(f.atomic_op, tvb(at, 4))
  sub:add(f.atomic_id, tvb(at + 4, 4))
  sub:add(f.atomic_stag, tvb(at + 8, 4))
  sub:add(f.atomic_to, tvb(at + 12, 8))
  sub:add(f.add_swap, tvb(at + 20, 8))
  sub:add(f.add_swap_mask, tvb(at + 28, 8))
  sub:add(f.compare, tvb(at + 36, 8))
  sub:add(f.compare_mask, tvb(at + 44, 8))
  return " " .. (ATOMICS[tvb(at + 3, 1):bitfield(4, 4)] or "?")
end

local function dissect_atomic_response(tvb, at, tree)
  if tvb:len() < at + ATOMIC_RESP_BYTES then return "" end
  local sub = tree:add(trp, tvb(at, ATOMIC_RESP_BYTES), "Atomic response")
  sub:add(f.found_id, tvb(at, 4))
  sub:add(f.found, tvb(at + 4, 8))
  return string.format(" id=%d", tvb(at, 4):uint())
end

local function dissect_terminate(tvb, at, tree)
  if tvb:len() < at + 4 then return "" end
  local sub = tree:add(trp, tvb(at), "Terminate")
  local layer, etype, ecode = tvb(at, 1):bitfield(0, 4), tvb(at, 1):bitfield(4, 4), tvb(at + 1, 1):uint()
  sub:add(f.layer, tvb(at, 1))
  sub:add(f.etype, tvb(at, 1))
  sub:add(f.ecode, tvb(at + 1, 1))
  local has_len, has_ddp, has_read = tvb(at + 2, 1):bitfield(0), tvb(at + 2, 1):bitfield(1), tvb(at + 2, 1):bitfield(2)
  local text = string.format(" %s: %s", LAYERS[layer] or "?",
                             ERRORS[layer * 0x1000 + etype * 0x100 + ecode] or "unknown error")
  tree:add_proto_expert_info(e.terminate, "Terminate" .. text)
  at = at + 4
  if has_len == 1 and tvb:len() >= at + 2 then
    sub:add(f.seg_len, tvb(at, 2))
    at = at + 2
  end
  if has_ddp == 1 and tvb:len() > at then
    local n = tvb(at, 1):bitfield(0) == 1 and TAGGED_BYTES or UNTAGGED_BYTES
    if tvb:len() < at + n then return text end
    sub:add(f.term_ddp, tvb(at, n))
    at = at + n
  end
  if has_read == 1 and tvb:len() >= at + READ_BYTES then sub:add(f.term_read, tvb(at, READ_BYTES)) end
  return text
end

local function dissect_segment(tvb, length, tree)
  local at = TRP_BYTES
  if tvb:len() < at + TAGGED_BYTES then
    malformed(tree, "shorter than a DDP header")
    return ""
  end
  local tagged, last = tvb(at, 1):bitfield(0) == 1, tvb(at, 1):bitfield(1) == 1
  local opcode = tvb(at + 1, 1):bitfield(4, 4)
  local header = tagged and TAGGED_BYTES or UNTAGGED_BYTES
  if tvb:len() < at + header then
    malformed(tree, "shorter than a DDP header")
    return ""
  end
  local sub = tree:add(trp, tvb(at, header), "DDP, RDMAP")
  sub:add(f.tagged, tvb(at, 1))
  sub:add(f.last, tvb(at, 1))
  sub:add(f.dv, tvb(at, 1))
  sub:add(f.rv, tvb(at + 1, 1))
  sub:add(f.rdmap, tvb(at + 1, 1))
  local text = " " .. (RDMAP[opcode] or "?")
  if tagged then
    sub:add(f.stag, tvb(at + 2, 4))
    sub:add(f.to, tvb(at + 6, 8))
    text = text .. string.format(" stag=0x%08x", tvb(at + 2, 4):uint())
  else
    sub:add(f.inv_stag, tvb(at + 2, 4))
    sub:add(f.qn, tvb(at + 6, 4))
    sub:add(f.msn, tvb(at + 10, 4))
    sub:add(f.mo, tvb(at + 14, 4))
    text = text .. string.format(" msn=%d mo=%d", tvb(at + 10, 4):uint(), tvb(at + 14, 4):uint())
  end
  at = at + header
  sub:add(f.length, length - at):set_generated()
  if tvb:len() > at then
    tree:add(f.payload, tvb(at))
    if opcode == READ_REQ then text = text .. dissect_read_request(tvb, at, tree) end
    if opcode == IMM or opcode == IMM_SE then text = text .. dissect_immediate(tvb, at, tree) end
    if opcode == ATOMIC_REQ then text = text .. dissect_atomic_request(tvb, at, tree) end
    if opcode == ATOMIC_RESP then text = text .. dissect_atomic_response(tvb, at, tree) end
    if opcode == TERMINATE then text = text .. dissect_terminate(tvb, at, tree) end
  end
  return text .. " len=" .. (length - at) .. (last and " L" or "")
end

-- ---- The datagram ---------------------------------------------------------------------------

local function flag_text(flags)
  local names = {}
  for _, flag in ipairs(FLAGS) do
    if math.floor(flags / flag[1]) % 2 == 1 then names[#names + 1] = flag[2] end
  end
  return #names == 0 and "" or "[" .. table.concat(names, "|") .. "]"
end

function trp.dissector(tvb, pinfo, root)
  local length = tvb:reported_len()
  if tvb:len() < TRP_BYTES then return 0 end
  pinfo.cols.protocol = "usiw"
  local tree = root:add(trp, tvb())
  local opcode, flags = tvb(8, 2):bitfield(0, 4), tvb(8, 2):bitfield(4, 12)
  local psn, ack_psn = tvb(0, 4):uint(), tvb(4, 4):uint()
  tree:add(f.psn, tvb(0, 4))
  tree:add(f.ack_psn, tvb(4, 4))
  tree:add(f.opcode, tvb(8, 2))
  local sub = tree:add(f.flags, tvb(8, 2))
  for _, flag in ipairs({ f.ack_req, f.not_ready, f.retrans, f.pending, f.stray, f.tells_ce, f.merged, f.skip,
                          f.skipped }) do
    sub:add(flag, tvb(8, 2))
  end
  if math.floor(flags / F_TELLS_CE) % 2 == 1 then sub:add(f.ce, tvb(8, 2)) end
  tree:add(f.credit, tvb(10, 2))
  tree:add(f.echo, tvb(12, 2))

  local text = ""
  if opcode == DATA then
    text = dissect_segment(tvb, length, tree)
  elseif opcode == SACK then
    text = dissect_sack(tvb, length, tree, (psn - ack_psn) % 2 ^ 32)
  elseif opcode == REQ or (opcode == ACCEPT and flags == 0) then
    text = dissect_params(tvb, length, tree)
  elseif opcode == REJECT then
    text = dissect_reject(tvb, length, tree)
  elseif opcode == RESET then
    tree:add_proto_expert_info(e.reset)
  elseif opcode > RESET then
    malformed(tree, "unknown opcode")
  end
  if opcode ~= SACK and math.floor(flags / F_RETRANS) % 2 == 1 then tree:add_proto_expert_info(e.retrans) end
  if math.floor(flags / F_NOT_READY) % 2 == 1 then tree:add_proto_expert_info(e.not_ready) end
  pinfo.cols.info = string.format("%s%s psn=0x%08x ack=0x%08x%s", OPCODES[opcode] or "?", flag_text(flags), psn, ack_psn,
                                  text)
  tree:append_text(", " .. (OPCODES[opcode] or "?") .. string.format(" psn=0x%08x", psn))
  return tvb:len()
end

-- ---- Recognition of datagrams ----------------------------------------------------------------

local function looks_like_segment(tvb, length)
  if length < TRP_BYTES + TAGGED_BYTES or tvb:len() < TRP_BYTES + TAGGED_BYTES then return false end
  local ddp, rdmap = tvb(TRP_BYTES, 1), tvb(TRP_BYTES + 1, 1)
  if ddp:bitfield(6, 2) ~= 1 or rdmap:bitfield(0, 2) ~= 1 then return false end
  local opcode = rdmap:bitfield(4, 4)
  if ddp:bitfield(0) == 1 then return opcode == WRITE or opcode == READ_RESP end
  return tvb:len() >= TRP_BYTES + UNTAGGED_BYTES and QN_OF[opcode] == tvb(TRP_BYTES + 6, 4):uint()
end

local function looks_like_params(tvb, length)
  return tvb:len() >= TRP_BYTES + PARAMS_BYTES and tvb(TRP_BYTES, 1):uint() == WIRE_VERSION and
         tvb(TRP_BYTES + 2, 2):uint() + TRP_BYTES + PARAMS_BYTES == length
end

local function looks_like_trp(tvb)
  local length = tvb:reported_len()
  if length < TRP_BYTES or tvb:len() < TRP_BYTES then return false end
  local opcode, flags = tvb(8, 2):bitfield(0, 4), tvb(8, 2):bitfield(4, 12)
  local allowed = FLAGS_OF[opcode]
  if allowed == nil then return false end
  for bit = 0, 11 do
    if math.floor(flags / 2 ^ bit) % 2 > math.floor(allowed / 2 ^ bit) % 2 then return false end
  end
  local credit, echo = tvb(10, 2):uint(), tvb(12, 2):uint()
  if opcode == DATA or opcode == SACK or opcode == SHUTDOWN then
    if credit == 0 or credit > MAX_WINDOW then return false end
    if opcode == DATA then return looks_like_segment(tvb, length) end
    if opcode == SHUTDOWN then return length == TRP_BYTES end
    local span = (tvb(0, 4):uint() - tvb(4, 4):uint()) % 2 ^ 32
    return span <= MAX_WINDOW and length - TRP_BYTES == math.floor((span + 7) / 8)
  end
  if credit ~= 0 or echo ~= 0 then return false end
  if opcode == REQ then return looks_like_params(tvb, length) end
  if opcode == ACCEPT then return length == TRP_BYTES or looks_like_params(tvb, length) end
  if opcode == REJECT then
    return tvb:len() >= TRP_BYTES + 4 and tvb(TRP_BYTES + 2, 2):uint() + TRP_BYTES + 4 == length
  end
  return length == TRP_BYTES
end

-- After one datagram of a connection has been recognised, Wireshark passes all datagrams of the connection to the
-- dissector, damaged ones too.
trp:register_heuristic("udp", function(tvb, pinfo, root)
  if not looks_like_trp(tvb) then return false end
  trp.dissector(tvb, pinfo, root)
  pinfo.conversation = trp
  return true
end)
DissectorTable.get("udp.port"):add_for_decode_as(trp)
