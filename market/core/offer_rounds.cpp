// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/offer_rounds.hpp"

#include <algorithm>

#include "kernel/base/check.hpp"

namespace souk {

// The user's first job may be another one, or the user have another turn.
void OfferRounds::list(const Who& who, User& user) {
    Home& home = homes_.at(who.home);
    by_due_.erase({user.listed, who});
    home.ready.erase({user.turn, who.uid});
    if (home.ready.empty()) ready_.erase({home.turn, who.home});
    user.listed = user.due.empty() ? Nanos::never() : user.due.begin()->first;
    if (!user.due.empty()) by_due_.insert({user.listed, who});
}

void OfferRounds::took_turn(const JobId& id, const Entry& entry, uint64_t turn) {
    Home& home = homes_.at(id.home);
    ready_.erase({home.turn, id.home});
    home.turn = turn;
    if (!home.ready.empty()) ready_.insert({turn, id.home});
    users_.at({id.home, entry.uid}).turn = turn;
}

void OfferRounds::not_due(const JobId& id, const Entry& entry) {
    const Who who{id.home, entry.uid};
    User& user = users_.at(who);
    user.due.erase({entry.due, id});
    list(who, user);
}

void OfferRounds::set_due(const JobId& id, Entry& entry, Nanos at) {
    const Who who{id.home, entry.uid};
    User& user = users_.at(who);
    user.due.erase({entry.due, id});
    entry.due = at;
    user.due.insert({at, id});
    list(who, user);
}

void OfferRounds::pause(const JobId& id, Entry& entry, Nanos now) {
    set_due(id, entry, now + entry.pause);
    entry.pause = std::min(pause_most, Nanos{entry.pause.ns * 2});
}

void OfferRounds::note(const JobId& id, uint32_t uid, const JobTerms& terms, Nanos now) {
    const auto known = jobs_.find(id);
    if (known != jobs_.end() && known->second.terms == terms) return;
    const bool is_new = known == jobs_.end();
    Entry& entry = is_new ? jobs_[id] : known->second;
    if (is_new) {
        entry.uid = uid;
        // A user who comes anew goes behind all who wait: coming and going gains nothing.
        const auto [user, is_first] = users_.try_emplace({id.home, uid}, User{{}, 0, next_});
        ++user->second.jobs;
        if (is_first) ++homes_.try_emplace(id.home, Home{{}, 0, next_}).first->second.users;
    }
    entry.terms = terms;
    entry.pause = pause_least;
    if (entry.round.number == 0 || !entry.round.is_open)
        set_due(id, entry, is_new ? now + pace_.first_wait : now);
}

void OfferRounds::forget(const JobId& id) {
    const auto known = jobs_.find(id);
    if (known == jobs_.end()) return;
    open_.erase(known->second.round.number);
    not_due(id, known->second);
    const auto user = users_.find({id.home, known->second.uid});
    const auto home = homes_.find(id.home);
    if (--user->second.jobs == 0) {
        users_.erase(user);
        if (--home->second.users == 0) homes_.erase(home);
    }
    jobs_.erase(known);
}

void OfferRounds::hurry(Nanos now) {
    if (now < may_hurry_) return;
    may_hurry_ = now + pause_least;
    for (auto& [id, entry] : jobs_) {
        if (entry.round.number > 0 && entry.round.is_open) continue;
        entry.pause = pause_least;
        set_due(id, entry, std::min(entry.due, now));
    }
}

std::optional<JobId> OfferRounds::due(Nanos now) {
    if (now < free_at_) return std::nullopt;
    while (!by_due_.empty() && by_due_.begin()->first <= now) {
        const Who who = by_due_.begin()->second;
        by_due_.erase(by_due_.begin());
        Home& home = homes_.at(who.home);
        home.ready.insert({users_.at(who).turn, who.uid});
        ready_.insert({home.turn, who.home});
    }
    if (ready_.empty()) return std::nullopt;
    const NodeName& home = ready_.begin()->second;
    return users_.at({home, homes_.at(home).ready.begin()->second}).due.begin()->second;
}

uint64_t OfferRounds::begin(const JobId& id, std::vector<std::string> sites, const OfferWish& wish,
                            Nanos now) {
    Entry& entry = jobs_.at(id);
    MUST(!sites.empty() && (entry.round.number == 0 || !entry.round.is_open));
    not_due(id, entry);
    std::ranges::sort(sites);
    entry.round = {next_++, now, true, wish, {}, {}};
    for (std::string& site : sites) entry.round.answers.push_back({std::move(site), {}});
    open_[entry.round.number] = id;
    took_turn(id, entry, entry.round.number);
    free_at_ = now + pace_.apart;
    return entry.round.number;
}

void OfferRounds::begin_anew(const JobId& id, Nanos now) {
    const auto known = jobs_.find(id);
    if (known == jobs_.end() || known->second.round.is_open) return;
    known->second.pause = pause_least;
    set_due(id, known->second, now + pace_.first_wait);
}

void OfferRounds::later(const JobId& id, Nanos now) {
    Entry& entry = jobs_.at(id);
    pause(id, entry, now);
    took_turn(id, entry, next_++);
}

bool OfferRounds::answer(const std::string& site, const SiteOffer& offer, Nanos now) {
    const auto open = open_.find(offer.number);
    if (open == open_.end()) return false;
    const JobId id = open->second;
    Entry& entry = jobs_.at(id);
    auto& answers = entry.round.answers;
    const auto from = std::ranges::find(answers, site, &Answer::site);
    if (from == answers.end() || from->offer) return false;
    from->offer = offer;
    if (std::ranges::all_of(answers, [](const Answer& a) { return a.offer.has_value(); }))
        close(id, entry, now);
    return true;
}

void OfferRounds::tick(Nanos now) {
    while (!open_.empty()) {
        const JobId id = open_.begin()->second;
        Entry& entry = jobs_.at(id);
        if (now < entry.round.began + answer_limit) return;
        close(id, entry, now);
    }
}

void OfferRounds::close(const JobId& id, Entry& entry, Nanos now) {
    Round& round = entry.round;
    std::vector<SiteAndOffer> offers;
    std::vector<size_t> which;
    for (size_t i = 0; i < round.answers.size(); ++i) {
        if (!round.answers[i].offer) continue;
        offers.push_back({round.answers[i].site, *round.answers[i].offer});
        which.push_back(i);
    }
    constexpr uint64_t spread = 0x9e3779b97f4a7c15;  // numbers that follow each other lie apart
    if (const auto best = best_offer(offers, round.wish, seed_ ^ (round.number * spread)))
        round.chosen = which[*best];
    ended_.push_back(id);
    round.is_open = false;
    open_.erase(round.number);
    pause(id, entry, now);
}

bool OfferRounds::choose(const JobId& id, uint64_t number, std::optional<size_t> which) {
    const auto known = jobs_.find(id);
    if (known == jobs_.end()) return false;
    Round& round = known->second.round;
    if (round.number != number || round.is_open) return false;
    round.chosen = which;
    return true;
}

Nanos OfferRounds::next() const {
    Nanos at = Nanos::never();
    if (!by_due_.empty()) at = std::max(free_at_, by_due_.begin()->first);
    if (!ready_.empty()) at = free_at_;
    if (!open_.empty())
        at = std::min(at, jobs_.at(open_.begin()->second).round.began + answer_limit);
    return at;
}

const OfferRounds::Round* OfferRounds::of(const JobId& id) const {
    const auto known = jobs_.find(id);
    return known == jobs_.end() || known->second.round.number == 0 ? nullptr : &known->second.round;
}

}  // namespace souk
