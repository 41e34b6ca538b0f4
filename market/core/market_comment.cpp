// SPDX-License-Identifier: GPL-2.0-or-later
// Market, fifth part: one line for people about every job that is not simply running. See
// market.hpp.
#include <algorithm>

#include "market/core/market.hpp"

namespace souk::market {

const Supply& Market::supply() const {
    if (supply_) return *supply_;
    supply_.emplace();
    for (const auto& [name, node] : nodes_) {
        const ProviderReport& r = node.record.report;
        if (usable(node)) supply_->add({r.cpus, r.memory_mb, r.reserve});
    }
    return *supply_;
}

// What no bid would mend: nobody on the market can hold the job. Empty if somebody can.
std::string Market::why_no_provider(const Job& job) const {
    const JobTerms& t = job.record.report.terms;
    const Supply& all = supply();
    const auto least_reserve = all.least_reserve(t.cpus, t.memory_mb);
    if (least_reserve && *least_reserve <= job.bid) return {};
    if (all.empty()) return "no provider is on the market";
    const int32_t cpus = all.most_cpus();
    const int64_t memory = all.most_memory_mb();
    if (t.cpus > cpus)
        return "needs " + std::to_string(t.cpus) + " CPUs; no provider has more than " +
               std::to_string(cpus);
    if (t.memory_mb > memory)
        return "needs " + std::to_string(t.memory_mb) + " MB; no provider offers more than " +
               std::to_string(memory);
    if (!least_reserve)
        return "no provider has both " + std::to_string(t.cpus) + " CPUs and " +
               std::to_string(t.memory_mb) + " MB";
    return (job.bid < t.max_price ? "what its budget bids now, " : "its price ") +
           format_money(job.bid) + " is below every reservation price; " +
           format_money(*least_reserve) + " is the least";
}

// Which job that cannot leave holds the memory that this one would need. Empty if there is none.
std::string Market::memory_held_on(const JobTerms& t) const {
    for (const JobId& id : rooted_) {
        const Node* node = find_node(jobs_.at(id).rooted_on);
        if (!node || !usable(*node) || t.cpus > node->record.report.cpus) continue;
        const int64_t memory = memory_of(*node);
        if (t.memory_mb > memory || t.memory_mb <= memory - node->rooted_mb) continue;
        return "waits for memory on " + node->id() + ": job " + id.text() +
               " cannot move, and holds " + std::to_string(jobs_.at(id).rooted_mb) + " MB there";
    }
    return {};
}

// Where it stands and why, of a job that is stopped there.
std::string Market::rooted_comment(const Job& job) const {
    const JobReport& r = job.record.report;
    if (r.phase != JobPhase::frozen || !r.in_place) return {};
    std::string text = "stopped on " + r.where + " (" +
                       (r.cannot_move.empty() ? "it cannot move" : r.cannot_move) + ")";
    const Node* at = find_node(r.where);
    if (at && at->connected && !usable(*at))
        return text + "; goes on when " + r.where + " takes jobs again";
    return text + "; " + why_waiting(job, solver_);
}

// Why a job that is free to run has no place.
std::string Market::why_waiting(const Job& job, const Solver& solver) const {
    std::string impossible = why_no_provider(job);
    if (!impossible.empty()) return impossible;
    const auto bid = solver.winning_bid(job.key);
    if (job.displaced) {  // by whom stays true; what would win it back is as of now
        const std::string by_whom = job.comment.substr(0, job.comment.find("; "));
        return bid ? by_whom + "; " + format_money(*bid) + " would win it back" : by_whom;
    }
    if (const auto& lacking = job.record.report.lacking; !lacking.empty() && !bid) {
        std::string names;
        for (size_t i = 0; i < std::min<size_t>(lacking.size(), 3); ++i)
            names += (i > 0 ? ", " : "") + lacking[i];
        if (lacking.size() > 3) names += " and " + std::to_string(lacking.size() - 3) + " more";
        return "waits for a node that has its program: " + names + " cannot execute it";
    }
    for (const auto& [name, bar] : job.bars)
        if (bar.active && !lacks_program(job, name))
            return name + " could not take it: " + bar.why + "; tried again later";
    if (bid) return "outbid; " + format_money(*bid) + " would win a place";
    if (std::string held = memory_held_on(job.record.report.terms); !held.empty()) return held;
    return "waits for room";
}

// Empty: it may run there.
std::string Market::why_not_at(const Job& job, const NodeName& name) const {
    const Node* const node = find_node(name);
    if (!node || !node->connected) return "is not connected";
    const ProviderReport& r = node->record.report;
    if (!node->record.has_report || !r.on_market) return "is not on the market";
    if (!r.cannot.empty()) return "takes nobody new (" + r.cannot + ")";
    if (const auto takes = machine_takes(job, *node); !takes)
        return "cannot take it (" + takes.error().message + ")";
    const auto bar = job.bars.find(name);
    if (bar != job.bars.end() && bar->second.active)
        return "could not take it: " + bar->second.why + "; tried again later";
    return {};
}

// Why nothing is decided about it now. Empty if it is free.
std::string Market::pinned_comment(const Job& job) const {
    const JobRecord& r = job.record;
    const bool running = job.phase() == JobPhase::running, frozen = job.phase() == JobPhase::frozen;
    const std::string& where = r.report.where;
    const Node* home = home_of(job);
    if (r.cancel && home && home->connected) return "is being cancelled";
    if (r.cancel) return "cancelled as soon as " + job.id().home + " is back";
    if (!home || !home->connected)
        return "its home node " + job.id().home + " is not connected" +
               (running ? "; it stays on " + where : "");
    if (!job.reported) return "its home node " + job.id().home + " has not reported it yet";
    const Node* at = find_node(where);
    if (running && at && !at->connected) return where + " is not connected; it stays there";
    if (running && at && keeps_guests(*at))
        return where + " takes nobody new (" + at->record.report.cannot + "); it stays there";
    if (frozen && at && !at->connected)
        return std::string(r.report.in_place ? "it stands" : "its image is") + " on " + where +
               ", which is not connected";
    if (job.stuck.active)
        return "cannot leave " + where + ": " + job.stuck.why + "; tried again later";
    if (std::string limited = limit_comment(job); !limited.empty()) return limited;
    if (r.out_of_budget)
        return "its budget of " + format_money(r.report.terms.budget) +
               " is used up; a larger one (srun -J " + job.id().text() + " -b MORE) wakes it";
    if (r.hold == Hold::frozen && running)
        return "runs on " + where + ", and is to be frozen and held by the operator";
    if (r.hold == Hold::frozen) return "held frozen by the operator";
    if (r.hold == Hold::at_node) {
        if (running && where == r.hold_node) return "held on " + where + " by the operator";
        const std::string why = why_not_at(job, r.hold_node);
        return "held for " + r.hold_node + " by the operator" +
               (why.empty() ? "" : ", which " + why);
    }
    return {};
}

std::string Market::comment(const Job& job) const {
    if (job.phase() == JobPhase::finished) return job.record.report.why;
    std::string pinned = pinned_comment(job);
    if (in_transit(job) && !job.record.cancel)
        return job.record.order ? job.record.order->reason : job.comment;
    if (!pinned.empty()) return pinned;
    if (settling())
        return job.phase() == JobPhase::running
                   ? ""
                   : "the market has just started and waits for its nodes";
    const Node* const target = target_of(job);
    const bool running = job.phase() == JobPhase::running;
    if (!target && is_rooted(job) && !running) return rooted_comment(job);
    if (!target) return running ? job.comment : why_waiting(job, solver_);
    if (running && target->id() == job.record.report.where) return job.comment;
    if (!has_room(job)) return "waits until another job of its user has stopped";
    return "waits for room on " + target->id() +
           (job.comment.empty() ? "" : " (" + job.comment + ")");
}

void Market::refresh_comments(Nanos now) {
    comment_rounds_.refresh(
        now, jobs_, nodes_.size(),
        [](const Job& job) {
            return job.phase() == JobPhase::waiting || job.phase() == JobPhase::frozen;
        },
        [this](Job& job) { noted_.insert(job); });
}

}  // namespace souk::market
