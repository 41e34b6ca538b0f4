// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/daemon/quote_replies.hpp"

#include "kernel/base/json.hpp"
#include "kernel/base/number.hpp"
#include "kernel/base/setting.hpp"
#include "kernel/wire/messages.hpp"
#include "market/core/needs.hpp"
#include "market/core/strategy.hpp"

namespace souk {
namespace {

using market::Market;
using market::PriceRecord;
using market::Quote;
using market::QuoteRequest;

Result<int64_t> whole(const std::string& key, const std::string& text, int64_t lo, int64_t hi) {
    const auto value = whole_number<int64_t>(text);
    if (!value || *value < lo || *value > hi)
        return fail(key + ": '" + text + "' is not a whole number from " + std::to_string(lo) +
                    " to " + std::to_string(hi));
    return *value;
}

constexpr int64_t minute_s = 60, span_ns_max = 1'000'000'000'000'000'000;

void write_record(JsonWriter& w, const PriceRecord& r) {
    w.begin_object()
        .field("from_unix_s", r.minute * minute_s)
        .field("span_s", r.minutes * minute_s);
    w.field("closed_s", r.closed * minute_s);
    if (r.closed < r.minutes) w.field("least", r.least).field("low", r.low).field("high", r.high);
    w.key("speeds").begin_array();
    for (const PriceRecord::Speed& s : r.speeds)
        w.begin_object()
            .field("speed", s.speed)
            .field("price", s.price)
            .field("open_s", s.minutes * minute_s)
            .end_object();
    w.end_array().end_object();
}

Result<QuoteRequest> parse(const NodeName& home, const wire::CtlRequest& request) {
    QuoteRequest q;
    q.home = home;
    q.uid = request.uid;
    for (const std::string& word : request.args) {
        const auto [key, value] = parse_setting(word);
        if (key == "price") {
            TRY_ASSIGN(q.terms.max_price, parse_money(value));
        } else if (key == "budget") {
            TRY_ASSIGN(q.terms.budget, parse_money(value));
        } else if (key == "memory") {
            TRY_ASSIGN(q.terms.memory_mb, whole(key, value, 0, int64_t{1} << 40));
        } else if (key == "cpus") {
            TRY_ASSIGN(const int64_t cpus, whole(key, value, 1, 65'536));
            q.terms.cpus = static_cast<int32_t>(cpus);
        } else if (key == "finish_ns") {
            TRY_ASSIGN(q.terms.finish.ns, whole(key, value, 0, span_ns_max));
        } else if (key == "runtime_ns") {
            TRY_ASSIGN(q.terms.runtime.ns, whole(key, value, 0, span_ns_max));
        } else if (key == "jobs") {
            TRY_ASSIGN(const int64_t jobs, whole(key, value, 1, market::quote_jobs_max));
            q.jobs = static_cast<int32_t>(jobs);
        } else if (key == "pace") {
            q.terms.pace = value == "yes";
        } else if (key == "strategy") {
            if (!market::strategy_named(value)) return fail("quote: no strategy " + value);
            q.terms.strategy = value;
        } else if (key == "needs") {
            TRY(market::Needs::parse(value));
            q.terms.needs = value;
        } else if (key == "resources") {
            TRY_ASSIGN(const auto resources, parse_resources(value));
            q.terms.resources = resources_text(resources);
        } else if (key == "promise") {
            q.terms.booking.edit().promise = value == "yes";
        } else if (key == "limit_ns") {
            TRY_ASSIGN(q.terms.limits.edit().run.ns, whole(key, value, 0, span_ns_max));
        } else if (key == "limit_speed") {
            TRY_ASSIGN(q.terms.limits.edit().at_speed, whole(key, value, 0, market::speed_max));
        } else if (key == "command") {
            q.command = value;
        } else if (key == "compare") {
            q.compare = value == "yes";
        } else {
            return fail("quote: '" + word +
                        "' is none of price, budget, memory, cpus, jobs, finish_ns, runtime_ns, "
                        "pace, strategy, needs, resources, promise, limit_ns, limit_speed, command "
                        "and compare");
        }
    }
    if (q.terms.max_price.micro <= 0) return fail("quote: the price is missing");
    if (q.terms.booking->promise && q.terms.finish.ns <= 0)
        return fail("quote: a promise needs finish_ns");
    return q;
}

void write_offer(JsonWriter& w, const Quote::Promise& p) {
    w.key("promise").begin_object().field("can", p.can);
    w.field("deadline_unix_s", p.deadline.seconds());
    if (p.can) {
        w.field("latest_start_unix_s", p.latest_start.seconds()).field("node", p.node);
        w.field("price", p.price).field("cost_most", p.cost_most).field("learned", p.learned);
    } else {
        w.field("why", p.why).field("code", p.code);
        if (p.price_for_it) w.field("price_for_it", *p.price_for_it);
        if (p.earliest) w.field("earliest_unix_s", p.earliest->seconds());
    }
    w.end_object();
}

void write_places(JsonWriter& w, const Quote& q) {
    w.field("running", int64_t{q.running}).field("rate", q.rate).key("places").begin_array();
    for (const Quote::Place& p : q.places)
        w.begin_object()
            .field("node", p.node)
            .field("speed", p.speed)
            .field("price", p.price)
            .field("jobs", int64_t{p.jobs})
            .end_object();
    w.end_array();
}

void write_outlook(JsonWriter& w, const market::Outlook& day) {
    if (day.minutes > 0) w.field("place_share", day.place_share);
    if (day.frozen) w.field("frozen_chance", *day.frozen);
    if (day.cost) w.field("expected_cost", *day.cost).field("expected_span_s", day.span->seconds());
    if (day.in_time) w.field("in_time_chance", *day.in_time);
}

std::string quote_json(const Quote& q, int32_t jobs, bool by_program) {
    JsonWriter w;
    w.begin_object().field("runs", q.runs).field("bid", q.bid);
    if (jobs > 1)
        write_places(w, q);
    else if (q.runs)
        w.field("node", q.places[0].node)
            .field("speed", q.places[0].speed)
            .field("price", q.places[0].price);
    if (q.running > 0) w.field("others_first", q.others_first).field("displaced", q.displaced);
    if (!q.runs) w.field("why", q.why).field("code", q.code);
    if (q.winning_bid) w.field("winning_bid", *q.winning_bid);
    if (q.cost) w.field("cost_now", *q.cost).field("span_now_s", q.span->seconds());
    if (q.budget_lasts) w.field("budget_lasts_s", q.budget_lasts->seconds());
    w.field("history_s", q.day.minutes * minute_s);
    write_outlook(w, q.day);
    if (!q.strategies.empty()) w.key("strategies").begin_array();
    for (const Quote::Compared& s : q.strategies) {
        w.begin_object().field("strategy", s.strategy).field("bid", s.bid);
        write_outlook(w, s.day);
        w.end_object();
    }
    if (!q.strategies.empty()) w.end_array();
    if (q.promise) write_offer(w, *q.promise);
    if (by_program) w.field("decided_by_program", true);
    w.end_object();
    return w.take();
}

}  // namespace

Result<std::string> prices_reply(const Market& market, const std::vector<std::string>& args,
                                 const std::string& after, std::string& next) {
    TRY_ASSIGN(const int64_t since, whole("since", args[0], 0, INT64_MAX / 2));
    TRY_ASSIGN(const int64_t step_s, whole("step", args[1], minute_s, 366 * 86'400));
    const int64_t step = step_s / minute_s;
    int64_t from = since / minute_s;
    if (!after.empty()) {
        TRY_ASSIGN(from, whole("after", after, 0, INT64_MAX / 2));
    }
    JsonWriter w;
    w.begin_array();
    for (const PriceRecord& r : market.price_history().list(from, step)) {
        if (w.bytes() >= wire::json_part_bytes) {
            next = std::to_string(r.minute);
            break;
        }
        write_record(w, r);
    }
    w.end_array();
    return w.take();
}

wire::CtlReply quote_reply(const Market& market, const NodeName& home, bool by_program,
                           const wire::CtlRequest& request, Nanos now) {
    const auto answered = [&]() -> Result<std::string> {
        if (home.empty())
            return fail("a quote is for a job of a node: ask through its agentd (srun --quote)");
        TRY_ASSIGN(const QuoteRequest q, parse(home, request));
        TRY_ASSIGN(const Quote quote, market.quote(q, now));
        return quote_json(quote, q.jobs, by_program);
    };
    return wire::reply_to(request.request, answered());
}

}  // namespace souk
