// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/reservations.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

#include "market/core/open_hours.hpp"
#include "market/core/submit_filter.hpp"

namespace souk::market {

namespace {

// A contract of another begins or ends.
struct RoomStep {
    Nanos at;
    bool begins;
    int64_t cpus, memory_mb;
};

constexpr Nanos hour = Nanos::from_s(3'600);

// It needs no more than what was sold.
bool is_within(const JobTerms& t, const Contract& c) {
    return t.cpus <= c.cpus && t.memory_mb <= c.memory_mb && t.resources == c.resources;
}

bool has_ended(const Job& job) { return job.phase() == JobPhase::finished; }

// The cheapest for its speed is the first.
bool before(Money a, const Node& x, Money b, const Node& y) {
    const ProviderReport &rx = x.record.report, &ry = y.record.report;
    const auto wide_a = static_cast<__int128>(a.micro) * ry.speed,
               wide_b = static_cast<__int128>(b.micro) * rx.speed;
    if (wide_a != wide_b) return wide_a < wide_b;
    return std::tuple(-rx.speed, x.id()) < std::tuple(-ry.speed, y.id());
}

}  // namespace

const char* to_string(Booked booked) {
    switch (booked) {
        case Booked::no: return "no";
        case Booked::asks: return "asked";
        case Booked::sold: return "sold";
        case Booked::clears: return "clearing";
        case Booked::holds: return "held";
        case Booked::lost: return "lost";
        case Booked::inside: return "inside";
        case Booked::outside: return "outside";
    }
    return "?";
}

bool Reservations::is_asked(const Job& job) {
    const Booking& b = *job.record.report.terms.booking;
    return b.asks() || b.holds || !b.within.empty() || job.record.contract->is_sold();
}

void Reservations::note(const Job& job) {
    if (!is_asked(job) && !booked_.contains(job.id())) return;
    booked_.insert(job.id());
    fresh_.insert(job.id());
    gangs_.list(job);
    changed_ = true;
}

void Reservations::put(Job& job, Booked booked, const NodeName& on, Reason why) {
    if (job.booked == booked && job.booked_on == on && *job.booked_why == why) return;
    const bool counts = job.booked == Booked::inside || booked == Booked::inside;
    job.booked = booked;
    job.booked_on = on;
    job.booked_why = std::move(why);
    if (counts) rooms_.claim(job);
    work_.touch(job);
}

void Reservations::look(Nanos now) {
    if (!std::exchange(changed_, false) && now < next_) return;
    next_ = Nanos::never();
    unix_ = context_.unix(now);
    forget_ended();
    kept_.forget(unix_);
    list_sold();
    list_ahead();
    // The report of one job is no reason to look at the promises of all others.
    const bool any = std::exchange(nodes_changed_, false);
    for (const JobId& id : booked_)
        if (Job& job = *book_.find(id); job.record.contract->is_sold())
            see_contract(job, any || fresh_.contains(id), now);
    ask_all(now);
    inside_.place(booked_, [this](Job& job, Booked booked, const NodeName& on, Reason why) {
        put(job, booked, on, std::move(why));
    });
    forecast_.reset();
    sold_.clear();
}

// New requests are looked at now, and the others some at a time: a price may have fallen, or room
// have come. One look goes over so many contracts at most, as the market stands meanwhile, and the
// next one goes on with the rest.
void Reservations::ask_all(Nanos now) {
    constexpr size_t looked_at_most = 200'000;
    constexpr Nanos soon = Nanos::from_ms(10);
    std::set<std::string> gangs;
    looked_at_ = 0;
    const auto may_go_on = [&] { return looked_at_ < looked_at_most; };
    while (!fresh_.empty() && may_go_on()) {
        const JobId id = *fresh_.begin();
        fresh_.erase(fresh_.begin());
        if (booked_.contains(id)) ask(id, unix_, gangs);
    }
    if (!fresh_.empty()) next_ = std::min(next_, now + soon);
    if (now >= retry_at_) {
        auto id = booked_.upper_bound(asked_last_);
        for (; asked_ < asked_at_once && id != booked_.end() && may_go_on(); ++asked_, ++id) {
            ask(*id, unix_, gangs);
            asked_last_ = *id;
        }
        const bool at_end = id == booked_.end();
        const bool goes_on = !at_end && asked_ < asked_at_once;
        if (at_end) asked_last_ = {};
        if (!goes_on) asked_ = 0;
        retry_at_ = now + (goes_on ? soon : retry_after);
    }
    const bool waits = std::any_of(booked_.begin(), booked_.end(), [&](const JobId& id) {
        const Job& job = *book_.find(id);
        return job.record.report.terms.booking->asks() && !job.record.contract->is_sold();
    });
    if (waits) next_ = std::min(next_, retry_at_);
}

void Reservations::forget_ended() {
    for (auto it = booked_.begin(); it != booked_.end();) {
        Job* const job = book_.find(*it);
        if (job && !has_ended(*job) && Promises::is_open(*job) && Promises::wanted(*job).ns == 0) {
            promises_.ends(*job, now());  // its user gives the promise up
            job->record.contract.clear();
            book_.save(*job);
        }
        const bool gone = !job || has_ended(*job) || !is_asked(*job);
        if (gone && job) put(*job, Booked::no, {});
        if (gone && job) promises_.ends(*job, now());
        if (gone) followed_until_.erase(*it);
        if (gone && job && is_component(*job)) gang_followed_.erase(gang_name(*job));
        it = gone ? booked_.erase(it) : std::next(it);
    }
}

void Reservations::list_sold() const {
    sold_.clear();
    for (const JobId& id : booked_) {
        const Job& job = *book_.find(id);
        const Contract& c = *job.record.contract;
        if (c.is_sold() && !c.over && !c.node.empty()) sold_[c.node].push_back(&job);
    }
    for (const auto& [of, job] : kept_.jobs())
        if (const Contract& c = *job.record.contract; c.end > unix_) sold_[c.node].push_back(&job);
}

// Whoever waits for a device that is kept for others may begin no more, or now.
void Reservations::list_ahead() {
    std::vector<ResourceBook::Ahead> all;
    for (const auto& [node, jobs] : sold_)
        for (const Job* const job : jobs)
            if (const Contract& c = *job->record.contract; !c.resources.empty())
                all.push_back({job->id(), node, *c.resources, c.start, c.end});
    const bool any = !all.empty();
    const bool other = places_.resources().set_ahead(all, unix_);
    if (any) next_ = std::min(next_, retry_at_);
    if (!other && (!any || unix_ < ahead_told_ + retry_after)) return;
    ahead_told_ = unix_;
    for (auto& [id, job] : book_.jobs())
        if (!job.record.report.terms.resources.empty() && !has_ended(job)) work_.touch(job);
}

// The job asks for what it was sold. A start that is past is not moved by that.
bool Reservations::covers(const Contract& c, const Job& job, Nanos unix) {
    const JobTerms& t = job.record.report.terms;
    const Booking& b = *t.booking;
    // The components of a gang were submitted one after the other, and have one deadline.
    const Nanos deadline = Promises::wanted(job);
    const bool is_that =
        is_component(job) ? job.record.promised->deadline == c.end : c.end == deadline;
    if (b.promise) return is_that && is_within(t, c);
    const Nanos end = (b.start.ns > 0 ? b.start : c.start) + b.span;
    const bool begins = b.start.ns == 0 || b.start == c.start || (b.start < unix && c.start < unix);
    const bool fits = is_within(t, c);
    return begins && end == c.end && (fits || c.over);
}

// -------------------------------------------------------------------------------------------------
// what was sold

// The jobs that may have to leave carry at most what the node holds, or what is sold of it.
Nanos Reservations::clearing_of(const Contract& c) const {
    const Node* const node = book_.find_node(c.node);
    if (!node) return clear_least;
    const ProviderReport& r = node->record.report;
    // Whoever has named resources of it may be anywhere, and is written down as well.
    if (c.resources.empty() && node->used_cpus + c.cpus <= r.cpus &&
        node->used_mb + c.memory_mb <= r.memory_mb)
        return clear_least;
    const int64_t mb = std::max<int64_t>(c.memory_mb, node->used_mb + c.memory_mb - r.memory_mb);
    const int64_t rate = std::max<int64_t>(1, solver_.options().link_bytes_per_s);
    const Nanos carried = Nanos::from_s(std::min<int64_t>(300, mb * 1'000'000 / rate));
    return std::min(clear_most, clear_least + carried);
}

void Reservations::see_contract(Job& job, bool is_fresh, Nanos now) {
    Contract& c = job.record.contract.edit();
    const auto wake_at = [&](Nanos unix) { next_ = std::min(next_, now + (unix - unix_)); };
    // A clock that was wrong may be set back.
    if (c.over != (unix_ >= c.end)) {
        c.over = !c.over;
        book_.save(job);
    }
    if (c.over) {
        // A report of its end may still be on its way, after a restart of the market as well.
        const Nanos judged = c.end + Promises::heard_within;
        if (!Promises::is_open(job)) return put(job, Booked::no, {});
        if (settling_.is_on() || unix_ < judged)
            wake_at(std::max(judged, unix_ + Nanos::from_s(1)));
        else
            promises_.ends(job, now);
        return put(job, Booked::no, {});
    }
    wake_at(c.end);
    // A clearing that has begun goes on: when the others have left there is less to clear.
    const bool begun = job.booked == Booked::clears || job.booked == Booked::holds;
    const bool promised = Promises::is_open(job);
    if (promised && !begun && !settling_.is_on()) follow_promise(job, is_fresh, now);
    const Nanos clears = c.start - clearing_of(c);
    if (unix_ < clears && !begun) {
        // How much is to be cleared is known when it is near.
        wake_at(unix_ < c.start - clear_most ? c.start - clear_most
                                             : std::min(clears, unix_ + Nanos::from_s(10)));
        if (promised)
            wake_at(settling_.is_on() ? unix_ + Nanos::from_s(10) : followed_until_[job.id()]);
        return put(job, Booked::sold, c.node, job.booked_why);
    }
    if (!settling_.is_on()) keep_place(job, c, unix_);
    if (c.node.empty()) return put(job, Booked::lost, {}, ReasonCode::place_lost);
    if (unix_ < c.start) {
        wake_at(c.start);
        return put(job, Booked::clears, c.node, job.booked_why);
    }
    put(job, Booked::holds, c.node, job.booked_why);
    if (!promised || settling_.is_on()) return;
    promises_.holds(job, now);
    wake_at(unix_ + Nanos::from_s(5));
}

// Looks at what the job has done, or at what all components of its gang have, in turns of a second.
void Reservations::follow_promise(Job& job, bool is_fresh, Nanos now) {
    constexpr Nanos gang_pause = Nanos::from_s(1);
    if (!is_fresh && unix_ < followed_until_[job.id()]) return;
    std::vector<Job*> all{&job};
    if (is_component(job)) {
        const auto [last, is_new] = gang_followed_.try_emplace(gang_name(job), unix_);
        if (!is_new && unix_ >= last->second && unix_ < last->second + gang_pause) {
            followed_until_[job.id()] = last->second + gang_pause;
            return;
        }
        last->second = unix_;
        followed_until_[job.id()] = unix_ + Nanos::from_s(10);
        all.clear();
        for (Job* const one : gangs_.of(job)) {
            if (one->booked == Booked::clears || one->booked == Booked::holds) return;
            const Contract& c = *one->record.contract;
            if (Promises::is_open(*one) && c.is_sold() && !c.over) all.push_back(one);
        }
    }
    const Nanos start = job.record.contract->start;
    ++followed_;
    promises_.follow(all, solver_.options().link_bytes_per_s, now);
    const bool other = job.record.contract->start != start;
    if (other) list_ahead();
    for (Job* const one : all) {
        if (other) work_.touch(*one);  // an algorithm that looks ahead goes by it
        const Contract& c = *one->record.contract;
        followed_until_[one->id()] = unix_ + Promises::looked_after(c.start - unix_);
    }
}

// The components of its gang that have places, as they are picked.
PlacePicks Reservations::siblings(const Job& job) const {
    PlacePicks picks;
    if (!is_component(job)) return picks;
    for (Job* const other : gangs_.of(job)) {
        const Contract& c = *other->record.contract;
        const Node* const node = book_.find_node(c.node);
        if (other != &job && c.is_sold() && !c.over && node)
            picks.push_back({other, node, c.price});
    }
    return picks;
}

// The most that its owner asks in that time, as far as he has said.
Money Reservations::most_asked(const ProviderReport& r, Span span) {
    Money most = r.hours.empty() ? r.reserve : Money{};
    const Nanos end = std::min(span.end, span.start + Nanos{week_ns});
    for (Nanos at = span.start; at < end;) {
        const OpenHours* const h = hours_at(r, at);
        if (!h) return std::max(most, r.reserve);
        most = std::max(most, h->price);
        at = at + left_of(*h, at);
    }
    return most;
}

// The owner gives back what the place has cost only where it is seen that he has taken the room
// away: what a user asks for since he bought it, what a home says that a node lacks, and what
// others have there, are no deeds of his.
PromiseEnd Reservations::why_lost(const Job& job, const Contract& c, const Node* node) const {
    if (!node || !Places::usable(*node)) return PromiseEnd::owner_left;
    const JobTerms& t = job.record.report.terms;
    const bool meets = places_.meets_needs(job, *node);
    if (!is_within(t, c) || (*t.needs != *c.needs && !meets)) return PromiseEnd::held_back;
    const ProviderReport& r = node->record.report;
    const bool shrank = c.cpus > r.cpus || c.memory_mb > r.memory_mb || !meets ||
                        places_.resources().lacks(t, *node).has_value();
    return shrank ? PromiseEnd::owner_left : PromiseEnd::cannot_move;
}

// A contract whose node is gone, or has become too small, gets another one.
void Reservations::keep_place(Job& job, Contract& c, Nanos unix) {
    const Node* const node = book_.find_node(c.node);
    const Span rest{std::max(unix, c.start), c.end};
    const bool is_there = job.phase() == JobPhase::running && job.record.report.where == c.node;
    const PlacePicks beside = siblings(job);
    if (node && (is_there ? places_.may_run_at(job, *node) || Places::keeps_guests(*node)
                          : Places::usable(*node) && has_room(job, *node, rest, beside)))
        return;
    const Node* best = nullptr;
    for (const auto& [name, other] : book_.nodes())
        if (has_room(job, other, rest, beside) && is_open(other.record.report, rest) &&
            most_asked(other.record.report, rest) +
                    places_.resources().reserve_of(job.record.report.terms, other) <=
                c.price &&
            (!best || before(c.price, other, c.price, *best)))
            best = &other;
    if (!best && c.node.empty()) return;
    if (!c.node.empty()) {
        ++c.places_lost;
        promises_.lost(job, why_lost(job, c, node), now());
        std::erase(sold_[c.node], &job);
    }
    c.node = best ? best->id() : NodeName{};
    if (best) sold_[c.node].push_back(&job);
    list_ahead();
    book_.save(job);
}

// -------------------------------------------------------------------------------------------------
// what is asked for

void Reservations::ask(const JobId& id, Nanos unix, std::set<std::string>& gangs) {
    Job& job = *book_.find(id);
    const Booking& b = *job.record.report.terms.booking;
    const Contract& c = *job.record.contract;
    if (!b.asks() || !job.reported || settling_.is_on()) return;
    if (c.is_sold() && covers(c, job, unix)) return;
    const bool late = !b.promise && b.start.ns > 0 && b.start + b.span <= unix;
    if (late) return put(job, Booked::no, {});
    std::vector<Job*> all{&job};
    if (is_component(job)) {
        if (!gangs.insert(gang_name(job)).second) return;
        all = gangs_.of(job);
        if (all.size() < job.record.report.components) return;
    }
    if (std::ranges::any_of(all, [](const Job* one) { return SubmitFilter::keeps(*one); })) return;
    if (b.promise) return ask_promise(std::move(all), unix);
    const Nanos start = b.start.ns > 0 ? std::max(b.start, unix) : unix;
    if (is_too_much({all.begin(), all.end()}, unix)) {
        for (Job* const one : all)
            if (!one->record.contract->is_sold())
                put(*one, one->phase() == JobPhase::waiting ? Booked::asks : Booked::no, {},
                    ReasonCode::place_not_sold);
        return;
    }
    const Span span{start, (b.start.ns > 0 ? b.start : unix) + b.span};
    const PlacePicks picks = picks_of({all.begin(), all.end()}, span, false);
    if (!picks.empty()) return sell(picks, span, unix);
    // A contract of before goes on to hold for a job that is no larger than that.
    const Reason why = why_not_sold({all.begin(), all.end()}, span);
    for (Job* const one : all) {
        const Contract& had = *one->record.contract;
        if (had.is_sold() && is_within(one->record.report.terms, had))
            one->booked_why = why;
        else
            put(*one, one->phase() == JobPhase::waiting ? Booked::asks : Booked::no, {}, why);
    }
}

// A deadline that cannot be promised is asked about again, as places that cannot be sold are.
void Reservations::ask_promise(std::vector<Job*> all, Nanos unix) {
    const auto is_no_part = [&](Job* one) {
        if (is_optional(*one)) put(*one, Booked::no, {});
        return is_optional(*one);
    };
    std::erase_if(all, is_no_part);
    if (std::ranges::any_of(all, [&](Job* one) { return Promises::wanted(*one) <= unix; })) {
        for (Job* const one : all) put(*one, Booked::no, {});
        return;
    }
    if (all.empty()) return;
    PromiseOffer offer;
    if (is_too_much({all.begin(), all.end()}, unix))
        offer.why = ReasonCode::place_not_sold;
    else
        offer =
            promises_.offer({all.begin(), all.end()}, solver_.options().link_bytes_per_s, now());
    if (offer.node) {
        promises_.sold(all, offer, now());
        for (PlacePick& pick : offer.picks) pick.price = offer.price;
        return sell(offer.picks, offer.span, unix);
    }
    for (Job* const one : all)
        if (one->record.contract->is_sold() && !one->record.contract->over)
            one->booked_why = offer.why;
        else
            put(*one, one->phase() == JobPhase::waiting ? Booked::asks : Booked::no, {}, offer.why);
}

PromiseOffer Reservations::promise_offer(const std::vector<const Job*>& all, Nanos now) const {
    unix_ = context_.unix(now);
    list_sold();
    PromiseOffer offer;
    if (is_too_much(all, unix_))
        offer.why = ReasonCode::place_not_sold;
    else
        offer = promises_.offer(all, solver_.options().link_bytes_per_s, now);
    sold_.clear();
    forecast_.reset();
    return offer;
}

bool Reservations::is_in_hours(const Job& job, Span span) const {
    return job.user->is_open(context_.second_of_week(span.start), span.end - span.start);
}

std::optional<Money> Reservations::price_at(const Job& job, const Node& node, Span span,
                                            const PlacePicks& beside) const {
    if (!is_in_hours(job, span)) return std::nullopt;
    if (!forecast_) forecast_.emplace(bids_.history().rows());
    const Nanos length = span.end - span.start;
    if (length.ns <= 0 || length > span_most || span.end > unix_ + ahead_most) return std::nullopt;
    if (!is_open(node.record.report, span) || !has_room(job, node, span, beside))
        return std::nullopt;
    return std::min(money_max, price_of(node, span, unix_, {&job}) +
                                   places_.resources().reserve_of(job.record.report.terms, node));
}

Money Reservations::asked_at(const Job& job, const Node& node, Span span) const {
    return std::min(money_max, most_asked(node.record.report, span) +
                                   places_.resources().reserve_of(job.record.report.terms, node));
}

std::vector<Nanos> Reservations::moments_after(Nanos from) const {
    std::set<Nanos> moments;
    for (const auto& [node, jobs] : sold_)
        for (const Job* const job : jobs)
            if (const Contract& c = *job->record.contract; c.end > from) {
                moments.insert(c.end);
                // A device comes a little later.
                if (!c.resources.empty()) moments.insert(c.end + ResourceBook::leaves_within);
            }
    for (const auto& [name, node] : book_.nodes())
        for (const OpenHours& h : node.record.report.hours)
            moments.insert(from + Nanos{week_ns} - into_week(Nanos::from_s(h.from_s), from));
    return {moments.begin(), moments.end()};
}

void Reservations::place_at(Job& job, const Node* node) {
    Contract& c = job.record.contract.edit();
    const NodeName name = node ? node->id() : NodeName{};
    if (name == c.node) return;
    std::erase(sold_[c.node], &job);
    c.node = name;
    if (node) sold_[name].push_back(&job);
    list_ahead();
    book_.save(job);
}

// One user buys no more CPUs than he may use, nothing that he cannot pay today, and nothing that is
// far ahead or without end.
bool Reservations::is_too_much(const std::vector<const Job*>& all, Nanos unix) const {
    const User& user = *all.front()->user;
    if (book_.day_is_spent(user)) return true;
    int64_t cpus = 0;
    for (const Job* const job : all) {
        const Booking& b = *job->record.report.terms.booking;
        if (b.span > span_most || b.start > unix + ahead_most) return true;
        cpus += job->record.report.terms.cpus;
    }
    const UserLimits& limits = user.record.limits;
    if (!limits.cpus && !limits.reserve) return false;
    const int32_t most =
        std::min(limits.cpus.value_or(INT32_MAX), limits.reserve.value_or(INT32_MAX));
    for (const JobId& id : booked_) {
        const Job& job = *book_.find(id);
        const Contract& c = *job.record.contract;
        const bool here = std::find(all.begin(), all.end(), &job) != all.end();
        const bool same = job.user->record.uid == user.record.uid;
        if (same && c.is_sold() && !c.over && !here) cpus += c.cpus;
    }
    return cpus > most;
}

bool Reservations::is_open(const ProviderReport& r, Span span) {
    if (r.hours.empty()) return r.on_market;
    // An owner's own word holds until the next edge of his frames.
    if (!r.on_market && (r.opens.ns == 0 || r.opens > span.start)) return false;
    const Nanos end = std::min(span.end, span.start + Nanos{week_ns});
    for (Nanos at = span.start; at < end;) {
        const OpenHours* const h = hours_at(r, at);
        if (!h) return false;
        at = at + left_of(*h, at);
    }
    return true;
}

// It changes by the hour, and beyond a week it repeats.
Money Reservations::price_of(const Node& node, Span span, Nanos unix,
                             const std::vector<const Job*>& all) const {
    const ProviderReport& r = node.record.report;
    const Nanos end = std::min(span.end, span.start + Nanos{week_ns});
    // One that runs there displaces nobody more than it does.
    Money now = solver_.next_price(node.key).value_or(Money{});
    for (const Job* const job : all)
        if (job->phase() == JobPhase::running && job->record.report.where == node.id())
            now = job->record.price;
    __int128 sum = 0;
    for (Nanos at = span.start; at < end;) {
        const Nanos next = std::min(end, Nanos{(at.ns / hour.ns + 1) * hour.ns});
        const OpenHours* const h = hours_at(r, at);
        ++looked_at_;
        Money price = h ? h->price : r.reserve;
        if (const auto likely = forecast_->at(static_cast<int32_t>(r.speed), at))
            price = std::max(price, *likely);
        if (at < unix + hour) price = std::max(price, now);
        sum += static_cast<__int128>(price.micro) * (next - at).ns;
        at = next;
    }
    return Money{std::min(money_max.micro, static_cast<int64_t>(sum / (end - span.start).ns))};
}

bool Reservations::has_room(const Job& job, const Node& node, Span span,
                            const PlacePicks& beside) const {
    const JobReport& report = job.record.report;
    const JobTerms& t = report.terms;
    const ProviderReport& r = node.record.report;
    ++looked_at_;
    if (!node.connected || !node.record.has_report || !r.cannot.empty()) return false;
    if (!places_.may_run_later(job, node)) return false;
    if (Places::is_rooted(job) && report.where != node.id()) return false;
    if (is_component(job) && !report.only_node->empty() && *report.only_node != node.id())
        return false;
    if (!places_.resources().could_sell(job, node, span.start, span.end)) return false;
    // The room that it holds there itself, as it cannot leave, is the room that it gets.
    const int64_t own_mb = *job.rooted_on == node.id() ? job.rooted_mb : 0;
    int64_t cpus = t.cpus, mb = t.memory_mb + node.rooted_mb - own_mb;
    uint32_t of_gang = 1;
    for (const Pick& p : beside) {
        if (p.node != &node || p.job == &job) continue;
        cpus += p.job->record.report.terms.cpus;
        mb += p.job->record.report.terms.memory_mb;
        ++of_gang;
    }
    if (is_component(job) && report.spread > 0 && of_gang > report.spread) return false;
    if (cpus > r.cpus || mb > r.memory_mb) return false;
    // The room that others have changes where one of them begins or ends.
    std::vector<RoomStep> steps;
    if (const auto sold = sold_.find(node.id()); sold != sold_.end()) {
        looked_at_ += sold->second.size();
        for (const Job* const other : sold->second) {
            const Contract& c = *other->record.contract;
            const bool same = other == &job || (is_component(job) && is_component(*other) &&
                                                gang_name(*other) == gang_name(job));
            if (same || c.start >= span.end || c.end <= span.start) continue;
            // The room that it holds there, as it cannot leave, is a part of what it has bought.
            const int64_t held_mb = *other->rooted_on == node.id() ? other->rooted_mb : 0;
            const int64_t more_mb = std::max<int64_t>(0, c.memory_mb - held_mb);
            steps.push_back({std::max(c.start, span.start), true, c.cpus, more_mb});
            steps.push_back({c.end, false, -int64_t{c.cpus}, -more_mb});
        }
    }
    // The ends at one moment come before the beginnings.
    std::ranges::sort(steps, {}, [](const RoomStep& s) { return std::pair(s.at, s.begins); });
    return std::ranges::all_of(steps, [&](const RoomStep& s) {
        cpus += s.cpus;
        mb += s.memory_mb;
        return !s.begins || (cpus <= r.cpus && mb <= r.memory_mb);
    });
}

// The larger ones choose first. Empty: one of them finds none.
PlacePicks Reservations::picks_of(const std::vector<const Job*>& all, Span span, bool for_any_price,
                                  int64_t speed_least) const {
    if (!is_in_hours(*all.front(), span)) return {};
    if (!forecast_) forecast_.emplace(bids_.history().rows());
    std::vector<std::pair<Money, const Node*>> nodes;
    for (const auto& [name, node] : book_.nodes())
        if (node.record.has_report && node.record.report.speed >= speed_least &&
            is_open(node.record.report, span))
            nodes.emplace_back(std::min(money_max, price_of(node, span, unix_, all) +
                                                       places_.resources().reserve_of(
                                                           all.front()->record.report.terms, node)),
                               &node);
    std::sort(nodes.begin(), nodes.end(), [&](const auto& a, const auto& b) {
        // A component gains nothing by a place that is faster than those of the others.
        if (speed_least > 0 && a.first != b.first) return a.first < b.first;
        return before(a.first, *a.second, b.first, *b.second);
    });
    std::vector<const Job*> order = all;
    std::stable_sort(order.begin(), order.end(), [](const Job* a, const Job* b) {
        return a->record.report.terms.cpus > b->record.report.terms.cpus;
    });
    PlacePicks picks;
    for (const Job* const job : order) {
        const Money most = job->record.report.terms.max_price;
        const auto found = std::find_if(nodes.begin(), nodes.end(), [&](const auto& one) {
            return (for_any_price || one.first <= most) && has_room(*job, *one.second, span, picks);
        });
        if (found == nodes.end()) return {};
        picks.push_back({job, found->second, found->first});
    }
    return picks;
}

Reason Reservations::why_not_sold(const std::vector<const Job*>& all, Span span) const {
    for (const Job* const job : all)
        if (Reason never = places_.why_no_provider(*job);
            !never.empty() && !never.amount(Figure::least))
            return never;
    const PlacePicks dear = picks_of(all, span, true);
    if (!dear.empty()) {
        const Pick* worst = &dear.front();
        for (const Pick& p : dear)
            if (p.price > worst->price) worst = &p;
        return Reason(ReasonCode::place_dear)
            .with(Figure::least, worst->price)
            .with(Figure::own, worst->job->record.report.terms.max_price);
    }
    Reason none = ReasonCode::place_not_sold;
    const auto about = earliest(all, span);
    return about ? std::move(none).with(Figure::about, about->ns / 1'000'000'000) : none;
}

// Room comes when a contract ends or a node opens: those moments are tried, the earliest first.
std::optional<Nanos> Reservations::earliest(const std::vector<const Job*>& all, Span span) const {
    constexpr size_t tried_most = 64;
    size_t tried = 0;
    search_begins();
    for (const Nanos at : moments_after(span.start)) {
        if (++tried > tried_most || at > span.start + ahead_most || !search_goes_on()) break;
        if (!picks_of(all, {at, at + (span.end - span.start)}, true).empty()) return at;
    }
    return std::nullopt;
}

void Reservations::sell(const PlacePicks& picks, Span span, Nanos unix) {
    for (const Pick& p : picks) {
        Job& job = *book_.find(p.job->id());
        const JobTerms& t = job.record.report.terms;
        Contract& c = job.record.contract.edit();
        if (c.is_sold() && !c.node.empty()) std::erase(sold_[c.node], p.job);
        const bool asked = t.booking->start.ns > 0 && !t.booking->promise;
        const Nanos start = asked ? t.booking->start : span.start;
        c = {start,         span.end, p.node->id(), p.price,     t.cpus, t.memory_mb,
             c.places_lost, unix,     false,        t.resources, t.needs};
        sold_[c.node].push_back(p.job);
        book_.save(job);
        put(job, Booked::sold, p.node->id());
    }
    for (const Pick& p : picks)
        see_contract(*book_.find(p.job->id()), true, Nanos{unix.ns - context_.calendar.ns});
    list_ahead();
}

bool Reservations::keep_offered(const KeptOffers::Key& of, const JobTerms& terms, const Contract& c,
                                Nanos now) {
    kept_.drop(of);
    const Node* const node = book_.find_node(c.node);
    if (!node || c.end <= c.start || !terms.resources.empty()) return false;
    unix_ = context_.unix(now);
    kept_.forget(unix_);
    list_sold();
    Job job;
    job.record.report.terms = terms;
    const Span span{c.start, c.end};
    const bool is_free = is_open(node->record.report, span) && has_room(job, *node, span, {});
    sold_.clear();
    if (is_free) kept_.keep(of, terms, c);
    return is_free;
}

}  // namespace souk::market
