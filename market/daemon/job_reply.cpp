// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/daemon/job_reply.hpp"

#include <sys/wait.h>

#include <algorithm>

#include "market/core/equal_jobs.hpp"

namespace souk {

using market::Hold;
using market::Job;
using market::Market;

const char* status_of(const Job& job) {
    switch (job.phase()) {
        case JobPhase::waiting: return job.record.order ? "starting" : "wait";
        case JobPhase::running: return "run";
        case JobPhase::frozen: return "suspend";
        case JobPhase::finished: return "finish";
        default: return to_string(job.phase());
    }
}

namespace {

// As a shell sees it.
int exit_status(const JobReport& r) {
    const bool with_others =
        !r.why.empty() && (*r.why).code == CauseCode::component_ended && r.wait_status == 0;
    if (r.cancelled && !r.why.empty() && !with_others) return 255;  // as srun
    if (WIFEXITED(r.wait_status)) return WEXITSTATUS(r.wait_status);
    return WIFSIGNALED(r.wait_status) ? 128 + WTERMSIG(r.wait_status) : 255;
}

void write_files(JsonWriter& w, const FilesUse& files) {
    if (!files.served) return;
    w.field("files", "home").field("files_sent_bytes", files.out_bytes);
    w.field("files_received_bytes", files.in_bytes).field("files_requests", files.requests);
    if (files.known > 0)
        w.field("files_hit_rate", static_cast<double>(files.known) /
                                      static_cast<double>(files.known + files.requests));
    if (!files.waits.empty()) w.field("files_wait", files.waits);
    if (files.bytes_per_s == 0 && files.requests_per_s == 0) return;
    w.field("files_bytes_per_s", files.bytes_per_s)
        .field("files_requests_per_s", files.requests_per_s)
        .field("files_round_trip_ms", files.round_trip.ms());
}

void write_last_move(JsonWriter& w, const LastMove& m) {
    if (m.total.ns <= 0) return;
    w.field("last_move", move_name(m.forecast)).field("last_pause_ms", m.pause.ms());
    w.field("last_total_ms", m.total.ms());
    w.field("forecast_pause_ms", m.forecast.pause.ms())
        .field("forecast_total_ms", m.forecast.total.ms());
    if (m.forecast.dirty_expected_bytes_per_s > 0)
        w.field("forecast_dirty_bytes_per_s", m.forecast.dirty_expected_bytes_per_s);
    if (m.forecast.precopy_bytes > 0) {
        w.field("last_ahead_bytes", m.forecast.precopy_bytes)
            .field("last_ahead_ms", m.forecast.precopy_time.ms());
        w.field("last_ahead_rounds", m.forecast.precopy_rounds)
            .field("last_dirty_bytes_per_s", m.forecast.dirty_bytes_per_s);
        w.field("forecast_frozen_bytes", m.forecast.left_bytes)
            .field("last_frozen_bytes", m.forecast.frozen_bytes);
    }
}

void write_sending(JsonWriter& w, const JobSend& s) {
    w.field("sent_bytes", s.sent_bytes).field("sending_bytes", s.total_bytes);
    if (s.span.ns <= 0) return;
    const double rate = static_cast<double>(s.sent_bytes) / s.span.seconds();
    w.field("sent_bytes_per_s", static_cast<uint64_t>(rate));
}

// Writes what it has used, as its nodes measured it, and how often it has failed. The efficiency is
// the part of the CPU time that it asked for which it used. A run of less than a second has none:
// the start of the job itself takes more than its program then.
void write_use(JsonWriter& w, const JobReport& r, Nanos ran) {
    const JobStats& s = r.stats;
    w.field("image_bytes", s.image_bytes);
    if (s.memory_peak > 0) w.field("memory_peak_bytes", s.memory_peak);
    if (s.cpu_time.ns > 0) w.field("cpu_used_s", s.cpu_time.seconds());
    const double asked_s = ran.seconds() * r.terms.cpus;
    if (s.cpu_time.ns > 0 && ran >= Nanos::from_s(1))
        w.field("efficiency", s.cpu_time.seconds() / asked_s);
    const bool failed = r.phase == JobPhase::finished && exit_status(r) != 0 && !r.cancelled;
    w.field("failures", s.failed_tries + (failed ? 1U : 0U));
}

// Tells what the market has promised of its deadline. Without --promise it does what it can.
void write_promise(JsonWriter& w, const Job& job) {
    const JobTerms& terms = job.record.report.terms;
    const market::Promised& p = *job.record.promised;
    if (p.deadline.ns == 0) {
        if (terms.finish.ns > 0)
            w.field("promise", terms.booking->promise ? "asked" : "best_effort");
        return;
    }
    w.field("promise", to_string(p.end)).field("promise_unix_s", p.deadline.seconds());
    w.field("promise_price", p.price).field("promise_learned", p.learned);
    const market::Contract& c = *job.record.contract;
    if (p.end == market::PromiseEnd::none && c.is_sold() && !c.over) {
        w.field("promise_start_unix_s", c.start.seconds());
        if (!c.node.empty()) w.field("promise_node", c.node);
    }
    if (is_missed(p.end)) w.field("promise_why", words_of(p.end)).field("promise_back", p.back);
}

// Tells what the operator's programs have said of it, or of a peer's job its market.
void write_filter(JsonWriter& w, const market::FilterWord& word) {
    if (word == market::FilterWord{}) return;
    w.key("filter").begin_object().field("state", to_string(word.state));
    const std::pair<const char*, const std::string&> texts[] = {
        {"token", word.token}, {"why", word.why},         {"bars", word.bars},
        {"needs", word.needs}, {"account", word.account},
    };
    for (const auto& [key, text] : texts)
        if (!text.empty()) w.field(key, text);
    w.end_object();
}

// How it bids, and how far that has come.
void write_bidding(JsonWriter& w, const Job& job, Nanos now) {
    const JobTerms& terms = job.record.report.terms;
    if (terms.finish.ns > 0) w.field("finish_s", terms.finish.seconds());
    write_promise(w, job);
    if (!terms.project.empty()) w.field("project", terms.project);
    if (terms.pace) w.field("pace", true);
    if (!terms.strategy.empty()) w.field("strategy", terms.strategy);
    if (terms.pace || !terms.strategy.empty() || job.bid != terms.max_price)
        w.field("bid", job.bid);
    if (terms.runtime.ns > 0)
        w.field("work_s", terms.runtime.seconds()).field("work_done_s", job.record.done.seconds());
    if (job.in_time) w.field("in_time_chance", *job.in_time);
    if (const RunLimits& limits = *terms.limits; limits.run.ns > 0) {
        w.field("time_limit_s", limits.run.seconds());
        if (limits.at_speed > 0) w.field("time_limit_speed", limits.at_speed);
    }
    if (terms.limits->cpu.ns > 0) w.field("cpu_limit_s", terms.limits->cpu.seconds());
    if (!terms.needs->empty()) w.field("needs", *terms.needs);
    if (!terms.resources.empty()) w.field("resources", *terms.resources);
    if (const SiteWish& wish = *terms.sites; !wish.names.empty())
        w.field("sites", wish.names).field("prefer", preference(wish));
    if (terms.sites->within > Money{}) w.field("sites_within", terms.sites->within);
    write_filter(w, *job.record.filter);
    w.field("waited_s", Market::waited(job, now).seconds());
    if (const int32_t weight = market::EqualJobs::turn_of(job).weight;
        weight != market::weight_plain)
        w.field("counts_as", market::weighed(job.bid, weight));
}

}  // namespace

std::string hold_of(const Job& job) {
    switch (job.record.hold) {
        case Hold::none: return "";
        case Hold::at_node: return job.record.hold_node;
        case Hold::frozen:
        case Hold::by_user:
        case Hold::stay: return to_string(job.record.hold);
    }
    return "";
}

void write_job(JsonWriter& w, const Job& job, const Market& market, Nanos now, uint32_t asker) {
    const JobReport& r = job.record.report;
    const JobStats& s = r.stats;
    w.begin_object();
    w.field("id", r.id.text())
        .field("user", r.user)
        .field("uid", r.uid)
        .field("status", status_of(job));
    if (asker != market::root_uid && asker != r.uid) {
        w.end_object();
        return;
    }
    w.field("submitted_unix_s", r.submitted.ns / 1'000'000'000);
    if (job.record.ended.ns > 0 && job.record.ended >= r.submitted)
        w.field("wait_s", std::max(Nanos{}, job.record.ended - r.submitted - s.run_time).seconds());
    w.field("value", r.terms.max_price).field("budget", r.terms.budget);
    w.field("memory_mb", r.terms.memory_mb).field("cpus", r.terms.cpus);
    w.field("runtime_s", std::max(market.run_time(job, now), s.run_time).seconds());
    w.field("market_runtime_s", market.run_time(job, now).seconds());
    const market::Reason reason = market.reason(job);
    w.field("where", r.where)
        .field("comment", reason.text())
        .field("name", r.name)
        .field("command", r.command);
    if (!reason.empty()) {
        w.key("reason").begin_object();
        market::write_reason(w, reason);
        w.end_object();
    }
    // A job that the owner of its node has stopped pays nothing.
    w.field("cost", market.cost(job, now)).field("price", r.stands ? Money{} : job.record.price);
    w.field("freezes", s.freezes).field("thaws", s.thaws).field("migrations", s.migrations);
    w.field("failed_moves", s.failed_moves).field("longest_pause_ms", s.longest_pause.ms());
    write_use(w, r, std::max(market.run_time(job, now), s.run_time));
    if (s.resumes > 0) w.field("resumes", s.resumes);
    if (!r.array.empty()) w.field("array", r.array).field("array_index", r.array_index);
    if (!r.gang.empty()) w.field("gang", r.gang).field("component", r.component);
    if (r.optional) w.field("optional", true);
    if (!r.checkpoint_node.empty()) {
        w.field("checkpoint_node", r.checkpoint_node).field("checkpoint_bytes", r.checkpoint_bytes);
        w.field("checkpoint_age_s",
                std::max<int64_t>(0, ::time(nullptr) - r.checkpoint_taken.ns / 1'000'000'000));
    }
    if (!r.checkpoint_trouble.empty()) w.field("checkpoint_trouble", r.checkpoint_trouble);
    write_cause(w, "image_stays", r.image_stays);
    if (r.address) w.field("address", r.address.text());
    write_files(w, r.files);
    if (r.terms.memory_by_default) w.field("memory_by_default", true);
    const bool stopped = r.phase == JobPhase::frozen && r.in_place;
    if (stopped) w.field("stopped_in_place", true);
    if (r.phase == JobPhase::running || stopped) {
        if (r.pid > 0) w.field("pid", r.pid);
        w.field("can_move", r.cannot_move.empty());
        write_cause(w, "cannot_move", r.cannot_move);
    }
    write_last_move(w, s.last_move);
    w.key("places").begin_array();
    for (const NodeName& place : r.places) w.value(place);
    w.end_array().field("hold", hold_of(job));
    write_bidding(w, job, now);
    if (job.record.order) w.field("going_to", job.record.order->node);
    if (job.sending) write_sending(w, *job.sending);
    write_cause(w, "last_failed", job.failed->last);
    if (r.phase == JobPhase::finished) {
        w.field("exit", exit_status(r)).field("cancelled", r.cancelled);
        write_cause(w, "why", r.why);
        if (job.record.ended.ns > 0) w.field("ended_unix_s", job.record.ended.seconds());
    }
    w.end_object();
}

}  // namespace souk
