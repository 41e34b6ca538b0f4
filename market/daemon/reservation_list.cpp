// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/daemon/reservation_list.hpp"

#include "kernel/base/json.hpp"
#include "kernel/wire/messages.hpp"
#include "market/daemon/user_replies.hpp"

namespace souk {
namespace {

using market::Booked;
using market::Contract;
using market::Job;
using market::Market;

// Returns what the market's price was, on average, in the part of the span that is over. nullopt:
// none is known of it.
std::optional<Money> turned_out(const Market& market, const Contract& c, Nanos unix) {
    const auto node = market.nodes().find(c.node);
    if (node == market.nodes().end()) return {};
    const int64_t speed = node->second.record.report.speed;
    const auto& rows = market.price_history().rows();
    market::MeanPrice mean;
    const int64_t until = market::minute_of(std::min(unix, c.end));
    for (auto row = rows.lower_bound(market::minute_of(c.start));
         row != rows.end() && row->first < until; ++row)
        if (const auto* const s = market::price_at(row->second, speed))
            mean.add(s->price, s->minutes);
    if (mean.minutes == 0) return {};
    return mean.value();
}

// Others than its user and root see how long which room is taken, and nothing of what it costs.
void write(JsonWriter& w, const Job& job, const Market& market, Nanos now, uint32_t uid) {
    const JobReport& r = job.record.report;
    const Contract& c = *job.record.contract;
    const Nanos unix = now + market.calendar();
    const Booking& asked = *r.terms.booking;
    const bool told = uid == 0 || uid == r.uid;
    w.begin_object()
        .field("id", job.id().text())
        .field("user", r.user)
        .field("state", to_string(job.booked))
        .field("phase", to_string(r.phase))
        .field("cpus", r.terms.cpus)
        .field("memory_mb", r.terms.memory_mb)
        .field("holds", asked.holds);
    if (!r.gang.empty()) w.field("gang", r.gang).field("component", r.component);
    const Nanos start = c.is_sold() ? c.start : asked.start;
    if (start.ns > 0) w.field("start_unix_s", start.seconds());
    if (c.is_sold())
        w.field("end_unix_s", c.end.seconds());
    else if (start.ns > 0)
        w.field("end_unix_s", (start + asked.span).seconds());
    w.field("for_s", asked.span.seconds()).field("early", asked.early);
    if (asked.promise) w.field("promise", true);
    if (job.record.given != 0) w.field("given", called_by(market, job.record.given));
    if (c.is_sold() && !c.node.empty()) w.field("node", c.node);
    if (!told) {
        w.end_object();
        return;
    }
    w.field("name", r.name);
    if (c.is_sold()) {
        w.field("price", c.price).field("sold_unix_s", c.sold.seconds());
        w.field("places_lost", c.places_lost);
        if (const auto market_price = turned_out(market, c, unix))
            w.field("market_price", *market_price);
    }
    w.field("cost", market.cost(job, now));
    if (const market::Reason why = market.reason(job); !why.empty()) {
        w.field("comment", why.text()).key("reason").begin_object();
        write_reason(w, why);
        w.end_object();
    }
    w.end_object();
}

}  // namespace

Result<std::string> reservations_reply(const Market& market, const std::string& after, Nanos now,
                                       uint32_t uid, std::string& next) {
    JobId last;
    if (!after.empty()) {
        TRY_ASSIGN(last, parse_job_id(after));
    }
    const auto& booked = market.reservations().booked();
    JsonWriter w;
    w.begin_array();
    for (auto id = after.empty() ? booked.begin() : booked.upper_bound(last); id != booked.end();
         ++id) {
        const Job* const job = market.find(*id);
        if (!job || !job->record.report.terms.booking->asks() || job->record.contract->over)
            continue;
        write(w, *job, market, now, uid);
        if (w.bytes() < wire::json_part_bytes) continue;
        next = id->text();
        break;
    }
    w.end_array();
    return w.take();
}

}  // namespace souk
