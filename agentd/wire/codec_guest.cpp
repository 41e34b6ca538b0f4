// SPDX-License-Identifier: GPL-2.0-or-later
// Between the agentd of a job's home node and that of its guest.
#include <algorithm>

#include "agentd/wire/codec.hpp"
#include "agentd/wire/codec_parts.hpp"

namespace souk::wire {
namespace {

void fill(const GuestCommand& v, Pb__GuestCommand& m, Arena& a) {
    m.id = fill_id(v.id, a);
    m.epoch = v.epoch.n;
    m.verb = static_cast<uint32_t>(v.verb);
    m.new_epoch = v.new_epoch.n;
    m.dest = fill_string(v.dest, a);
    m.dest_address = fill_string(v.dest_address, a);
    if (!v.spec.argv.empty()) m.spec = fill_spec(v.spec, a);
    m.memory_mb = v.memory_mb;
    m.cpus = v.cpus;
    m.signal = v.signal;
    m.or_stand = v.or_stand;
}

GuestCommand take(const Pb__GuestCommand& m, Check& c) {
    GuestCommand v;
    v.id = c.job(m.id);
    v.epoch = c.epoch("epoch", m.epoch);
    v.verb = c.one_of("verb", m.verb, GuestVerb::query, GuestVerb::checkpoint);
    v.new_epoch = c.epoch("new_epoch", m.new_epoch);
    v.dest = c.node_or_none("dest", m.dest);
    v.dest_address = c.address("dest_address", m.dest_address);
    const bool needs_spec =
        v.verb == GuestVerb::start || v.verb == GuestVerb::prepare || v.verb == GuestVerb::keep;
    if (m.spec || needs_spec) v.spec = take_spec(m.spec, c);
    const bool sends = v.verb == GuestVerb::ship || v.verb == GuestVerb::checkpoint;
    if (sends && (v.dest.empty() || v.dest_address.empty())) c.bad("dest", "missing");
    if ((sends || v.verb == GuestVerb::restore_here) && v.new_epoch <= v.epoch)
        c.bad("new_epoch", "not newer than the epoch");
    v.memory_mb = c.megabytes("memory_mb", m.memory_mb);
    v.cpus = c.cpus("cpus", m.cpus);
    v.or_stand = m.or_stand;
    v.signal = c.in("signal", m.signal, v.verb == GuestVerb::signal ? 1 : 0, 64);
    return v;
}

void fill(const GuestEvent& v, Pb__GuestEvent& m, Arena& a) {
    m.id = fill_id(v.id, a);
    m.epoch = v.epoch.n;
    m.state = static_cast<uint32_t>(v.state);
    m.wait_status = v.wait_status;
    m.error = v.error;
    m.program_error = v.program_error;
    m.why = fill_line(v.why, a);
    m.image_bytes = v.image_bytes;
    m.stopped = v.stopped;
    m.cpu_time = v.cpu_time.ns;
    m.stdout_end = v.output_end[0];
    m.stderr_end = v.output_end[1];
    m.input_end = v.input_end;
    m.leased = v.leased;
    m.lapsed = v.lapsed;
    m.in_place = v.in_place;
    m.held_for = v.held_for.n;
    m.cannot_move = fill_line(v.cannot_move, a);
    m.pid = v.pid;
    if (v.state == GuestState::dumping) m.forecast = fill_forecast(v.forecast, a);
}

GuestEvent take(const Pb__GuestEvent& m, Check& c) {
    GuestEvent v;
    v.id = c.job(m.id);
    v.epoch = c.epoch("epoch", m.epoch);
    v.state = c.one_of("state", m.state, GuestState::unknown, GuestState::filling);
    v.wait_status = m.wait_status;
    v.cannot_move = clean(m.cannot_move);
    v.pid = c.in("pid", m.pid, 0, INT32_MAX);
    if (v.state == GuestState::dumping) v.forecast = take_forecast(m.forecast, c);
    v.error = c.in("error", m.error, 0, 4095);
    v.program_error = m.program_error;
    v.why = clean(m.why);
    v.image_bytes = c.in<int64_t>("image_bytes", m.image_bytes, 0, bytes_max);
    v.stopped = m.stopped;
    v.cpu_time = c.span("cpu_time", m.cpu_time);
    v.output_end[0] = c.count("stdout_end", m.stdout_end);
    v.output_end[1] = c.count("stderr_end", m.stderr_end);
    v.input_end = c.count("input_end", m.input_end);
    v.leased = m.leased;
    v.lapsed = m.lapsed;
    v.in_place = m.in_place;
    v.held_for = c.epoch("held_for", m.held_for);
    return v;
}

void fill(const Expel& v, Pb__Expel& m, Arena& a) {
    m.id = fill_id(v.id, a);
    m.epoch = v.epoch.n;
}

Expel take(const Pb__Expel& m, Check& c) { return {c.job(m.id), c.epoch("epoch", m.epoch)}; }

void fill(const Heartbeat& v, Pb__Heartbeat& m, Arena&) { m.sent = v.sent.ns; }

Heartbeat take(const Pb__Heartbeat& m, Check& c) { return {c.span("sent", m.sent)}; }

void fill(const StdioData& v, Pb__StdioData& m, Arena& a) {
    m.id = fill_id(v.id, a);
    m.epoch = v.epoch.n;
    m.stream = static_cast<uint32_t>(v.stream);
    m.offset = v.offset;
    m.data = fill_bytes(v.data);
}

StdioData take(const Pb__StdioData& m, Check& c) {
    return {c.job(m.id), c.epoch("epoch", m.epoch),
            c.one_of("stream", m.stream, Stream::out, Stream::err), c.count("offset", m.offset),
            c.data("data", m.data, stdio_bytes_max)};
}

void fill(const StdioAck& v, Pb__StdioAck& m, Arena& a) {
    m.id = fill_id(v.id, a);
    m.epoch = v.epoch.n;
    m.stream = static_cast<uint32_t>(v.stream);
    m.offset = v.offset;
    m.again = v.again;
}

StdioAck take(const Pb__StdioAck& m, Check& c) {
    return {c.job(m.id), c.epoch("epoch", m.epoch),
            c.one_of("stream", m.stream, Stream::out, Stream::err), c.count("offset", m.offset),
            m.again != 0};
}

void fill(const StdioInput& v, Pb__StdioInput& m, Arena& a) {
    m.id = fill_id(v.id, a);
    m.epoch = v.epoch.n;
    m.offset = v.offset;
    m.data = fill_bytes(v.data);
    m.eof = v.eof;
}

StdioInput take(const Pb__StdioInput& m, Check& c) {
    return {c.job(m.id), c.epoch("epoch", m.epoch), c.count("offset", m.offset),
            c.data("data", m.data, stdio_bytes_max), bool(m.eof)};
}

void fill(const StdioInputAck& v, Pb__StdioInputAck& m, Arena& a) {
    m.id = fill_id(v.id, a);
    m.epoch = v.epoch.n;
    m.offset = v.offset;
}

StdioInputAck take(const Pb__StdioInputAck& m, Check& c) {
    return {c.job(m.id), c.epoch("epoch", m.epoch), c.count("offset", m.offset)};
}

void fill(const StdioWinch& v, Pb__StdioWinch& m, Arena& a) {
    m.id = fill_id(v.id, a);
    m.epoch = v.epoch.n;
    m.rows = v.rows;
    m.cols = v.cols;
}

StdioWinch take(const Pb__StdioWinch& m, Check& c) {
    return {c.job(m.id), c.epoch("epoch", m.epoch), c.cells("rows", m.rows),
            c.cells("cols", m.cols)};
}

void fill(const ImageBegin& v, Pb__ImageBegin& m, Arena& a) {
    m.id = fill_id(v.id, a);
    m.new_epoch = v.new_epoch.n;
    m.from_epoch = v.from_epoch.n;
    m.sender = fill_string(v.sender, a);
    m.form = static_cast<uint32_t>(v.form);
}

ImageBegin take(const Pb__ImageBegin& m, Check& c) {
    ImageBegin v{c.job(m.id), c.epoch("new_epoch", m.new_epoch),
                 c.epoch("from_epoch", m.from_epoch), c.node("sender", m.sender),
                 c.one_of("form", m.form, MoveForm::stop_and_copy, MoveForm::post_copy)};
    if (v.new_epoch <= v.from_epoch) c.bad("new_epoch", "not newer than the sender's");
    return v;
}

void fill(const PrecopyBegin& v, Pb__PrecopyBegin& m, Arena& a) {
    m.id = fill_id(v.id, a);
    m.new_epoch = v.new_epoch.n;
    m.sender = fill_string(v.sender, a);
    m.bytes = v.bytes;
}

PrecopyBegin take(const Pb__PrecopyBegin& m, Check& c) {
    return {c.job(m.id), c.epoch("new_epoch", m.new_epoch), c.node("sender", m.sender),
            c.count("bytes", m.bytes)};
}

void fill(const PagesState& v, Pb__PagesState& m, Arena& a) {
    m.put = v.put;
    m.restored = v.restored;
    m.n_wishes = v.wishes.size();
    m.wishes = a.array<Pb__PageWish*>(v.wishes.size());
    for (size_t i = 0; i < v.wishes.size(); ++i) {
        m.wishes[i] = make(a, pb__page_wish__init);
        m.wishes[i]->pid = v.wishes[i].pid;
        m.wishes[i]->start = v.wishes[i].start;
        m.wishes[i]->pages = static_cast<uint32_t>(v.wishes[i].pages);
    }
}

PagesState take(const Pb__PagesState& m, Check& c) {
    PagesState v{c.count("put", m.put), bool(m.restored), {}};
    if (m.n_wishes > page_wishes_max) c.bad("wishes", "too many");
    for (size_t i = 0; i < std::min(m.n_wishes, page_wishes_max); ++i) {
        const Pb__PageWish& w = *m.wishes[i];
        if (w.start % page_bytes != 0) c.bad("wishes", "not the start of a page");
        v.wishes.push_back({c.in<int32_t>("wishes", w.pid, 1, INT32_MAX),
                            c.in<uint64_t>("wishes", w.start, 0, uint64_t{1} << 57),
                            c.in<uint64_t>("wishes", w.pages, 1, 1 << 16)});
    }
    return v;
}

void fill(const ImageResult& v, Pb__ImageResult& m, Arena& a) {
    m.id = fill_id(v.id, a);
    m.epoch = v.epoch.n;
    m.ok = v.ok;
    m.why = fill_line(v.why, a);
}

ImageResult take(const Pb__ImageResult& m, Check& c) {
    return {c.job(m.id), c.epoch("epoch", m.epoch), bool(m.ok), clean(m.why)};
}

}  // namespace

SOUK_WIRE_CODEC(GuestCommand, Pb__GuestCommand, pb__guest_command)
SOUK_WIRE_CODEC(GuestEvent, Pb__GuestEvent, pb__guest_event)
SOUK_WIRE_CODEC(Expel, Pb__Expel, pb__expel)
SOUK_WIRE_CODEC(Heartbeat, Pb__Heartbeat, pb__heartbeat)
SOUK_WIRE_CODEC(StdioData, Pb__StdioData, pb__stdio_data)
SOUK_WIRE_CODEC(StdioAck, Pb__StdioAck, pb__stdio_ack)
SOUK_WIRE_CODEC(StdioInput, Pb__StdioInput, pb__stdio_input)
SOUK_WIRE_CODEC(StdioInputAck, Pb__StdioInputAck, pb__stdio_input_ack)
SOUK_WIRE_CODEC(StdioWinch, Pb__StdioWinch, pb__stdio_winch)
SOUK_WIRE_CODEC(ImageBegin, Pb__ImageBegin, pb__image_begin)
SOUK_WIRE_CODEC(ImageResult, Pb__ImageResult, pb__image_result)
SOUK_WIRE_CODEC(PagesState, Pb__PagesState, pb__pages_state)
SOUK_WIRE_CODEC(PrecopyBegin, Pb__PrecopyBegin, pb__precopy_begin)

}  // namespace souk::wire
