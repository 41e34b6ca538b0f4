// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/daemon/offer_desk.hpp"

#include <algorithm>

#include "kernel/base/json.hpp"
#include "kernel/sys/host/clock.hpp"

namespace souk {
namespace {

// So long a peer is to keep what it offers: until the choice is made, and the job could be sent.
constexpr Nanos offers_hold = Nanos::from_s(15);
constexpr int looked_at_once = 256;
constexpr ptrdiff_t questions_most = 16;  // of one peer that wait

void write_offer(JsonWriter& w, const OfferRounds::Answer& answer, bool is_open) {
    w.begin_object().field("site", answer.site);
    if (!answer.offer) {
        if (!is_open) w.field("why", "it did not answer in time").field("code", "away");
    } else if (const SiteOffer& o = *answer.offer; !o.why.empty()) {
        w.field("why", static_cast<const std::string&>(o.why)).field("code", to_string(o.why.code));
    } else {
        w.field("price", o.price).field("speed", o.speed);
        w.field("starts_in_s", o.starts_in.seconds()).field("held_s", o.held_for.seconds());
    }
    w.end_object();
}

// A component of a gang and a job with a place of its own stay at home.
bool lets_go(const market::Job& job) {
    const JobReport& r = job.record.report;
    return r.phase == JobPhase::waiting && !r.terms.sites->names.empty() && r.gang.empty() &&
           r.terms.booking == Booking{} && !r.address && job.record.loan->site.empty();
}

// Another site has it, or has not settled yet. What was offered for it is still shown.
bool is_away(const market::Job& job) {
    return !job.record.loan->site.empty() && job.record.report.phase != JobPhase::finished;
}

// Nothing keeps it back now, and it has no place here.
bool is_free(const market::Market& market, const market::Job& job) {
    return job.reported && !market.may_not_run(*job.user) && job.record.report.waits_for.empty() &&
           !job.record.cancel && job.record.hold == market::Hold::none && !job.once &&
           !job.record.order;
}

}  // namespace

OfferDesk::OfferDesk(Loop& loop, market::Market& market, Sites& sites, Connections& connections,
                     JournalDb& state, StepTaker& steps)
    : loop_(loop),
      market_(market),
      sites_(sites),
      connections_(connections),
      state_(state),
      steps_(steps),
      rounds_(static_cast<uint64_t>(unix_now().ns)) {}

void OfferDesk::start() {
    for (const auto& [id, job] : market_.jobs()) job_told(id);
}

// ---- jobs of this site

void OfferDesk::job_told(const JobId& id) {
    const market::Job* const job = market_.find(id);
    if (job && lets_go(*job))
        rounds_.note(id, job->record.report.uid, job->record.report.terms, Loop::now());
    else if (rounds_.size() > 0 && !(job && is_away(*job)))
        rounds_.forget(id);
    if (rounds_.size() > 0) look();
}

void OfferDesk::peer_came() {
    rounds_.hurry(Loop::now());
    look();
}

void OfferDesk::look() {
    const Nanos now = Loop::now();
    rounds_.tick(now);
    for (const JobId& id : rounds_.take_chosen()) give(id, now);
    // Jobs about which nobody can be asked now begin no round, and there may be many of them.
    std::optional<JobId> id;
    for (int n = 0; n < looked_at_once && (id = rounds_.due(now)); ++n) ask_about(*id, now);
    const Nanos next = rounds_.next();
    if (next == Nanos::never())
        timer_.cancel();
    else
        timer_ = loop_.at(next, [this] { look(); });
}

// The best offer is taken while its place is kept.
void OfferDesk::give(const JobId& id, Nanos now) {
    const market::Job* const job = market_.find(id);
    const OfferRounds::Round* const round = rounds_.of(id);
    if (!job || !round || !round->chosen || !lets_go(*job) || !is_free(market_, *job)) return;
    const std::string site = round->answers[*round->chosen].site;
    if (!sites_.lends(site) || !market_.lend(id, site, now)) return;
    steps_.wake();
}

void OfferDesk::ask_about(const JobId& id, Nanos now) {
    const market::Job* const job = market_.find(id);
    if (job && is_away(*job)) return rounds_.later(id, now);
    if (!job || !lets_go(*job)) return rounds_.forget(id);
    if (!is_free(market_, *job)) return rounds_.later(id, now);
    const JobReport& report = job->record.report;
    std::vector<std::string> sites = sites_.that_let_come(*report.terms.sites);
    std::erase_if(sites, [&](const std::string& site) { return !market_.may_go(id, site); });
    if (sites.empty()) return rounds_.later(id, now);
    const JobTerms& terms = report.terms;
    const OfferWish wish{terms.sites->cheapest, terms.max_price, terms.runtime};
    const SiteAsk ask{rounds_.begin(id, sites, wish, now), id, report.user, told_to_sites(terms),
                      offers_hold};
    for (const std::string& site : sites) sites_.send(site, ask);
}

Status OfferDesk::answered(const Connection& c, const wire::Frame& f) {
    TRY_ASSIGN(const SiteOffer offer, wire::unpack<SiteOffer>(f.body));
    if (rounds_.answer(c.node, offer, Loop::now())) look();
    return {};
}

Result<std::string> OfferDesk::list(const wire::CtlRequest& request) const {
    if (request.args.size() != 1) return fail("offers takes a job");
    TRY_ASSIGN(const JobId id, parse_job_id(request.args[0]));
    const market::Job* const job = market_.find(id);
    if (!job) return fail(CauseCode::not_found, "no such job: " + id.text());
    const JobReport& report = job->record.report;
    if (request.uid != market::root_uid && request.uid != report.uid)
        return fail(CauseCode::not_allowed, "job " + id.text() + " is another user's");
    const SiteWish& wish = *report.terms.sites;
    JsonWriter w;
    w.begin_object()
        .field("job", id.text())
        .field("sites", wish.names.empty() ? "own" : wish.names);
    w.field("prefer", wish.cheapest ? "cost" : "finish");
    const OfferRounds::Round* const round = rounds_.of(id);
    if (round) {
        w.field("age_s", (Loop::now() - round->began).seconds()).field("open", round->is_open);
        if (round->chosen) w.field("best", round->answers[*round->chosen].site);
    }
    w.key("offers").begin_array();
    if (round)
        for (const OfferRounds::Answer& answer : round->answers)
            write_offer(w, answer, round->is_open);
    w.end_array().end_object();
    return w.take();
}

// ---- jobs of peers

Status OfferDesk::asked(uint64_t number, const Connection& c, const wire::Frame& f) {
    TRY_ASSIGN(SiteAsk ask, wire::unpack<SiteAsk>(f.body));
    const auto waiting = std::ranges::count(questions_, c.node, &Question::site);
    if (waiting >= questions_most ||
        !sites_.charge(c.node, Sites::plan_cost, market_.jobs().size())) {
        SiteOffer no;
        no.number = ask.number;
        no.why = Cause(CauseCode::too_many, "your site asks too much: again in a moment");
        connections_.send(number, no);
        return {};
    }
    questions_.push_back({number, c.node, std::move(ask)});
    steps_.wake();
    return {};
}

// Each takes as long as a decision.
bool OfferDesk::answer() {
    const Nanos until = Loop::now() + Nanos::from_ms(5);
    while (!questions_.empty()) {
        const Question q = std::move(questions_.front());
        questions_.pop_front();
        const auto site = sites_.guest_site(q.site);
        if (!site) continue;  // it is no peer any more
        const SiteOffer offer = market_.offer(*site, q.ask, Loop::now());
        state_.journal().then([this, to = q.connection, offer] { connections_.send(to, offer); });
        if (Loop::now() >= until) break;
    }
    return !questions_.empty();
}

}  // namespace souk
