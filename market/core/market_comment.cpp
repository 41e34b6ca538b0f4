// SPDX-License-Identifier: GPL-2.0-or-later
// Market, fifth part: one line for people about every job that is not simply running. See
// market.hpp.
#include <algorithm>

#include "market/core/market.hpp"

namespace souk::market {

// Where it stands and why, of a job that is stopped there.
std::string Market::rooted_comment(const Job& job) const {
    const JobReport& r = job.record.report;
    if (r.phase != JobPhase::frozen || !r.in_place) return {};
    std::string text = "stopped on " + r.where + " (" +
                       (r.cannot_move.empty() ? "it cannot move" : r.cannot_move) + ")";
    const Node* at = find_node(r.where);
    if (at && at->connected && !Places::usable(*at))
        return text + "; goes on when " + r.where + " takes jobs again";
    return text + "; " + why_waiting(job, solver_);
}

// Why a job that is free to run has no place.
std::string Market::why_waiting(const Job& job, const Solver& solver) const {
    std::string impossible = places_.why_no_provider(job);
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
        if (bar.active && !Places::lacks_program(job, name))
            return name + " could not take it: " + bar.why + "; tried again later";
    if (bid) return "outbid; " + format_money(*bid) + " would win a place";
    if (std::string held = places_.memory_held_on(job.record.report.terms); !held.empty())
        return held;
    return "waits for room";
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
    if (running && at && Places::keeps_guests(*at))
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
        const std::string why = places_.why_not_at(job, r.hold_node);
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
    if (!target && Places::is_rooted(job) && !running) return rooted_comment(job);
    if (!target) return running ? job.comment : why_waiting(job, solver_);
    if (running && target->id() == job.record.report.where) return job.comment;
    if (!Admission::has_room(job)) return "waits until another job of its user has stopped";
    return "waits for room on " + target->id() +
           (job.comment.empty() ? "" : " (" + job.comment + ")");
}

void Market::refresh_comments(Nanos now) {
    comment_rounds_.refresh(
        now, book_.jobs(), book_.nodes().size(),
        [](const Job& job) {
            return job.phase() == JobPhase::waiting || job.phase() == JobPhase::frozen;
        },
        [this](Job& job) { notes_.of(job); });
}

}  // namespace souk::market
