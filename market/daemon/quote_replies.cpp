// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/daemon/quote_replies.hpp"

#include <algorithm>

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

// CPUSxMB, with @NODE for the only node, and ? of one that is optional; N* before it: N alike.
Status add_components(const std::string& text, QuoteRequest& q) {
    for (size_t from = 0; from <= text.size();) {
        const size_t end = std::min(text.find(',', from), text.size());
        const std::string item = text.substr(from, end - from);
        from = end + 1;
        const size_t star = item.find('*'), times = item.find('x');
        const size_t first = star == item.npos ? 0 : star + 1;
        const std::string bad = "components: '" + item + "' is not [N*]CPUSxMB[?][@NODE]";
        if (times == item.npos || times < first) return fail(bad);
        QuoteRequest::Component one;
        int64_t count = 1;
        if (star != item.npos) {
            TRY_ASSIGN(count, whole("components", item.substr(0, star), 1,
                                    static_cast<int64_t>(market::quote_components_max)));
        }
        std::string memory = item.substr(times + 1);
        if (const size_t at = memory.find('@'); at != memory.npos) {
            one.node = memory.substr(at + 1);
            memory.resize(at);
        }
        one.optional = memory.ends_with('?');
        if (one.optional) memory.pop_back();
        TRY_ASSIGN(const int64_t cpus,
                   whole("components", item.substr(first, times - first), 1, 65'536));
        TRY_ASSIGN(one.memory_mb, whole("components", memory, 0, int64_t{1} << 40));
        one.cpus = static_cast<int32_t>(cpus);
        if (q.components.size() + static_cast<size_t>(count) > market::quote_components_max)
            return fail("components: at most " + std::to_string(market::quote_components_max));
        // The market ranks those that are optional behind the others.
        const auto at = one.optional ? q.components.end()
                                     : std::ranges::find(q.components, true,
                                                         &QuoteRequest::Component::optional);
        q.components.insert(at, static_cast<size_t>(count), one);
    }
    return {};
}

Status add_layout(const std::string& key, const std::string& value, market::GangLayout& layout) {
    if (key == "spread") {
        TRY_ASSIGN(const int64_t most, whole(key, value, 0, 65'536));
        layout.most_on_one = static_cast<uint32_t>(most);
    } else if (key == "pack") {
        layout.few = value == "yes";
    } else if (key == "near") {
        layout.near = value == "yes";
    } else if (key == "near_trip_us") {
        TRY_ASSIGN(layout.trip_us_most, whole(key, value, 0, market::near_most));
    } else {
        TRY_ASSIGN(layout.mbit_least, whole(key, value, 0, market::near_most));
    }
    return {};
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
        } else if (key == "components") {
            TRY(add_components(value, q));
        } else if (key == "spread" || key == "pack" || key == "near" || key == "near_trip_us" ||
                   key == "near_mbit") {
            TRY(add_layout(key, value, q.layout));
        } else if (key == "compare") {
            q.compare = value == "yes";
        } else {
            return fail(
                "quote: '" + word +
                "' is none of price, budget, memory, cpus, jobs, finish_ns, runtime_ns, "
                "pace, strategy, needs, resources, promise, limit_ns, limit_speed, command, "
                "components, spread, pack, near, near_trip_us, near_mbit and compare");
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
        w.field("latest_start_unix_s", p.latest_start.seconds());
        w.field("node", p.nodes.begin()->first).key("nodes").begin_object();
        for (const auto& [node, components] : p.nodes) w.field(node, int64_t{components});
        w.end_object();
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

std::string quote_json(const Quote& q, bool several, bool by_program) {
    JsonWriter w;
    w.begin_object().field("runs", q.runs).field("bid", q.bid);
    if (several)
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
        return quote_json(quote, q.jobs > 1 || !q.components.empty(), by_program);
    };
    return wire::reply_to(request.request, answered());
}

}  // namespace souk
