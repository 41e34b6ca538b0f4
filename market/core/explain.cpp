// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/explain.hpp"

#include <algorithm>
#include <utility>

#include "kernel/base/json.hpp"
#include "market/core/least_bids.hpp"
#include "market/core/orders.hpp"
#include "market/core/promises.hpp"
#include "market/core/strategy.hpp"
#include "market/core/submit_filter.hpp"

namespace souk::market {

namespace {

constexpr int64_t day_minutes = 1'440;

Reason at_node(ReasonCode code, const NodeName& node) {
    return Reason(code).with(Figure::node, node);
}

std::string some_of(const std::vector<NodeName>& nodes) {
    constexpr size_t shown = 3;
    std::string names;
    for (size_t i = 0; i < std::min(nodes.size(), shown); ++i)
        names += (i > 0 ? ", " : "") + nodes[i];
    if (nodes.size() > shown) names += " and " + std::to_string(nodes.size() - shown) + " more";
    return names;
}

void write_backoff(JsonWriter& j, const char* name, const Backoff& b, Nanos now) {
    if (!b.active) return;
    j.key(name)
        .begin_object()
        .field("left_s", (b.until - now).seconds())
        .field("failures", b.failures)
        .field("why", b.why)
        .end_object();
}

void write_order(JsonWriter& j, const Job& job, Nanos now) {
    const Order& o = *job.record.order;
    j.key("order").begin_object().field("kind", to_string(o.kind)).field("seq", o.seq);
    if (!o.node.empty()) j.field("node", o.node);
    j.field("age_s", (now - job.ordered_at).seconds());
    if (job.doubt_since != Nanos::never()) j.field("in_doubt_s", (now - job.doubt_since).seconds());
    j.field("why", o.reason).end_object();
}

}  // namespace

// The job may be late, and how probable it is that it is not, in steps of five percent.
Reason Explain::why_unsure(const Job& job) {
    if (job.phase() == JobPhase::finished || job.in_time.value_or(1) >= deadline_chance) return {};
    const auto percent = static_cast<int64_t>(*job.in_time * 20) * 5;
    const bool runs = job.phase() == JobPhase::running;
    return at_node(ReasonCode::deadline_unsure, runs ? job.record.report.where : NodeName{})
        .with(Figure::chance, percent);
}

// Why a job that is stopped in memory and cannot move stands there.
Reason Explain::why_stopped(const Job& job) const {
    const JobReport& r = job.record.report;
    if (r.phase != JobPhase::frozen || !r.in_place || Places::stands(job)) return {};
    const Node* at = book_.find_node(r.where);
    const bool back = at && at->connected && !Places::usable(*at);
    return at_node(ReasonCode::stopped_here, r.where)
        .with(Figure::cause, r.cannot_move.empty() ? souk::Cause("it cannot move") : *r.cannot_move)
        .with(Figure::before, back ? "goes on when " + r.where + " takes jobs again"
                                   : why_waiting(job, solver_).text());
}

// The least bid with which the job has a place and is within its user's limits. With another bid
// it has its own turn again, unless equal jobs have places at that bid: then the next whole unit
// beats them.
std::optional<Money> Explain::starting_bid(const Job& job, const Solver& solver) const {
    constexpr int tried_most = 64;
    const auto asker = [&](const Turn& turn) { return Asker{turn.arrival, job.key, turn.weight}; };
    const Turn own{job.weight, job.record.arrived};
    auto bid = solver.winning_bid(asker(own));
    if (!bid) return bid;
    if (job.user && job.user->record.limits.any()) {
        const auto within = Admission::bid_within(allocation_, *job.user,
                                                  job.record.report.terms.cpus, job.weight, solver);
        if (!within) return std::nullopt;
        bid = std::max(*bid, *within);
    }
    for (int tried = 0; tried < tried_most; ++tried) {
        const Turn turn = equals_.turn_at(job, *bid);
        if (turn == own) break;
        const auto least = solver.winning_bid(asker(turn));
        if (!least || *least <= *bid) break;
        bid = above(*bid);
    }
    return bid <= money_max ? bid : std::nullopt;
}

// Whether `bid`, the least that wins it a place, is what beats a job of its own user that runs or
// is on its way to. A job of several CPUs takes several places, of which that bid beats the
// dearest.
bool Explain::would_beat_own(const Job& job, Money bid) const {
    constexpr size_t looked_at_max = 256;
    if (!job.user) return false;
    const bool several = job.record.report.terms.cpus > 1;
    size_t looked_at = 0;
    for (const JobId& id : job.user->claiming) {
        if (++looked_at > looked_at_max) return false;
        const Job* const other = book_.find(id);
        if (!other || other == &job) continue;
        const Money beats =
            least_weighed(weighed(other->bid, EqualJobs::turn_of(*other).weight), job.weight);
        if (bid == beats || bid == above(beats) || (several && bid > beats)) return true;
    }
    return false;
}

Reason Explain::why_waiting(const Job& job, const Solver& solver) const {
    if (Reason gang = gangs_.why_waits(job); !gang.empty()) return gang;
    Reason impossible = places_.why_no_provider(job);
    const auto least = impossible.amount(Figure::least);  // a bid would mend it
    if (!impossible.empty() && !least) return impossible;
    const auto bid = starting_bid(job, solver);
    if (least && bid)
        return *bid > *least ? std::move(impossible).with(Figure::bid, *bid) : impossible;
    if (job.displaced) {  // by whom stays true, what would win it back changes
        Reason by_whom = job.reason;
        by_whom.drop(Figure::bid);
        return bid ? std::move(by_whom).with(Figure::bid, *bid) : by_whom;
    }
    const auto& lacking = job.record.report.lacking;
    if (!lacking.empty() && !bid)
        return Reason(ReasonCode::program_lacking).with(Figure::cause, some_of(lacking));
    if (const JobReport& r = job.record.report; !r.no_user.empty() && !bid)
        return at_node(ReasonCode::node_refused, r.no_user.back())
            .with(Figure::cause, r.why_no_user);
    for (const auto& [name, bar] : job.failed->bars)
        if (bar.active && !Places::lacks(job, name))
            return at_node(ReasonCode::node_refused, name).with(Figure::cause, bar.why);
    if (Reason taken = places_.resources().why_taken(
            job, [](const Node& node) { return Places::usable(node); });
        !taken.empty())
        return bid ? std::move(taken).with(Figure::bid, *bid) : taken;
    if (bid)
        return Reason(ReasonCode::outbid)
            .with(Figure::bid, *bid)
            .with(Figure::user, would_beat_own(job, *bid) ? job.record.report.user : "");
    if (Reason held = places_.memory_held_on(job.record.report.terms); !held.empty()) return held;
    return ReasonCode::no_room;
}

// Says what a booked place means for the job now. Empty: nothing.
Reason Explain::why_booked(const Job& job) const {
    const Contract& c = *job.record.contract;
    const bool running = job.phase() == JobPhase::running;
    switch (job.booked) {
        case Booked::no: {
            if (!is_missed(job.record.promised->end)) return {};
            Reason broken = Reason(ReasonCode::promise_broken)
                                .with(Figure::cause, words_of(job.record.promised->end))
                                .with(Figure::cause_code, to_string(job.record.promised->end));
            // It competes by its bid again.
            const auto bid =
                running || allocation_.target_of(job) ? std::nullopt : starting_bid(job, solver_);
            return bid ? std::move(broken).with(Figure::bid, *bid) : broken;
        }
        case Booked::lost: return running ? Reason() : *job.booked_why;
        case Booked::asks:
        case Booked::outside: return job.booked_why;
        case Booked::sold:
            if (!running && Promises::is_open(job))
                return at_node(ReasonCode::promised, c.node)
                    .with(Figure::opens, c.start.ns / 1'000'000'000)
                    .with(Figure::about, job.record.promised->deadline.ns / 1'000'000'000)
                    .with(Figure::price, c.price);
            if (running || job.record.report.terms.booking->early) return {};
            [[fallthrough]];
        case Booked::clears:
            return at_node(ReasonCode::reserved_from, c.node)
                .with(Figure::opens, c.start.ns / 1'000'000'000)
                .with(Figure::price, c.price);
        case Booked::holds:
            if (!running || job.record.report.where != job.booked_on) return {};
            return at_node(ReasonCode::reserved_until, c.node)
                .with(Figure::opens, c.end.ns / 1'000'000'000);
        case Booked::inside: return {};
    }
    return {};
}

// Why nothing is decided about the job now. Empty: it is free.
Reason Explain::why_pinned(const Job& job) const {
    const JobRecord& r = job.record;
    const bool running = job.phase() == JobPhase::running, frozen = job.phase() == JobPhase::frozen;
    const std::string& where = r.report.where;
    const Node* home = book_.home_of(job);
    const auto of_home = [&](ReasonCode code) {
        return Reason(code).with(Figure::home, job.id().home);
    };
    if (r.cancel && home && home->connected) return ReasonCode::cancelling;
    if (r.cancel) return of_home(ReasonCode::cancel_later);
    if (!home || !home->connected)
        return of_home(ReasonCode::home_away).with(Figure::node, running ? where : NodeName{});
    if (!job.reported) return of_home(ReasonCode::home_silent);
    if (job.phase() == JobPhase::waiting && !r.report.waits_for.empty())
        return Reason(ReasonCode::waits_for_job).with(Figure::cause, r.report.waits_for);
    if (SubmitFilter::keeps(job)) return SubmitFilter::why(job);
    if (is_lent(job)) return Reason(ReasonCode::at_site).with(Figure::cause, r.loan->site);
    if (r.unbacked) return at_node(ReasonCode::place_unbacked, where);
    const Node* at = book_.find_node(where);
    if (running && at && !at->connected) return at_node(ReasonCode::node_away, where);
    if (running && at && !r.report.paused.empty())
        return at_node(ReasonCode::paused_by_owner, where).with(Figure::cause, r.report.paused);
    if (running && at && Places::keeps_guests(*at))
        return at_node(ReasonCode::node_keeps, where).with(Figure::cause, at->record.report.cannot);
    if (frozen && at && !at->connected)
        return at_node(r.report.in_place ? ReasonCode::stands_away : ReasonCode::image_away, where);
    if (job.failed->stuck.active)
        return at_node(ReasonCode::cannot_leave, where).with(Figure::cause, job.failed->stuck.why);
    if (Reason limited = why_limited(job); !limited.empty()) return limited;
    if (r.out_of_budget)
        return Reason(ReasonCode::budget_used)
            .with(Figure::limit, r.report.terms.budget)
            .with(Figure::job, job.id().text());
    if (r.hold == Hold::by_user && !running) return ReasonCode::held_by_user;
    if (holds_back(r.hold))
        return running ? at_node(ReasonCode::being_held_frozen, where)
                       : Reason(ReasonCode::held_frozen);
    if (r.hold != Hold::at_node) return why_booked(job);
    if (running && where == r.hold_node) return at_node(ReasonCode::held_on, where);
    return at_node(ReasonCode::held_for, r.hold_node)
        .with(Figure::cause, places_.why_not_at(job, r.hold_node));
}

Reason Explain::why_limited(const Job& job) const {
    if (book_.lacks_project(job))
        return Reason(ReasonCode::no_project).with(Figure::cause, job.record.report.terms.project);
    return Admission::why(*job.user, job, job.held, book_.day_is_spent(*job.user));
}

Reason Explain::reason(const Job& job) const {
    if (const souk::Cause& why = job.record.report.why; job.phase() == JobPhase::finished)
        return why.empty() ? Reason() : Reason(ReasonCode::said).with(Figure::cause, why);
    Reason pinned = why_pinned(job);
    if (Orders::in_transit(job) && !job.record.cancel) {
        const auto& order = job.record.order;
        if (!order) return job.reason;
        for (const Reason* known : {&job.order_reason, &job.reason})
            if (known->text() == order->reason) return *known;
        return Reason::said(order->reason);
    }
    if (!pinned.empty()) return pinned;
    const bool running = job.phase() == JobPhase::running;
    if (settling_.is_on()) return running ? Reason() : Reason(ReasonCode::market_starting);
    const Node* const target = allocation_.target_of(job);
    if (!target && Places::is_rooted(job) && !running) return why_stopped(job);
    if (!target) return running ? job.reason : why_waiting(job, solver_);
    if (running && target->id() == job.record.report.where) {
        const ProviderReport& r = target->record.report;
        if (r.on_market && r.opens.ns > 0)
            return at_node(ReasonCode::closes_soon, r.node)
                .with(Figure::opens, r.opens.ns / 1'000'000'000);
        Reason unsure = why_unsure(job);
        return unsure.empty() ? job.reason : unsure;
    }
    if (!Admission::has_room(job)) return ReasonCode::room_of_user;
    return at_node(ReasonCode::room_on_node, target->id()).with(Figure::before, job.reason.text());
}

std::vector<Reason> Explain::reasons(const Job& job, Nanos now) const {
    constexpr size_t nodes_shown = 16;
    const JobReport& r = job.record.report;
    if (job.phase() == JobPhase::finished)
        return {Reason(ReasonCode::ended).with(Figure::cause, r.why)};
    std::vector<Reason> all;
    const auto add = [&](const Reason& reason) {
        const std::string text = reason.text();
        const auto same = [&](const Reason& known) { return known.text().ends_with(text); };
        if (!reason.empty() && std::none_of(all.begin(), all.end(), same)) all.push_back(reason);
    };
    const bool running = job.phase() == JobPhase::running;
    if (running && !job.record.unbacked) add(at_node(ReasonCode::runs, r.where));
    add(reason(job));
    add(why_unsure(job));
    if (!r.terms.sites->names.empty()) add(*job.site_word);
    if (Places::stands(job)) add(at_node(ReasonCode::stands_here, r.where));
    if ((running || r.in_place) && !r.cannot_move.empty())
        add(Reason(ReasonCode::cannot_move).with(Figure::cause, r.cannot_move));
    if (!r.image_stays.empty())
        add(Reason(ReasonCode::image_waits).with(Figure::cause, r.image_stays));
    if (!job.failed->last.empty())
        add(Reason(ReasonCode::order_failed).with(Figure::cause, job.failed->last));
    for (const auto& [name, bar] : job.failed->bars)
        if (bar.active && all.size() < nodes_shown)
            add(at_node(ReasonCode::node_refused, name).with(Figure::cause, bar.why));
    if (running || Orders::in_transit(job) || !why_pinned(job).empty() || r.terms.cpus > 1)
        return all;
    const Reason none = places_.why_no_provider(job);
    if (!none.empty() && !none.amount(Figure::least)) return all;
    const Nanos unix = context_.unix(now);
    // The history of a young market does not reach back a day.
    if (!bids_.history().reaches(minute_of(unix) - day_minutes)) return all;
    if (const auto minute = bids_.history().first_below(minute_of(unix) - day_minutes, job.bid))
        add(Reason(ReasonCode::by_yesterday).with(Figure::about, (*minute + day_minutes) * 60));
    return all;
}

Reason Explain::reason(const Node& node, Nanos now) const {
    const ProviderReport& r = node.record.report;
    if (!node.connected)
        return now < node.lost_at + context_.options.grace ? ReasonCode::node_disconnected
                                                           : ReasonCode::node_lost;
    if (!node.record.has_report || !r.on_market) {
        Reason off = ReasonCode::node_off;
        return r.opens.ns > 0 ? std::move(off).with(Figure::opens, r.opens.ns / 1'000'000'000)
                              : off;
    }
    if (!r.cannot.empty()) return Reason(ReasonCode::node_unable).with(Figure::cause, r.cannot);
    const auto bid = solver_.next_price(node.key);
    if (node.used_cpus < r.cpus && bid)
        return Reason(ReasonCode::node_open).with(Figure::bid, *bid);
    Reason full = Reason(ReasonCode::node_full)
                      .with(Figure::count, std::to_string(node.used_cpus))
                      .with(Figure::cpus, int64_t{r.cpus});
    return bid ? std::move(full).with(Figure::bid, *bid) : full;
}

void Explain::refresh_comments(Nanos now) {
    comment_rounds_.refresh(
        now, book_.jobs(), book_.nodes().size(),
        [](const Job& job) {
            return job.phase() == JobPhase::waiting || job.phase() == JobPhase::frozen;
        },
        [this](Job& job) { notes_.of(job); });
}

const char* Explain::provider_state(const Node& node, Nanos now) const {
    const ProviderReport& r = node.record.report;
    if (!node.connected)
        return now < node.lost_at + context_.options.grace ? "disconnected" : "lost";
    if (!node.record.has_report || !r.on_market) return "off";
    if (!r.cannot.empty()) return "unable";
    return node.used_cpus > 0 ? "busy" : "free";
}

void Explain::describe(const Job& job, Nanos now, JsonWriter& j) const {
    const JobRecord& r = job.record;
    j.field("job", job.id().text()).field("phase", to_string(job.phase())).field("key", job.key.n);
    if (!r.report.where.empty()) j.field("where", r.report.where);
    if (!r.report.to.empty()) j.field("to", r.report.to);
    j.field("epoch", r.report.epoch.n).field("bid", job.bid).field("price", r.price);
    if (r.order) write_order(j, job, now);
    if (r.hold != Hold::none) j.field("hold", to_string(r.hold)).field("hold_node", r.hold_node);
    if (job.held != Job::Held::none) j.field("held_by_limit_of", to_string(job.held));
    if (job.once) j.field("once", job.once->empty() ? "freeze" : *job.once);
    if (!job.via.empty()) j.field("via", job.via);
    j.key("claims").begin_array();
    for (const NodeName& node : job.claims)
        if (!node.empty()) j.value(node);
    j.end_array().key("flags").begin_array();
    for (const auto& [name, set] : {std::pair{"reported", job.reported},
                                    {"in_solver", job.in_solver},
                                    {"cancel", r.cancel},
                                    {"out_of_budget", r.out_of_budget},
                                    {"rooted", places_.rooted().contains(job.id())},
                                    {"displaced", job.displaced},
                                    {"in_transit", Orders::in_transit(job)}})
        if (set) j.value(name);
    j.end_array();
    write_backoff(j, "stuck", job.failed->stuck, now);
    j.key("not_on").begin_array();
    for (const auto& [node, bar] : job.failed->bars)
        if (bar.active) j.value(node + ": " + bar.why);
    j.end_array();
    if (job.alarm != Nanos::never()) j.field("alarm_s", (job.alarm - now).seconds());
    if (!job.failed->last.empty()) j.field("last_failed", job.failed->last);
    if (!job.reason.empty()) j.field("comment", job.reason.text());
}

void Explain::describe(const Node& node, Nanos now, JsonWriter& j) const {
    j.field("node", node.id()).field("state", provider_state(node, now)).field("key", node.key.n);
    j.field("connected", node.connected);
    if (!node.connected) j.field("away_s", (now - node.lost_at).seconds());
    j.field("used_cpus", node.used_cpus)
        .field("used_mb", node.used_mb)
        .field("rooted_mb", node.rooted_mb);
    if (node.record.has_report)
        j.field("cpus", node.record.report.cpus).field("memory_mb", node.record.report.memory_mb);
    j.field("room_mb", node.room_mb).field("in_solver", node.in_solver).key("jobs").begin_array();
    for (const auto& [id, job] : node.jobs) j.value(id.text());
    j.end_array();
}

}  // namespace souk::market
