// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/offer_rounds.hpp"

#include <algorithm>

#include "kernel/base/check.hpp"

namespace souk {

void OfferRounds::set_due(const JobId& id, Entry& entry, Nanos at) {
    due_.erase({entry.due, id});
    entry.due = at;
    due_.insert({at, id});
}

void OfferRounds::pause(const JobId& id, Entry& entry, Nanos now) {
    set_due(id, entry, now + entry.pause);
    entry.pause = std::min(pause_most, Nanos{entry.pause.ns * 2});
}

void OfferRounds::note(const JobId& id, const JobTerms& terms, Nanos now) {
    const auto known = jobs_.find(id);
    if (known != jobs_.end() && known->second.terms == terms) return;
    if (known == jobs_.end() && jobs_.size() >= jobs_max) return;
    const bool is_new = known == jobs_.end();
    Entry& entry = is_new ? jobs_[id] : known->second;
    entry.terms = terms;
    entry.pause = pause_least;
    if (entry.round.number == 0 || !entry.round.is_open)
        set_due(id, entry, is_new ? now + first_wait : now);
}

void OfferRounds::forget(const JobId& id) {
    const auto known = jobs_.find(id);
    if (known == jobs_.end()) return;
    open_.erase(known->second.round.number);
    due_.erase({known->second.due, id});
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

std::optional<JobId> OfferRounds::due(Nanos now) const {
    if (now < free_at_ || due_.empty() || due_.begin()->first > now) return std::nullopt;
    return due_.begin()->second;
}

uint64_t OfferRounds::begin(const JobId& id, std::vector<std::string> sites, const OfferWish& wish,
                            Nanos now) {
    Entry& entry = jobs_.at(id);
    MUST(!sites.empty() && (entry.round.number == 0 || !entry.round.is_open));
    due_.erase({entry.due, id});
    std::ranges::sort(sites);
    entry.round = {next_++, now, true, wish, {}, {}};
    for (std::string& site : sites) entry.round.answers.push_back({std::move(site), {}});
    open_[entry.round.number] = id;
    free_at_ = now + apart;
    return entry.round.number;
}

void OfferRounds::later(const JobId& id, Nanos now) { pause(id, jobs_.at(id), now); }

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
    if (round.chosen) chosen_.push_back(id);
    round.is_open = false;
    open_.erase(round.number);
    pause(id, entry, now);
}

Nanos OfferRounds::next() const {
    Nanos at = Nanos::never();
    if (!due_.empty()) at = std::max(free_at_, due_.begin()->first);
    if (!open_.empty())
        at = std::min(at, jobs_.at(open_.begin()->second).round.began + answer_limit);
    return at;
}

const OfferRounds::Round* OfferRounds::of(const JobId& id) const {
    const auto known = jobs_.find(id);
    return known == jobs_.end() || known->second.round.number == 0 ? nullptr : &known->second.round;
}

}  // namespace souk
