// SPDX-License-Identifier: GPL-2.0-or-later
// Home: what the market is told and what it orders, and which finished jobs are kept. See home.hpp.
#include <algorithm>
#include <utility>

#include "agentd/core/home.hpp"
#include "agentd/core/lease.hpp"

namespace souk {

using namespace home;

// -------------------------------------------------------------------------------------------------
// market

JobReport Home::report_of(const HomeJob& job, Nanos now) const {
    JobReport r;
    r.id = job.id;
    r.terms = job.terms;
    r.uid = job.spec.uid;
    r.user = job.user;
    r.name = job.name;
    for (const std::string& arg : job.spec.argv) {
        if (r.command.size() + arg.size() > 200) break;
        r.command += (r.command.empty() ? "" : " ") + arg;
    }
    r.submitted = job.submitted;
    r.phase = job.phase;
    r.where = job.at.node;
    r.to = job.to.node;
    r.epoch = job.epoch;
    r.order_seq = job.order_seq;
    r.comment = job.comment;
    r.in_place = job.in_place && job.phase == JobPhase::frozen;
    const bool stops = r.in_place || job.phase == JobPhase::freezing;
    if (const auto v = volatile_.find(job.id.seq); v != volatile_.end() && stops)
        r.cannot_move = v->second.cannot_move;
    r.address = job.spec.address;
    if (const auto v = volatile_.find(job.id.seq);
        v != volatile_.end() && job.phase == JobPhase::running) {
        r.cannot_move = v->second.cannot_move;
        if (v->second.pid_epoch == job.epoch) r.pid = v->second.pid;
    }
    if (const auto v = volatile_.find(job.id.seq); v != volatile_.end())
        r.checkpoint_trouble = v->second.save_trouble;
    r.checkpoint_node = job.checkpoint.at.node;
    r.checkpoint_taken = job.checkpoint.taken;
    r.checkpoint_bytes = job.checkpoint.bytes;
    r.stats = job.stats;
    r.stats.run_time = run_time(job, now);
    if (job.phase == JobPhase::running) {
        const auto clock = volatile_.find(job.id.seq);
        const bool unproven =
            clock != volatile_.end() && clock->second.unproven_since != Nanos::never();
        r.stands = job.running_since == Nanos::never() && !unproven;
    }
    if (job.phase != JobPhase::waiting && job.phase != JobPhase::starting)
        r.stay_run = job.stay_run;
    if (job.leased) r.alone = home_waits(job.spec.lease);
    r.places = job.places;
    r.lacking = job.lacking;
    r.cancelled = job.cancelled;
    r.wait_status = job.wait_status;
    r.why = job.why;
    return r;
}

void Home::report(const HomeJob& job, Nanos now, Outputs& out) const {
    out.push_back(ToMarketMsg{report_of(job, now)});
}

void Home::market_up(Nanos now, Outputs& out) {
    const Scene scene(*this, &out, [&] { return trace_in(Input::market_up); });
    market_is_up_ = true;
    for (const auto& [seq, job] : jobs_)
        if (!job.settled) report(job, now, out);
}

void Home::market_down() {
    const Scene scene(*this, nullptr, [&] { return trace_in(Input::market_down); });
    market_is_up_ = false;
    for (const auto& [seq, job] : jobs_)
        if (job.terms.budget.micro > 0 || job.day_limit.micro > 0) reindex(seq);
}

void Home::order(const Order& order, Nanos now, Outputs& out) {
    const Scene scene(*this, &out, [&] { return trace_order(order); });
    HomeJob* job = mutable_job(order.id);
    if (!job) {
        JobReport gone;
        gone.id = order.id;
        gone.phase = JobPhase::finished;
        gone.terms.max_price = Money{1};  // every report states a price
        gone.order_seq = order.seq;
        gone.why = "its home node does not know it";
        out.push_back(ToMarketMsg{std::move(gone)});
        return;
    }
    if (job->phase == JobPhase::finished) return report(*job, now, out);
    if (order.seq <= job->order_seq) return;
    const Reindex indexed(*this, job->id.seq);
    job->order_seq = order.seq;
    if (order.kind == Order::Kind::run && job->phase != JobPhase::running) {
        if (job->price != order.price)
            job->story.add(step_of(StoryStep::What::priced, order.node, {}, order.price));
        job->price = order.price;
    }
    if (order.kind == Order::Kind::abort) {
        if (!job->cancelled) (void)cancel(job->id, now, out);
        return;
    }
    if (order.kind == Order::Kind::give_up) return give_up(*job, now, out);
    const bool steady_now = job->phase == JobPhase::waiting || job->phase == JobPhase::running ||
                            job->phase == JobPhase::frozen;
    if (!steady_now || job->cancelled)
        vol(*job).pending = order;
    else
        take(*job, order, now, out);
}

void Home::note(const JobNote& note, Nanos now, Outputs& out) {
    const Scene scene(*this, &out,
                      [&] { return trace_in(Input::note, note.id, {}, {}, note.comment); });
    HomeJob* job = mutable_job(note.id);
    if (!job) return;
    const Reindex indexed(*this, job->id.seq);
    const bool new_price = job->price != note.price;
    job->cost = note.cost;
    job->price = note.price;
    job->cost_run = run_time(*job, now);
    // durable with what is written next
    if (new_price && note.price.micro > 0 && job->phase != JobPhase::finished)
        job->story.add(step_of(StoryStep::What::priced, job->at.node, {}, note.price));
    const bool new_day = job->day_limit != note.day_limit || job->day_cost != note.day_cost;
    take_day(*job, note);
    // so that it holds after a restart
    if ((new_price && job->terms.budget.micro > 0) || new_day) persist(*job, out, Durable::later);
    if (!note.comment.empty() && note.comment != job->comment) {
        job->comment = note.comment;
        out.push_back(Tell{job->id, Tell::What::comment, job->comment});
    }
    if (!note.settled || job->settled || job->phase != JobPhase::finished) return;
    job->settled = true;
    volatile_.erase(job->id.seq);
    persist(*job, out, Durable::later);  // the market says it again
    finished_.push_back(job->id.seq);
    trim_finished(out);
}

void Home::trim_finished(Outputs& out) {
    size_t excess =
        finished_.size() > limits_.finished_max ? finished_.size() - limits_.finished_max : 0;
    std::erase_if(finished_, [&](uint64_t seq) {
        if (excess == 0) return false;
        const auto it = jobs_.find(seq);
        // An orphan that is forgotten is told by its node when that comes back, and dropped then.
        const bool too_many = excess > 3 * limits_.finished_max;
        if (it == jobs_.end() || (!it->second.orphans.empty() && !too_many)) return false;
        --excess;
        out.push_back(Erase{it->second.id});
        jobs_.erase(it);
        volatile_.erase(seq);
        reindex(seq);
        return true;
    });
}

}  // namespace souk
