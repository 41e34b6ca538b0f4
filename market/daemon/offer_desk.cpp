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
// A program of the operator's has this long to choose. The market decides without it then, as
// long as what was offered is still kept.
constexpr Nanos program_limit = Nanos::from_s(8);

void write_gain(JsonWriter& w, const SiteGain& gain) {
    if (gain.is_money)
        w.field("gain", gain.money).field("cost", gain.money_cost);
    else
        w.field("gain_s", gain.time.seconds()).field("cost_s", gain.time_cost.seconds());
    w.field("twice", gain.is_doubled).field("pays", gain.pays);
}

void write_place(JsonWriter& w, const SiteMove& move) {
    w.begin_object().field("price", move.here.price).field("speed", move.here.speed);
    w.field("rest_s", std::min(move.rest, gain_horizon).seconds()).end_object();
}

void write_rooms(JsonWriter& w, const std::vector<SiteRoom>& rooms) {
    w.begin_array();
    for (const SiteRoom& room : rooms) {
        w.begin_object().field("cpus", room.cpus).field("memory_mb", room.memory_mb);
        w.field("price", room.price).field("speed", room.speed);
        w.field("starts_in_s", room.starts_in.seconds()).end_object();
    }
    w.end_array();
}

void write_offer(JsonWriter& w, const OfferRounds::Answer& answer,
                 const OfferRounds::Round& round) {
    w.begin_object().field("site", market::SiteMoves::called(answer.site));
    if (!answer.offer) {
        if (!round.is_open) w.field("why", "it did not answer in time").field("code", "away");
    } else if (const SiteOffer& o = *answer.offer; !o.why.empty()) {
        w.field("why", static_cast<const std::string&>(o.why)).field("code", to_string(o.why.code));
    } else {
        w.field("price", o.price).field("speed", o.speed);
        if (!o.rooms.empty()) write_rooms(w.key("rooms"), o.rooms);
        w.field("starts_in_s", o.starts_in.seconds()).field("held_s", o.held_for.seconds());
        if (round.wish.move) write_gain(w, gain_of(*round.wish.move, stay_of(o), answer.site));
    }
    w.end_object();
}

// Another site has it, or has not settled yet. What was offered for it is still shown.
bool is_elsewhere(const market::Job& job) {
    return !job.record.loan->site.empty() && job.record.report.phase != JobPhase::finished;
}

// Nothing keeps it back now, and it has no place here.
bool is_free(const market::Market& market, const market::Job& job) {
    if (job.phase() != JobPhase::waiting) return market.lent().may_move(job);
    return job.reported && !market::SubmitFilter::keeps(job) && !market.may_not_run(*job.user) &&
           job.record.report.waits_for.empty() && !job.record.cancel &&
           job.record.hold == market::Hold::none && !job.once && !job.record.order;
}

}  // namespace

OfferDesk::OfferDesk(Loop& loop, market::Market& market, Sites& sites, Connections& connections,
                     JournalDb& state, ArrivalDesk& arrivals, OperatorPrograms& programs,
                     StepTaker& steps)
    : loop_(loop),
      market_(market),
      sites_(sites),
      connections_(connections),
      state_(state),
      arrivals_(arrivals),
      programs_(programs),
      steps_(steps),
      waiting_(static_cast<uint64_t>(unix_now().ns)),
      running_(static_cast<uint64_t>(unix_now().ns), OfferRounds::of_running) {}

void OfferDesk::start() {
    for (const auto& [id, job] : market_.jobs()) job_told(id);
}

// ---- jobs of this site

void OfferDesk::job_told(const JobId& id) {
    const market::Job* const job = market_.find(id);
    if (job && market::is_component(*job) && gang_told(id)) return;
    const auto note = [&](OfferRounds& rounds) {
        rounds.note(id, job->record.report.uid, job->record.report.terms, Loop::now());
    };
    if (job && market::SiteMoves::could_wait(*job))
        note(waiting_);
    else if (waiting_.size() > 0 && !(job && is_elsewhere(*job)))
        waiting_.forget(id);
    if (job && market::SiteMoves::could_gain(*job))
        note(running_);
    else if (running_.size() > 0 && !(job && market::is_on_its_way(*job)))
        running_.forget(id);
    if (waiting_.size() + running_.size() > 0) look();
}

// False: nothing of its gang is left.
bool OfferDesk::gang_told(const JobId& id) {
    const market::Job& job = *market_.find(id);
    if (job.record.report.terms.sites->names.empty() && waiting_.size() == 0) return true;
    const market::GangLoans& gangs = market_.gang_loans();
    const market::Job* const leader = gangs.leader_of(job);
    if (!leader) return false;
    if (leader->id() != id) waiting_.forget(id);
    const JobReport& r = leader->record.report;
    if (gangs.seeks(*leader))
        waiting_.note(leader->id(), r.uid, r.terms, Loop::now());
    else if (!gangs.has_gone(*leader))
        waiting_.forget(leader->id());
    if (waiting_.size() > 0) look();
    return true;
}

void OfferDesk::peer_came() {
    waiting_.hurry(Loop::now());
    running_.hurry(Loop::now());
    look();
}

void OfferDesk::look() {
    const Nanos now = Loop::now();
    take_undecided(now);
    take_ended(waiting_, now);
    take_ended(running_, now);
    // Jobs about which nobody can be asked now begin no round, and there may be many of them.
    std::optional<JobId> id;
    const auto next_to_gain = [&] {
        return turns_.may_run(waiting_, now) ? running_.due(now) : std::nullopt;
    };
    for (int n = 0; n < looked_at_once; ++n) {
        const bool runs = (id = next_to_gain()).has_value();
        if (!runs && !(id = waiting_.due(now))) break;
        turns_.had(runs);
        runs ? ask_for_gain(*id, now) : ask_about(*id, now);
    }
    Nanos next = waiting_.next();
    if (turns_.may_run(waiting_, now)) next = std::min(next, running_.next());
    if (!undecided_.empty()) next = std::min(next, undecided_.front().until);
    if (next == Nanos::never())
        timer_.cancel();
    else
        timer_ = loop_.at(next, [this] { look(); });
}

void OfferDesk::take_ended(OfferRounds& rounds, Nanos now) {
    rounds.tick(now);
    for (const JobId& id : rounds.take_ended()) {
        const market::Job* const job = market_.find(id);
        const OfferRounds::Round* const round = rounds.of(id);
        if (!job || !round || round->is_open) continue;
        if (market::is_component(*job)) {
            gangs_.push_back(id);
            steps_.wake();
            continue;
        }
        if (!ask_program(rounds, *job, *round)) conclude(rounds, *job, *round, false, now);
    }
}

void OfferDesk::conclude(const OfferRounds& rounds, const market::Job& job,
                         const OfferRounds::Round& round, bool by_program, Nanos now) {
    if (round.chosen)
        give(rounds, job, round.answers[*round.chosen], by_program, now);
    else if (round.wish.move)
        market_.say_of_sites(job.id(), market::SiteMoves::no_gain(round));
}

// The metric chooses among the offers that the market itself would take. Whether a job that runs
// moves is said by the other program, which may choose any that is not above the job's price.
bool OfferDesk::ask_program(OfferRounds& rounds, const market::Job& job,
                            const OfferRounds::Round& round) {
    const bool reroutes = round.wish.move && programs_.reroute.is_set();
    AskedProgram& program = reroutes ? programs_.reroute : programs_.metric;
    std::vector<size_t> which;
    for (size_t i = 0; i < round.answers.size(); ++i) {
        const auto& [site, offer] = round.answers[i];
        if (offer && is_usable({site, *offer}, round.wish, !reroutes)) which.push_back(i);
    }
    if (!program.is_set() || which.empty()) return false;
    const JobId id = job.id();
    const std::string owner = id.home + "/" + std::to_string(job.record.report.uid);
    std::string question = reroutes ? program_words::ask_reroute(job, round, which)
                                    : program_words::ask_metric(job, round, which);
    const bool is_asked = program.ask(
        owner, [question = std::move(question)] { return question; },
        [this, &rounds, id, number = round.number, which](const Result<std::string>& answer) {
            if (std::erase_if(undecided_, [&](const Undecided& one) {
                    return one.rounds == &rounds && one.number == number;
                }) > 0)
                chosen_by(rounds, id, number, which, answer);
        });
    if (is_asked) undecided_.push_back({&rounds, id, round.number, Loop::now() + program_limit});
    return is_asked;
}

void OfferDesk::take_undecided(Nanos now) {
    while (!undecided_.empty() && undecided_.front().until <= now) {
        const Undecided one = std::move(undecided_.front());
        undecided_.pop_front();
        const market::Job* const job = market_.find(one.id);
        const OfferRounds::Round* const round = one.rounds->of(one.id);
        if (job && round && round->number == one.number && !round->is_open)
            conclude(*one.rounds, *job, *round, false, now);
    }
}

void OfferDesk::chosen_by(OfferRounds& rounds, const JobId& id, uint64_t number,
                          const std::vector<size_t>& which, const Result<std::string>& answer) {
    const market::Job* const job = market_.find(id);
    const OfferRounds::Round* const round = rounds.of(id);
    if (!job || !round || round->number != number || round->is_open) return;
    const bool reroutes = round->wish.move && programs_.reroute.is_set();
    AskedProgram& program = reroutes ? programs_.reroute : programs_.metric;
    const Nanos now = Loop::now();
    if (!answer) return conclude(rounds, *job, *round, false, now);
    std::vector<std::string> sites;
    sites.reserve(which.size());
    for (const size_t i : which) sites.push_back(round->answers[i].site);
    const auto word = reroutes ? program_words::rerouted(*answer, sites)
                               : program_words::least_of(*answer, sites);
    if (!word) {
        program.note_nonsense(word.error());
        return conclude(rounds, *job, *round, false, now);
    }
    rounds.choose(id, number, word->at ? std::optional(which[*word->at]) : std::nullopt);
    if (!word->at)
        return market_.say_of_sites(id, market::Reason(market::ReasonCode::site_no_gain)
                                            .with(market::Figure::cause, word->why));
    conclude(rounds, *job, *round, reroutes, now);
}

// The best offer is taken: of a job that waits while its place is kept.
void OfferDesk::give(const OfferRounds& rounds, const market::Job& job,
                     const OfferRounds::Answer& best, bool by_program, Nanos now) {
    const JobId id = job.id();
    const bool waits = &rounds == &waiting_;
    const JobTerms& terms = job.record.report.terms;  // they may have changed meanwhile
    if (!best.site.empty() && (!sites_.lends(best.site) || !is_wished(*terms.sites, best.site) ||
                               best.offer->price > most_elsewhere(terms)))
        return;
    if (waits && (!market::SiteMoves::waits(job) || !is_free(market_, job))) return;
    const bool begins = waits && job.phase() == JobPhase::waiting;
    const auto home = at_home_.find(id);
    if (best.site.empty() && home == at_home_.end()) {
        go_home_[id] = by_program;  // a program was asked meanwhile: what would it get there now?
        return steps_.wake();
    }
    const Status goes = best.site.empty() ? market_.move_home(id, home->second, now, by_program)
                        : begins
                            ? market_.lend(id, best.site, now)
                            : market_.move_for_gain(id, best.site, *best.offer, now, by_program);
    if (goes) {
        running_.begin_anew(id, now);
        steps_.wake();
    } else if (!waits) {
        market_.say_of_sites(id, market::Reason(market::ReasonCode::site_no_gain)
                                     .with(market::Figure::cause, goes.error().message));
    }
}

// The sites that may be asked about the job now.
std::vector<std::string> OfferDesk::sites_for(const market::Job& job, Nanos now) const {
    std::vector<std::string> sites = sites_.that_let_come(*job.record.report.terms.sites);
    std::erase_if(sites,
                  [&](const std::string& site) { return !market_.lent().may_go(job, site, now); });
    return sites;
}

void OfferDesk::ask(OfferRounds& rounds, const market::Job& job,
                    const std::vector<std::string>& sites, Nanos now) {
    const JobReport& report = job.record.report;
    // Nothing is kept for one that only might move.
    const Nanos hold = &rounds == &waiting_ ? offers_hold : Nanos{};
    const SiteAsk ask{rounds.begin(job.id(), sites, market_.site_wish(job, now), now),
                      job.id(),
                      report.user,
                      told_to_sites(report.terms),
                      hold,
                      job.record.filter->token};
    for (const std::string& site : sites) sites_.send(site, ask);
}

void OfferDesk::ask_about(const JobId& id, Nanos now) {
    const market::Job* const job = market_.find(id);
    if (job && market::is_component(*job)) return ask_about_gang(*job, now);
    if (job && is_elsewhere(*job)) return waiting_.later(id, now);
    if (!job || !market::SiteMoves::could_wait(*job)) return waiting_.forget(id);
    if (!market::SiteMoves::waits(*job) || !is_free(market_, *job)) return waiting_.later(id, now);
    const std::vector<std::string> sites = sites_for(*job, now);
    if (sites.empty()) {
        say_until_when(*job, now);
        return waiting_.later(id, now);
    }
    ask(waiting_, *job, sites, now);
}

bool OfferDesk::is_free_gang(const market::Job& leader) const {
    return market_.gang_loans().is_whole(leader) &&
           std::ranges::all_of(market_.gang_loans().required_of(leader),
                               [&](const market::Job* one) { return is_free(market_, *one); });
}

// Only sites to which each of its components may go are asked.
void OfferDesk::ask_about_gang(const market::Job& leader, Nanos now) {
    const JobId id = leader.id();
    const market::GangLoans& gangs = market_.gang_loans();
    if (gangs.leader_of(leader) != &leader) return waiting_.forget(id);
    if (!gangs.seeks(leader) || !is_free_gang(leader)) return waiting_.later(id, now);
    std::vector<std::string> sites = sites_for(leader, now);
    for (const market::Job* const one : gangs.required_of(leader))
        std::erase_if(sites, [&](const std::string& site) {
            return !market_.lent().may_go(*one, site, now);
        });
    if (sites.empty()) {
        say_until_when(leader, now);
        return waiting_.later(id, now);
    }
    SiteAsk ask{waiting_.begin(id, sites, market_.site_wish(leader, now), now),
                id,
                leader.record.report.user,
                told_to_sites(leader.record.report.terms),
                {},
                leader.record.filter->token,
                gangs.parts_of(leader)};
    for (const SitePart& part : ask.parts) {
        ask.terms.cpus = std::min(ask.terms.cpus, part.cpus);
        ask.terms.memory_mb = std::min(ask.terms.memory_mb, part.memory_mb);
    }
    for (const std::string& site : sites) sites_.send(site, ask);
}

void OfferDesk::combine(const JobId& id, Nanos now) {
    const market::Job* const job = market_.find(id);
    const OfferRounds::Round* const round = waiting_.of(id);
    if (!job || !round || round->is_open || !is_component(*job) ||
        !market_.gang_loans().seeks(*job) || !is_free_gang(*job))
        return;
    std::vector<market::GangLoans::Offer> offers;
    for (const auto& [site, offer] : round->answers)
        if (offer && offer->why.empty() && sites_.lends(site) &&
            is_wished(*job->record.report.terms.sites, site))
            offers.push_back({site, offer->rooms});
    const auto own = market_.rooms_at_home(*job, now);
    const auto parts = market_.gang_loans().choose(
        *job, offers, own ? *own : std::vector<SiteRoom>{}, round->wish, round->number);
    if (!parts)
        market_.say_of_sites(id, market::Reason(market::ReasonCode::site_no_gain)
                                     .with(market::Figure::cause, parts.error().message));
    else if (!parts->empty() && market_.lend_gang(id, *parts, now))
        steps_.wake();
}

// A job that runs at a peer may gain at home alone, where this market knows what it would get.
void OfferDesk::ask_for_gain(const JobId& id, Nanos now) {
    const market::Job* const job = market_.find(id);
    if (!job || !market::SiteMoves::could_gain(*job)) return running_.forget(id);
    if (!market::SiteMoves::may_gain(*job) || !market_.lent().may_move(*job))
        return running_.later(id, now);
    if (is_lent(*job)) {
        running_.begin(id, {""}, market_.site_wish(*job, now), now);
        own_.push_back(id);
        return steps_.wake();
    }
    const std::vector<std::string> sites = sites_for(*job, now);
    if (!sites.empty()) return ask(running_, *job, sites, now);
    say_until_when(*job, now);
    running_.later(id, now);
}

void OfferDesk::say_until_when(const market::Job& job, Nanos now) {
    const market::Reason rests =
        market_.site_rests(job, sites_.that_let_come(*job.record.report.terms.sites), now);
    if (!rests.empty()) market_.say_of_sites(job.id(), rests);
}

Status OfferDesk::answered(const Connection& c, const wire::Frame& f) {
    TRY_ASSIGN(const SiteOffer offer, wire::unpack<SiteOffer>(f.body));
    const Nanos now = Loop::now();
    if (waiting_.answer(c.node, offer, now) || running_.answer(c.node, offer, now)) look();
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
    w.field("prefer", preference(wish));
    if (wish.within > Money{}) w.field("within", wish.within);
    const OfferRounds::Round* round = waiting_.of(id);
    const OfferRounds::Round* const while_it_ran = running_.of(id);
    if (while_it_ran && (!round || round->began < while_it_ran->began)) round = while_it_ran;
    if (round) {
        w.field("age_s", (Loop::now() - round->began).seconds()).field("open", round->is_open);
        if (round->chosen && !is_component(*job))  // a gang takes rooms of several
            w.field("best", market::SiteMoves::called(round->answers[*round->chosen].site));
        if (round->wish.move) write_place(w.key("here"), *round->wish.move);
    }
    w.key("offers").begin_array();
    if (round)
        for (const OfferRounds::Answer& answer : round->answers) write_offer(w, answer, *round);
    w.end_array().end_object();
    return w.take();
}

// ---- jobs of peers

Status OfferDesk::asked(uint64_t number, const Connection& c, const wire::Frame& f) {
    TRY_ASSIGN(SiteAsk ask, wire::unpack<SiteAsk>(f.body));
    const auto waiting = std::ranges::count(questions_, c.node, &Question::site);
    if (waiting + before_filter_[c.node] >= questions_most ||
        !sites_.charge(c.node, Sites::plan_cost, market_.jobs().size())) {
        no(number, ask.number, {CauseCode::too_many, "your site asks too much: again in a moment"});
        return {};
    }
    ++before_filter_[c.node];
    const program_words::Guest guest{c.node, ask.job, ask.user, told_to_sites(ask.terms),
                                     ask.token};
    arrivals_.ask(guest, [this, number, site = c.node, ask](const auto& leave) {
        if (--before_filter_[site] == 0) before_filter_.erase(site);
        if (!leave) return no(number, ask.number, leave.error());
        questions_.push_back({number, site, ask, *leave});
        steps_.wake();
    });
    return {};
}

void OfferDesk::no(uint64_t connection, uint64_t number, Cause why) {
    SiteOffer offer;
    offer.number = number;
    offer.why = std::move(why);
    connections_.send(connection, offer);
}

// Each takes as long as a decision.
bool OfferDesk::answer() {
    const Nanos until = Loop::now() + Nanos::from_ms(5);
    they_are_back(Loop::now());
    if (!own_.empty() || !go_home_.empty()) answer_own(Loop::now());
    for (const JobId& id : std::exchange(gangs_, {})) combine(id, Loop::now());
    while (!questions_.empty()) {
        const Question q = std::move(questions_.front());
        questions_.pop_front();
        auto site = sites_.guest_site(q.site);
        if (!site) continue;  // it is no peer any more
        site->leave = q.leave;
        const SiteOffer offer = market_.offer(*site, q.ask, Loop::now());
        state_.journal().then([this, to = q.connection, offer] { connections_.send(to, offer); });
        if (Loop::now() >= until) break;
    }
    return !questions_.empty();
}

// Other sites are asked about them as about new ones.
void OfferDesk::they_are_back(Nanos now) {
    const std::set<JobId> back = market_.lent().take_back_home();
    for (const JobId& id : back) {
        const market::Job* const job = market_.find(id);
        const market::Job* const leader =
            job && market::is_component(*job) ? market_.gang_loans().leader_of(*job) : nullptr;
        waiting_.begin_anew(leader ? leader->id() : id, now);
        running_.begin_anew(id, now);
    }
    if (!back.empty()) timer_ = loop_.at(now, [this] { look(); });
}

// One round begins at a time, and not often.
void OfferDesk::answer_own(Nanos now) {
    for (const JobId& id : std::exchange(own_, {})) {
        const market::Job* const job = market_.find(id);
        const OfferRounds::Round* const round = running_.of(id);
        if (!job || !round || !round->is_open) continue;
        const auto place = market_.place_at_home(*job, now);
        if (place) at_home_[id] = *place;
        (void)running_.answer("", market::SiteMoves::offer_of(place, round->number), now);
    }
    for (const auto& [id, by_program] : std::exchange(go_home_, {})) {
        const market::Job* const job = market_.find(id);
        const OfferRounds::Round* const round = running_.of(id);
        if (!job || !round || !round->chosen || !market::SiteMoves::may_gain(*job)) continue;
        const auto place = market_.place_at_home(*job, now);
        if (!place) continue;
        at_home_[id] = *place;
        give(running_, *job, round->answers[*round->chosen], by_program, now);
    }
    look();  // gives them away, if they are worth it
    at_home_.clear();
}

}  // namespace souk
