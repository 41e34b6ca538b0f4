// SPDX-License-Identifier: GPL-2.0-or-later
// What srun and its agentd say.
#include "agentd/wire/codec.hpp"
#include "agentd/wire/codec_parts.hpp"
#include "kernel/base/text.hpp"

namespace souk::wire {
namespace {

void fill(const Submit& v, Pb__Submit& m, Arena& a) {
    m.spec = fill_spec(v.spec, a);
    m.terms = fill_terms(v.terms, a);
    m.name = fill_line(v.name, a, name_max);
    m.attach = v.attach;
    m.token = v.token;
    m.retry = v.retry;
}

Submit take(const Pb__Submit& m, Check& c) {
    if (*m.name)
        if (const Status good = check_label(m.name, name_max); !good)
            c.bad("name", good.error().message);
    return {take_spec(m.spec, c),
            take_terms(m.terms, c),
            clean(m.name, name_max),
            bool(m.attach),
            m.token,
            bool(m.retry)};
}

void fill(const Submitted& v, Pb__Submitted& m, Arena& a) {
    m.id = fill_id(v.id, a);
    m.waits = fill_line(v.waits, a);
}

Submitted take(const Pb__Submitted& m, Check& c) { return {c.job(m.id), clean(m.waits)}; }

void fill(const Attach& v, Pb__Attach& m, Arena& a) {
    m.id = fill_id(v.id, a);
    m.resume = v.resume;
    m.stdout_offset = v.offset[0];
    m.stderr_offset = v.offset[1];
}

Attach take(const Pb__Attach& m, Check& c) {
    return {c.job(m.id),
            bool(m.resume),
            {c.count("stdout_offset", m.stdout_offset), c.count("stderr_offset", m.stderr_offset)}};
}

void fill(const Attached& v, Pb__Attached& m, Arena& a) {
    m.id = fill_id(v.id, a);
    m.phase = static_cast<uint32_t>(v.phase);
    m.tty = v.tty;
    m.input_offset = v.input_offset;
    m.stdout_offset = v.offset[0];
    m.stderr_offset = v.offset[1];
}

Attached take(const Pb__Attached& m, Check& c) {
    Attached v;
    v.id = c.job(m.id);
    v.phase = c.one_of("phase", m.phase, JobPhase::waiting, JobPhase::finished);
    v.tty = m.tty;
    v.input_offset = c.count("input_offset", m.input_offset);
    v.offset[0] = c.count("stdout_offset", m.stdout_offset);
    v.offset[1] = c.count("stderr_offset", m.stderr_offset);
    return v;
}

void fill(const Change& v, Pb__Change& m, Arena& a) {
    m.id = fill_id(v.id, a);
    m.fields = v.fields;
    m.terms = fill_terms(v.terms, a);
}

// A term that does not change may be anything on the wire and is at its default here.
Change take(const Pb__Change& m, Check& c) {
    Change v;
    v.id = c.job(m.id);
    v.fields = c.in<uint32_t>("fields", m.fields, 1, Change::all);
    if (!m.terms) {
        c.bad("terms", "missing");
        return v;
    }
    if (v.fields & Change::max_price)
        v.terms.max_price = c.price("max_price", m.terms->max_price, 1);
    if (v.fields & Change::budget) v.terms.budget = c.price("budget", m.terms->budget);
    if (v.fields & Change::memory_mb)
        v.terms.memory_mb = c.megabytes("memory_mb", m.terms->memory_mb);
    if (v.fields & Change::cpus) v.terms.cpus = c.cpus("cpus", m.terms->cpus);
    if (v.fields & Change::finish) v.terms.finish = c.span("finish", m.terms->finish);
    if (v.fields & Change::strategy) v.terms.strategy = c.strategy("strategy", m.terms->strategy);
    if (v.fields & Change::pace) v.terms.pace = m.terms->pace;
    return v;
}

void fill(const Output& v, Pb__Output& m, Arena&) {
    m.stream = static_cast<uint32_t>(v.stream);
    m.offset = v.offset;
    m.data = fill_bytes(v.data);
}

Output take(const Pb__Output& m, Check& c) {
    return {c.one_of("stream", m.stream, Stream::out, Stream::err), c.count("offset", m.offset),
            c.data("data", m.data, stdio_bytes_max)};
}

void fill(const OutputAck& v, Pb__OutputAck& m, Arena&) {
    m.stream = static_cast<uint32_t>(v.stream);
    m.offset = v.offset;
}

OutputAck take(const Pb__OutputAck& m, Check& c) {
    return {c.one_of("stream", m.stream, Stream::out, Stream::err), c.count("offset", m.offset)};
}

void fill(const Input& v, Pb__Input& m, Arena&) {
    m.offset = v.offset;
    m.data = fill_bytes(v.data);
    m.eof = v.eof;
}

Input take(const Pb__Input& m, Check& c) {
    return {c.count("offset", m.offset), c.data("data", m.data, stdio_bytes_max), bool(m.eof)};
}

void fill(const InputAck& v, Pb__InputAck& m, Arena&) { m.offset = v.offset; }

InputAck take(const Pb__InputAck& m, Check& c) { return {c.count("offset", m.offset)}; }

void fill(const Winch& v, Pb__Winch& m, Arena&) {
    m.rows = v.rows;
    m.cols = v.cols;
}

Winch take(const Pb__Winch& m, Check& c) {
    return {c.cells("rows", m.rows), c.cells("cols", m.cols)};
}

void fill(const Signal& v, Pb__Signal& m, Arena&) { m.number = v.number; }

Signal take(const Pb__Signal& m, Check& c) { return {c.in("number", m.number, 1, 64)}; }

void fill(const Notice& v, Pb__Notice& m, Arena& a) {
    m.kind = static_cast<uint32_t>(v.kind);
    m.text = fill_line(v.text, a);
}

Notice take(const Pb__Notice& m, Check& c) {
    return {c.one_of("kind", m.kind, TellWhat::started, TellWhat::warning), clean(m.text)};
}

constexpr size_t summary_max = 64 * 1024;

void fill(const Exit& v, Pb__Exit& m, Arena& a) {
    m.wait_status = v.wait_status;
    m.cancelled = v.cancelled;
    m.why = fill_line(v.why, a);
    m.summary = fill_line(v.summary, a, summary_max);
}

Exit take(const Pb__Exit& m, Check&) {
    return {m.wait_status, bool(m.cancelled), clean(m.why), clean(m.summary, summary_max)};
}

}  // namespace

SOUK_WIRE_CODEC(Submit, Pb__Submit, pb__submit)
SOUK_WIRE_CODEC(Submitted, Pb__Submitted, pb__submitted)
SOUK_WIRE_CODEC(Attach, Pb__Attach, pb__attach)
SOUK_WIRE_CODEC(Attached, Pb__Attached, pb__attached)
SOUK_WIRE_CODEC(Change, Pb__Change, pb__change)
SOUK_WIRE_CODEC(Output, Pb__Output, pb__output)
SOUK_WIRE_CODEC(OutputAck, Pb__OutputAck, pb__output_ack)
SOUK_WIRE_CODEC(Input, Pb__Input, pb__input)
SOUK_WIRE_CODEC(InputAck, Pb__InputAck, pb__input_ack)
SOUK_WIRE_CODEC(Winch, Pb__Winch, pb__winch)
SOUK_WIRE_CODEC(Signal, Pb__Signal, pb__signal)
SOUK_WIRE_CODEC(Notice, Pb__Notice, pb__notice)
SOUK_WIRE_CODEC(Exit, Pb__Exit, pb__exit)

JobTerms changed(JobTerms terms, const Change& change) {
    if (change.fields & Change::max_price) terms.max_price = change.terms.max_price;
    if (change.fields & Change::budget) terms.budget = change.terms.budget;
    if (change.fields & Change::memory_mb) {
        terms.memory_mb = change.terms.memory_mb;
        terms.memory_by_default = false;
    }
    if (change.fields & Change::cpus) terms.cpus = change.terms.cpus;
    if (change.fields & Change::finish) terms.finish = change.terms.finish;
    if (change.fields & Change::strategy) terms.strategy = change.terms.strategy;
    if (change.fields & Change::pace) terms.pace = change.terms.pace;
    return terms;
}

}  // namespace souk::wire
