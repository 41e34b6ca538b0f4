// SPDX-License-Identifier: GPL-2.0-or-later
// --booked: the real market gives the orders, and jobs ask for places for later, for limits of
// their run time and for promised deadlines. See cluster.hpp and booked_watch.hpp. In three seeds
// of ten nothing fails but that owners come and go. In each seed more jobs come when all is healed:
// nothing excuses what is sold to them.
#include <algorithm>

#include "kernel/base/check.hpp"
#include "tests/sim/cluster.hpp"

namespace souk::sim {

namespace {

// When all is healed, what was slow may take so long still.
constexpr Nanos calms_down = Nanos::from_s(120);
constexpr Nanos faults_end = Nanos::from_s(180);

}  // namespace

void Cluster::open_book() {
    if (bookings_.chance(0.3)) {
        calm_ = true;
        crash_chance_ = break_chance_ = fail_chance_ = slow_chance_ = death_chance_ = 0;
        undumpable_ = 0;
        disks_fill_ = false;
    }
    book_.on_ticket = [this](Ticket t) {
        t.issued = now_;
        t.expires = now_ + ticket_life;
        tickets_.insert_or_assign(t.number, std::move(t));
    };
    book_.on_decided = [this](const market::JobRecord& r) { booked_.decided(r); };
    book_.on_receipt = [this](const market::Receipt& r) { booked_.posted(r, now_); };
    book_.on_stored = [this](const market::JobRecord& r) {
        if (const auto at = booked_.stored(r, now_)) to_look_at_.emplace_back(r.report.id, *at);
    };
    if (!tracing_) return;
    book_trace_ = std::make_unique<NodeTrace>(*this, "market");
    book_.tell_to(book_trace_.get());
}

// ----------------------------------------------------------------------------------------------
// users

void Cluster::ask_for_place(Submission& s) {
    JobTerms& t = s.terms;
    t.cpus = static_cast<int32_t>(bookings_.between(1, 3));
    if (bookings_.chance(0.3)) {
        t.limits.edit().run = Nanos::from_s(bookings_.between(5, 60));
        if (bookings_.chance(0.5)) t.limits.edit().at_speed = 100;
    }
    const uint64_t what = bookings_.below(10);
    if (what < 2) return;
    t.max_price = Money::units(bookings_.between(50, 200));
    Booking& b = t.booking.edit();
    if (what < 6) {
        const Nanos ahead = Nanos::from_s(bookings_.between(5, 120));
        if (bookings_.chance(0.8)) b.start = now_ + ahead;
        b.span = Nanos::from_s(bookings_.between(20, 120));
        b.early = bookings_.chance(0.3);
        b.holds = bookings_.chance(0.2);
        return;
    }
    b.promise = true;
    if (bookings_.chance(0.7)) t.runtime = Nanos::from_s(bookings_.between(5, 100));
    const Nanos needs = t.limits->run.ns > 0 ? t.limits->run : t.runtime;
    t.finish = needs + Nanos::from_s(bookings_.between(10, 120));
}

void Cluster::submit_quiet_jobs() {
    for (int64_t i = bookings_.between(2, 8); i > 0; --i)
        after(calms_down + Nanos::from_ms(bookings_.between(1'000, 100'000)),
              [this] { submit_job(); });
}

// Owners take back what they have said of a part of their nodes.
void Cluster::owner_lends_all(Node& n) {
    if (!n.up || n.provider->overrides().empty()) return;
    provider_step(n, [&](Provider& p, provider::Outputs& out) {
        for (const char* const name : {"cpus", "memory", "share"})
            if (const Status unset = p.unset(name, wall(), out); !unset)
                say(n.name, " has nothing to take back: ", unset.error().message);
    });
    n.share_said = {};
    n.cpus_said = 4;
    if (n.up) bound_guests(n);
}

// In the end users to whom nothing could be sold want no place for later any more.
void Cluster::wants_end(Node& n) {
    std::vector<std::pair<JobId, JobTerms>> jobs;
    for (const auto& [seq, job] : n.up ? n.home->jobs() : std::map<uint64_t, HomeJob>{})
        if (job.phase != JobPhase::finished && job.terms.booking->asks() &&
            !booked_.place_of(job.id))
            jobs.emplace_back(job.id, job.terms);
    for (auto& [id, terms] : jobs)
        home_step(n, [&, id = id, terms = terms](Home& h, home::Outputs& out) mutable {
            if (!terms.booking->holds) {
                terms.booking.clear();
                (void)h.change(id, terms, now_, out);
            } else if (h.cancel(id, now_, out)) {
                world_.truths[id].cancelled = true;
            }
        });
}

// ----------------------------------------------------------------------------------------------
// what the market hears and says

void Cluster::connect_book(Node& n) {
    book_.lost(n.name, now_);
    if (!size_.booked) return book_.connected(n.name, Book::usual_offer(n.name), now_);
    ProviderReport offer = n.provider->report();
    booked_.offers(n.name, &offer, now_);
    if (mutation_ == Mutation::sold_twice) offer.cpus *= 2;
    book_.connected(n.name, offer, now_);
}

void Cluster::offer_changes(Node& n, const ProviderReport& offer) {
    if (!size_.booked || !n.market_up) return;
    ProviderReport told = offer;
    if (mutation_ == Mutation::sold_twice) told.cpus *= 2;
    market_leaves(n, told);
}

void Cluster::market_says(const NodeName& name, const FromMarket& message) {
    Node& n = node(name);
    const auto* const note = std::get_if<JobNote>(&message);
    if (!n.market_up || (note && note->settled && !size_.booked)) return;  // the toy market's word
    n.last_from_market = std::max(n.last_from_market + Nanos{1}, now_ + ms(0, 5));
    after(n.last_from_market - now_, [this, message, name, gen = n.market_gen] {
        Node& on = node(name);
        if (!on.up || on.market_gen != gen) return;
        if (const auto* order = std::get_if<Order>(&message)) return order_comes(on, *order);
        const auto& of = std::get<JobNote>(message);
        if (size_.booked) booked_.told(of);
        home_step(on, [&](Home& h, home::Outputs& out) { h.note(of, now_, out); });
    });
}

void Cluster::order_comes(Node& n, const Order& order) {
    const market::Contract* const place = booked_.place_of(order.id);
    const bool begins = place && order.kind == Order::Kind::run && now_ >= place->start;
    if (begins && mutation_ == Mutation::place_forgotten) return;
    for (const NodeName& name : names_)
        if (order.stand || (order.kind == Order::Kind::run && name == order.node))
            leave_watch_.to_stay(order.id, name, now_);
    say("market -> ", n.name, " job ", order.id.text(), " ", to_string(order.kind), " ", order.node,
        " ", order.seq);
    home_takes(n, order);
}

// A home ends a job that nobody has cancelled: its time must be over.
void Cluster::ends_by_limit(const HomeJob& job) {
    Truth& t = world_.truths[job.id];
    if (!job.cancelled || t.cancelled || t.ended) return;
    t.cancelled = true;
    ++counts_.limited;
    const RunLimits limits = *job.terms.limits;
    const Booking& b = *job.terms.booking;
    Nanos ran{t.frontier};
    for (const auto* c : world_.capsules.of(job.id))
        ran = std::max(ran, Nanos{world_.progress(c->second, now_)});
    const JobStats& s = job.stats;
    const int64_t stops = s.freezes + s.thaws + s.migrations + s.failed_moves + t.pauses +
                          t.stands + static_cast<int64_t>(epochs_[job.id].size());
    const bool untold = !calm_ || t.went_back;
    const bool has_run =
        limits.run.ns > 0 && (untold || ran + Nanos::from_ms(500 * (stops + 1)) >= limits.run);
    const market::Contract* const place = booked_.place_of(job.id);
    const bool asked_end = b.start.ns > 0 && b.start + b.span <= now_;
    const bool is_over = b.holds && (asked_end || !place || place->end <= now_);
    if (!has_run && !is_over)
        world_.fail(job.id, "is ended after " + std::to_string(ran.seconds()) +
                                " s, and neither its limit nor its place is over");
}

// ----------------------------------------------------------------------------------------------
// what is looked at

// Nothing has failed since then, but for owners.
Nanos Cluster::calm_since() const {
    if (calm_) return {};
    return faults_ ? Nanos::never() : faults_end + calms_down;
}

void Cluster::see_places() {
    if (!size_.booked) return;
    booked_.all_decided(now_);
    for (const auto& [id, at] : std::exchange(to_look_at_, {})) {
        after(at - now_, [this, id = id] { look_at_place(id); });
    }
    if (world_.failure.empty()) world_.failure = booked_.failure;
}

void Cluster::look_at_place(const JobId& id) {
    const Truth& t = world_.truths[id];
    if (!booked_.is_due(id, now_) || t.ended || t.cancelled || t.destroyed) return;
    const market::Contract place = *booked_.place_of(id);
    const auto copies = world_.capsules.of(id);
    // It may stand still just now for a checkpoint.
    const bool is_there = std::ranges::any_of(copies, [&](const auto* entry) {
        const Capsule& c = entry->second;
        const bool is_dumped = c.alive && c.job && c.frozen && c.dumped && !c.stood && !c.lapsed;
        return entry->first.first == place.node && (c.progressing() || is_dumped);
    });
    const bool is_paused =
        std::ranges::any_of(copies, [](const auto* c) { return c->second.paused; });
    // The news of the last seconds may be on their way to its home.
    const bool quiet =
        now_ >= BookedWatch::late + std::min(calm_since(), now_) && node(id.home).market_up;
    const std::string why = excuse(id, place);
    booked_.look(id, is_there, why, quiet && !is_paused && why.empty());
    if (world_.failure.empty()) world_.failure = booked_.failure;
}

// Why a job may not run in its place now. Empty: there is no such reason.
std::string Cluster::excuse(const JobId& id, const market::Contract& place) {
    const Nanos since = place.start - Nanos::from_s(60);
    const Truth& t = world_.truths[id];
    if (std::max(since, place.sold) < calm_since()) return "a fault";
    if (t.lacking.contains(place.node)) return "its program is not there";
    if (t.cannot_dump) return "it cannot move";
    const auto of_owner = [&](const NodeName& name) { return booked_.changed(name) >= since; };
    if (of_owner(place.node)) return "the owner of " + place.node;
    for (const auto* c : world_.capsules.of(id))
        if (of_owner(c->first.first)) return "the owner of " + c->first.first;
    const bool owners = std::ranges::any_of(names_, of_owner);
    for (const auto& [at, c] : world_.capsules.on(place.node)) {
        if (world_.truths[at.second.id].cannot_dump) return "who cannot leave is there";
        // Its image leaves at the rate of another owner, and the room is taken meanwhile.
        if (at.second.id != id && !c.job && owners) return "another job is on its way there";
    }
    const Node& home = node(id.home);
    if (!home.up || !home.market_up) return "its home is away";
    const HomeJob* const job = home.home->find(id);
    if (!job || job->cancelled || job->phase == JobPhase::finished) return "it has ended";
    return job->terms.budget.micro > 0 ? "its budget" : "";
}

void Cluster::judge_promises() {
    booked_.judge(world_, calm_ ? Nanos{} : faults_end + calms_down);
    if (world_.failure.empty()) world_.failure = booked_.failure;
}

}  // namespace souk::sim
