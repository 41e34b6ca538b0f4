// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/core/home_gangs.hpp"

#include <algorithm>

#include "agentd/core/home_groups.hpp"
#include "agentd/core/home_turn.hpp"
#include "market/core/strategy.hpp"

namespace souk {
namespace {

std::string component_number(const HomeJob& job) { return std::to_string(job.group.component); }

std::string how_it_ended(int32_t wait_status) {
    const int32_t signal = wait_status & 0x7f;
    return signal == 0 ? "exit status " + std::to_string(wait_status >> 8 & 0xff)
                       : "signal " + std::to_string(signal);
}

}  // namespace

Status HomeGangs::check(HomeJob& job, const Jobs& jobs) {
    JobTies& g = job.group;
    g.whole = false;
    g.tries = 0;
    job.spec.hold = g.components > 0;
    if (g.components == 0) {
        g.gang = g.component = 0;
        g.role = ComponentClass::required;
        g.node.clear();
        g.spread = 0;
        g.pack = g.near = false;
        g.near_trip_us = g.near_mbit = 0;
        return {};
    }
    const std::string of_several = "a job of several components ";
    if (g.components > components_max)
        return fail(of_several + "has at most " + std::to_string(components_max) +
                    " of them, not " + std::to_string(g.components));
    if (g.component >= g.components || (g.gang == 0) != (g.component == 0))
        return fail("component " + component_number(job) + " of " + std::to_string(g.components) +
                    " comes out of turn");
    if (g.component == 0 && g.role != ComponentClass::required)
        return fail("the first component of a job is required, not " +
                    std::string(to_string(g.role)));
    if (g.spread > 0 && g.role == ComponentClass::optional)
        return fail(of_several + "of which only so many may be on one node has no optional ones");
    if (g.near && g.role == ComponentClass::optional)
        return fail(of_several + "that are to be near each other has no optional ones");
    if (g.array != 0 || g.first || g.after != 0 || !g.afters.empty() || g.singleton ||
        g.begin.ns > 0)
        return fail(of_several + "is neither part of an array nor waits for another job");
    if (market::strategy_of(job.terms) != market::Strategy::truthful || job.terms.pace)
        return fail(of_several + "bids its price: it has no strategy");
    if (g.gang == 0) return {};
    const auto first = jobs.find(g.gang);
    if (first == jobs.end() || first->second.group.gang != g.gang ||
        first->second.spec.launch.uid != job.spec.launch.uid)
        return fail(CauseCode::not_found, "there is no job " + JobId{job.id.home, g.gang}.text() +
                                              " of several components of yours here");
    const HomeJob& one = first->second;
    if (one.phase == JobPhase::finished || one.cancelled || one.group.whole)
        return fail("job " + one.id.text() + " takes no more components");
    if (one.group.components != g.components || one.terms.max_price != job.terms.max_price)
        return fail("the components of job " + one.id.text() +
                    " do not agree on how many they are, or on their bid");
    if (one.spec.restart != job.spec.restart ||
        one.spec.checkpoint_every != job.spec.checkpoint_every)
        return fail("the components of job " + one.id.text() +
                    " do not agree on their checkpoints, or on whether they begin anew");
    if (one.group.spread != g.spread || one.group.pack != g.pack || one.group.near != g.near ||
        one.group.near_trip_us != g.near_trip_us || one.group.near_mbit != g.near_mbit)
        return fail("the components of job " + one.id.text() +
                    " do not agree on how they are to lie");
    job.submitted = one.submitted;  // they rank as one
    return {};
}

void HomeGangs::add(HomeJob& job) {
    JobTies& g = job.group;
    if (!is_component(job)) return;
    if (g.gang == 0) g.gang = job.id.seq;
    gangs_[g.gang][g.component] = job.id.seq;
    gang_of_[job.id.seq] = g.gang;
    if (job.phase != JobPhase::waiting || job.last_epoch.n > 0) return;
    set_variable(job.spec.launch.env, "SOUK_JOB", JobId{job.id.home, g.gang}.text());
    set_variable(job.spec.launch.env, "SOUK_COMPONENT", std::to_string(g.component));
    set_variable(job.spec.launch.env, "SOUK_COMPONENTS", std::to_string(g.components));
}

std::vector<uint64_t> HomeGangs::complete(const HomeJob& newest, Jobs& jobs) {
    std::vector<uint64_t> all = all_of(newest);
    if (!is_component(newest) || all.size() < newest.group.components || newest.group.whole)
        return {};
    std::string hosts;
    for (const uint64_t seq : all) {
        const Ipv4 address = jobs.at(seq).spec.address;
        if (address) hosts += (hosts.empty() ? "" : ",") + address.text();
    }
    for (const uint64_t seq : all) {
        HomeJob& job = jobs.at(seq);
        job.group.whole = true;
        if (!hosts.empty()) set_variable(job.spec.launch.env, "SOUK_HOSTS", hosts);
    }
    return all;
}

// The others ask how it ended, so it is known as long as one of them is not forgotten.
void HomeGangs::forget(uint64_t seq) {
    const auto known = gang_of_.extract(seq);
    if (!known) return;
    const auto gang = gangs_.find(known.mapped());
    if (gang == gangs_.end()) return;
    const bool all = std::none_of(gang->second.begin(), gang->second.end(),
                                  [&](const auto& c) { return gang_of_.contains(c.second); });
    if (all) gangs_.erase(gang);
}

std::vector<uint64_t> HomeGangs::all_of(const HomeJob& job) const {
    std::vector<uint64_t> all;
    const auto gang = gangs_.find(job.group.gang);
    if (!is_component(job) || gang == gangs_.end()) return all;
    for (const auto& [component, seq] : gang->second) all.push_back(seq);
    return all;
}

std::vector<uint64_t> HomeGangs::others_of(const HomeJob& job) const {
    std::vector<uint64_t> others = all_of(job);
    std::erase(others, job.id.seq);
    return others;
}

uint32_t HomeGangs::left(const HomeJob& job, const Jobs& jobs) const {
    // Those that are still to be submitted count: the first alone is no gang.
    if (!job.group.whole) return job.group.components;
    const auto all = all_of(job);
    return static_cast<uint32_t>(std::count_if(all.begin(), all.end(), [&](uint64_t seq) {
        const auto it = jobs.find(seq);
        return it != jobs.end() && it->second.phase != JobPhase::finished;
    }));
}

std::string HomeGangs::waits(const HomeJob& job) const {
    if (!is_component(job) || job.group.whole || job.phase != JobPhase::waiting) return {};
    return "all of its " + std::to_string(job.group.components) +
           " components to be submitted: " + std::to_string(all_of(job).size()) + " are";
}

// -------------------------------------------------------------------------------------------------
// the start

bool HomeGangs::lacks_as_well(HomeJob& other, const HomeJob& job) {
    if (other.spec.launch.path != job.spec.launch.path) return false;
    bool news = false;
    for (const NodeName& node : job.lacking) {
        if (std::find(other.lacking.begin(), other.lacking.end(), node) != other.lacking.end())
            continue;
        other.lacking.push_back(node);
        news = true;
    }
    if (!news) return false;
    other.lacking_status = job.lacking_status;
    other.lacking_why = job.lacking_why;
    return true;
}

// -------------------------------------------------------------------------------------------------
// its terms

Result<std::map<uint64_t, JobTerms>> HomeGangs::changed(const HomeJob& job, const JobTerms& wanted,
                                                        const Jobs& jobs) const {
    const std::string which = "job " + job.id.text() + " is of several components: its ";
    if (!job.group.whole) return fail(CauseCode::not_possible, which + "others have not come yet");
    if (market::strategy_of(wanted) != market::Strategy::truthful || wanted.pace)
        return fail(CauseCode::not_possible, which + "price is what it bids: it has no strategy");
    if (wanted.cpus != job.terms.cpus || wanted.booking != job.terms.booking)
        return fail(CauseCode::not_possible,
                    which + (wanted.cpus != job.terms.cpus ? "CPUs" : "places and promises") +
                        " cannot change");
    std::map<uint64_t, JobTerms> all;
    int64_t cpus = 0;
    for (const uint64_t seq : all_of(job)) {
        const auto it = jobs.find(seq);
        if (it == jobs.end() || it->second.phase == JobPhase::finished) continue;
        all[seq] = it->second.terms;
        cpus += it->second.terms.cpus;
    }
    const bool has_new_budget = wanted.budget != job.terms.budget;
    for (auto& [seq, terms] : all) {
        const Money budget = terms.budget;
        if (seq == job.id.seq) terms = wanted;
        terms.max_price = wanted.max_price;
        terms.finish = wanted.finish;
        terms.project = wanted.project;
        terms.sites = wanted.sites;
        terms.budget = budget;
        if (!has_new_budget) continue;
        const __int128 share = static_cast<__int128>(wanted.budget.micro) * terms.cpus / cpus;
        terms.budget = Money{static_cast<int64_t>(share)};
        if (terms.budget.micro == 0 && wanted.budget.micro > 0)
            return fail(CauseCode::invalid, which + "budget is too small to be divided");
    }
    return all;
}

// -------------------------------------------------------------------------------------------------
// the end

// A component that was ended for another's sake says nothing of its own.
Trouble HomeGangs::verdict(const HomeJob& ended) const {
    if (!is_component(ended) || ended.phase != JobPhase::finished || !is_required(ended)) return {};
    if (ended.why.code == CauseCode::component_ended) return {};
    if (ended_well(ended) && !ended.spec.hold) return {};
    if (ended.cancelled || ended.why.code == CauseCode::cancelled) return why_cancelled(ended);
    if (ended.why.code == CauseCode::components_not_started) return ended.why;
    const std::string how =
        ended.why.empty() ? how_it_ended(ended.wait_status) : std::string(ended.why);
    return because(CauseCode::component_ended,
                   {{"component", component_number(ended)}, {"text", how}});
}

Trouble HomeGangs::why_ended(const HomeJob& job, const Jobs& jobs) const {
    Trouble found;
    for (const uint64_t seq : others_of(job)) {
        const auto it = jobs.find(seq);
        if (it == jobs.end()) continue;
        Trouble why = verdict(it->second);
        if (why.empty()) continue;
        found = why;
        if (why.code != CauseCode::cancelled) return why;
    }
    return found.empty() ? none_required(job, jobs) : found;
}

bool HomeGangs::ends_with_success(const HomeJob& job, const Jobs& jobs) const {
    if (why_ended(job, jobs).code != CauseCode::component_ended) return false;
    bool well = false;
    for (const uint64_t seq : all_of(job)) {
        const auto it = jobs.find(seq);
        if (it == jobs.end() || &it->second == &job || !is_required(it->second)) continue;
        const HomeJob& other = it->second;
        if (other.phase != JobPhase::finished || other.why.code == CauseCode::component_ended)
            continue;
        if (!ended_well(other)) return false;
        well = true;
    }
    return well;
}

// A component that is not required is ended with the last one that is.
Trouble HomeGangs::none_required(const HomeJob& job, const Jobs& jobs) const {
    if (!is_component(job) || is_required(job)) return {};
    const HomeJob* last = nullptr;
    for (const uint64_t seq : all_of(job)) {
        const auto it = jobs.find(seq);
        if (it == jobs.end() || !is_required(it->second)) continue;
        if (it->second.phase != JobPhase::finished) return {};
        last = &it->second;
    }
    if (!last) return {};
    return because(CauseCode::component_ended, {{"component", component_number(*last)},
                                                {"text", how_it_ended(last->wait_status)}});
}

}  // namespace souk
