// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/store/records.hpp"

#include "market/store/records.pb-c.h"
#include "market/wire/codec_parts.hpp"

namespace souk::wire {
namespace {

using market::AccountRecord;
using market::Hold;
using market::Holder;
using market::JobRecord;
using market::MetaRecord;
using market::NodeRecord;
using market::PriceRecord;
using market::Tab;
using market::UserRecord;

// A message inside a record: its bytes live as long as the packing.
ProtobufCBinaryData fill_packed(const std::string& packed, Arena& a) {
    char* bytes = a.array<char>(packed.size());
    std::copy(packed.begin(), packed.end(), bytes);
    return {packed.size(), reinterpret_cast<uint8_t*>(bytes)};
}

template <class T>
T take_packed(const char* field, const ProtobufCBinaryData& bytes, Check& c) {
    auto value = unpack<T>({reinterpret_cast<const char*>(bytes.data), bytes.len});
    if (value) return std::move(*value);
    c.bad(field, value.error().message);
    return {};
}

// A sum that may have been taken back.
constexpr int64_t signed_max = span_ns_max;
static_assert(signed_max == amount_micro_max);
constexpr int64_t days_max = 1'000'000;
constexpr size_t settings_max = 64, why_max = 512;

Tab take_tab(const Pb__MarketTab* m, Check& c) {
    if (!m) return {};
    Tab v;
    v.from = c.time("from", m->from);
    v.to = c.time("to", m->to);
    v.run = {c.in("run", m->run, -signed_max, signed_max)};
    v.price = c.price("price", m->price);
    v.amount = {c.in("amount", m->amount, -signed_max, signed_max)};
    v.cpu = c.span("cpu", m->cpu);
    return v;
}

void fill(const JobRecord& v, Pb__MarketJob& m, Arena& a) {
    m.report = fill_packed(pack(v.report), a);
    m.cost = v.account.amount.micro;
    m.rest = v.account.rest;
    m.billed = v.billed.ns;
    m.skew = v.skew.ns;
    m.price = v.price.micro;
    m.payee = fill_string(v.payee, a);
    if (v.order) m.order = fill_packed(pack(*v.order), a);
    m.hold = static_cast<uint32_t>(v.hold);
    m.hold_node = fill_string(v.hold_node, a);
    m.cancel = v.cancel;
    m.out_of_budget = v.out_of_budget;
    m.finish_seq = v.finish_seq;
    m.ended = v.ended.ns;
    m.comment = fill_line(v.comment, a);
    if (v.tab == Tab{}) return;
    m.tab = make(a, pb__market_tab__init);
    m.tab->from = v.tab.from.ns;
    m.tab->to = v.tab.to.ns;
    m.tab->run = v.tab.run.ns;
    m.tab->price = v.tab.price.micro;
    m.tab->amount = v.tab.amount.micro;
    m.tab->cpu = v.tab.cpu.ns;
}

JobRecord take(const Pb__MarketJob& m, Check& c) {
    JobRecord v;
    v.report = take_packed<JobReport>("report", m.report, c);
    v.account.amount = c.amount("cost", m.cost);
    v.account.rest = c.in<int64_t>("rest", m.rest, 0, market::hour_ns - 1);
    v.billed = c.span("billed", m.billed);
    v.skew = c.span("skew", m.skew);
    v.price = c.price("price", m.price);
    v.payee = c.node_or_none("payee", m.payee);
    if (m.order.len > 0) v.order = take_packed<Order>("order", m.order, c);
    v.hold = c.one_of("hold", m.hold, Hold::none, Hold::stay);
    v.hold_node = c.node_or_none("hold_node", m.hold_node);
    v.cancel = m.cancel;
    v.out_of_budget = m.out_of_budget;
    v.finish_seq = c.count("finish_seq", m.finish_seq);
    v.ended = c.time("ended", m.ended);
    v.comment = clean(m.comment);
    v.tab = take_tab(m.tab, c);
    return v;
}

void fill(const AccountRecord& v, Pb__MarketAccount& m, Arena& a) {
    m.kind = static_cast<uint32_t>(v.holder.kind);
    m.uid = v.holder.uid;
    m.node = fill_string(v.holder.node, a);
    m.name = fill_line(v.name, a, name_max);
    m.balance = v.balance.micro;
    m.day = v.day + 1;
    m.day_paid = v.day_paid.micro;
}

AccountRecord take(const Pb__MarketAccount& m, Check& c) {
    AccountRecord v;
    v.holder.kind = c.one_of("kind", m.kind, Holder::Kind::market, Holder::Kind::node);
    v.holder.uid = m.uid;
    v.holder.node = c.node_or_none("node", m.node);
    v.name = clean(m.name, name_max);
    v.balance = {c.in("balance", m.balance, -signed_max, signed_max)};
    v.day = c.in<int64_t>("day", m.day, 0, days_max) - 1;
    v.day_paid = {c.in("day_paid", m.day_paid, -signed_max, signed_max)};
    return v;
}

void fill(const UserRecord& v, Pb__MarketUser& m, Arena& a) {
    const market::UserLimits& l = v.limits;
    m.uid = v.uid;
    m.name = fill_line(v.name, a, name_max);
    m.given = (l.spend_per_day ? 1U : 0U) | (l.jobs ? 2U : 0U) | (l.cpus ? 4U : 0U);
    m.spend_per_day = l.spend_per_day.value_or(Money{}).micro;
    m.jobs = l.jobs.value_or(0);
    m.cpus = l.cpus.value_or(0);
    m.ended_day = v.ended_day + 1;
}

UserRecord take(const Pb__MarketUser& m, Check& c) {
    UserRecord v;
    v.uid = m.uid;
    v.name = clean(m.name, name_max);
    const uint32_t given = c.in<uint32_t>("given", m.given, 0, 7);
    if (given & 1) v.limits.spend_per_day = c.price("spend_per_day", m.spend_per_day);
    if (given & 2) v.limits.jobs = c.in<int32_t>("jobs", m.jobs, 0, INT32_MAX);
    if (given & 4) v.limits.cpus = c.in<int32_t>("cpus", m.cpus, 0, INT32_MAX);
    v.ended_day = c.in<int64_t>("ended_day", m.ended_day, 0, days_max) - 1;
    return v;
}

void fill(const PriceRecord& v, Pb__MarketPrice& m, Arena& a) {
    m.minute = v.minute;
    m.minutes = v.minutes;
    m.closed = v.closed;
    m.least = v.least.micro;
    m.low = v.low.micro;
    m.high = v.high.micro;
    m.n_speeds = v.speeds.size();
    m.speeds = a.array<Pb__SpeedPrice*>(v.speeds.size());
    for (size_t i = 0; i < v.speeds.size(); ++i) {
        m.speeds[i] = make(a, pb__speed_price__init);
        m.speeds[i]->speed = v.speeds[i].speed;
        m.speeds[i]->minutes = v.speeds[i].minutes;
        m.speeds[i]->price = v.speeds[i].price.micro;
    }
}

PriceRecord take(const Pb__MarketPrice& m, Check& c) {
    constexpr int32_t minutes_max = 44'640;
    PriceRecord v;
    v.minute = c.in<int64_t>("minute", m.minute, 0, days_max * 1'440);
    v.minutes = c.in<int32_t>("minutes", m.minutes, 1, minutes_max);
    v.closed = c.in<int32_t>("closed", m.closed, 0, v.minutes);
    v.least = c.price("least", m.least);
    v.low = c.price("low", m.low);
    v.high = c.price("high", m.high);
    if (m.n_speeds > market::PriceHistory::speeds_max) c.bad("speeds", "too many");
    for (size_t i = 0; i < m.n_speeds && c.ok(); ++i)
        v.speeds.push_back({c.in<int32_t>("speed", m.speeds[i]->speed, 1, market::speed_max),
                            c.in<int32_t>("speed's minutes", m.speeds[i]->minutes, 1, minutes_max),
                            c.price("price", m.speeds[i]->price)});
    return v;
}

void fill(const NodeRecord& v, Pb__MarketNode& m, Arena& a) {
    m.node = fill_string(v.node, a);
    m.address = fill_string(v.address, a);
    if (v.has_report) m.report = fill_packed(pack(v.report), a);
    m.earned = v.earned.micro;
}

NodeRecord take(const Pb__MarketNode& m, Check& c) {
    NodeRecord v;
    v.node = c.node("node", m.node);
    v.address = c.address("address", m.address);
    v.has_report = m.report.len > 0;
    if (v.has_report) v.report = take_packed<ProviderReport>("report", m.report, c);
    // what is taken back may be more
    v.earned = {c.in("earned", m.earned, -signed_max, signed_max)};
    return v;
}

void fill(const MetaRecord& v, Pb__MarketMeta& m, Arena& a) {
    m.seq_limit = v.seq_limit;
    m.finish_seq = v.finish_seq;
    m.retired = v.retired.micro;
    m.ledger = v.ledger;
    m.receipts = v.receipts;
    m.day = v.day + 1;
    m.finished_retired = v.finished_retired;
    m.n_settings = v.settings.size();
    m.settings = a.array<Pb__SolverSetting*>(v.settings.size());
    for (size_t i = 0; i < v.settings.size(); ++i) {
        const market::SolverSetting& s = v.settings[i];
        Pb__SolverSetting& to = *(m.settings[i] = make(a, pb__solver_setting__init));
        to.what = fill_line(s.what, a, name_max);
        to.value = fill_line(s.value, a, name_max);
        to.why = fill_line(s.why, a, why_max);
        to.uid = s.uid;
        to.at = s.at.ns;
    }
}

MetaRecord take(const Pb__MarketMeta& m, Check& c) {
    MetaRecord v{c.count("seq_limit", m.seq_limit), c.count("finish_seq", m.finish_seq),
                 c.amount("retired", m.retired),    bool(m.ledger),
                 c.count("receipts", m.receipts),   c.in<int64_t>("day", m.day, 0, days_max) - 1,
                 bool(m.finished_retired),          {}};
    if (m.n_settings > settings_max) c.bad("settings", "too many");
    for (size_t i = 0; i < m.n_settings && c.ok(); ++i) {
        const Pb__SolverSetting& s = *m.settings[i];
        v.settings.push_back({clean(s.what, name_max),
                              clean(s.value, name_max),
                              clean(s.why, why_max),
                              s.uid,
                              {c.in<int64_t>("at", s.at, 0, INT64_MAX)}});
    }
    return v;
}

}  // namespace

SOUK_WIRE_CODEC(market::JobRecord, Pb__MarketJob, pb__market_job)
SOUK_WIRE_CODEC(market::NodeRecord, Pb__MarketNode, pb__market_node)
SOUK_WIRE_CODEC(market::AccountRecord, Pb__MarketAccount, pb__market_account)
SOUK_WIRE_CODEC(market::UserRecord, Pb__MarketUser, pb__market_user)
SOUK_WIRE_CODEC(market::PriceRecord, Pb__MarketPrice, pb__market_price)
SOUK_WIRE_CODEC(market::MetaRecord, Pb__MarketMeta, pb__market_meta)

}  // namespace souk::wire
