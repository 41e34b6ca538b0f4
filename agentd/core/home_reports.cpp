// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/core/home_reports.hpp"

#include "agentd/core/home_checkpoints.hpp"
#include "agentd/core/home_clock.hpp"
#include "agentd/core/home_delays.hpp"
#include "agentd/core/home_evacuations.hpp"
#include "agentd/core/home_gangs.hpp"
#include "agentd/core/home_groups.hpp"
#include "agentd/core/home_records.hpp"
#include "agentd/core/home_runs.hpp"
#include "agentd/core/lease.hpp"

namespace souk {

JobReport HomeReports::report_of(const HomeJob& job, Nanos now) const {
    JobReport r;
    r.id = job.id;
    r.terms = job.terms;
    r.uid = job.spec.launch.uid;
    r.user = job.user;
    r.name = job.name;
    for (const std::string& arg : job.spec.launch.argv) {
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
    r.in_place = job.in_place && (job.phase == JobPhase::frozen || job.phase == JobPhase::freezing);
    const bool runs = job.phase == JobPhase::running;
    if (runs || r.in_place || job.phase == JobPhase::freezing)
        r.cannot_move = runs_.cannot_move(job);
    r.address = job.spec.address;
    if (runs) r.pid = runs_.pid(job);
    r.checkpoint_trouble = checkpoints_.trouble(job);
    if (job.phase == JobPhase::frozen) r.image_stays = evacuations_.trouble(job);
    r.checkpoint_node = job.checkpoint.at.node;
    r.checkpoint_taken = job.checkpoint.taken;
    r.checkpoint_bytes = job.checkpoint.bytes;
    r.stats = job.stats;
    r.stats.run_time = HomeClock::run_time(job, now);
    if (runs) r.stands = !HomeClock::runs(job) && !clock_.unproven(job);
    if (r.stands) r.paused = runs_.paused(job);
    if (job.phase != JobPhase::waiting && job.phase != JobPhase::starting)
        r.stay_run = job.stay_run;
    if (job.leased) r.alone = home_waits(job.spec.lease);
    r.places = job.places;
    r.lacking = job.lacking;
    r.no_user = runs_.no_user(job, now);
    if (!r.no_user.empty()) r.why_no_user = runs_.why_no_user(job, r.no_user.back());
    r.cancelled = job.cancelled;
    r.wait_status = job.wait_status;
    r.why = job.why;
    r.ended = job.ended;
    if (job.group.array != 0) r.array = JobId{job.id.home, job.group.array}.text();
    r.array_index = job.group.index;
    r.waits_for = groups_.waits(job);
    if (std::string pause = delays_.waits(job); !pause.empty()) r.waits_for = std::move(pause);
    if (HomeGangs::is_component(job)) {
        r.gang = JobId{job.id.home, job.group.gang}.text();
        r.component = job.group.component;
        r.components = gangs_.left(job, records_.all());
        r.optional = HomeGangs::is_optional(job);
        r.only_node = job.group.node;
        r.spread = job.group.spread;
        r.pack = job.group.pack;
        r.near = job.group.near;
        r.near_trip_us = job.group.near_trip_us;
        r.near_mbit = job.group.near_mbit;
        if (r.waits_for.empty()) r.waits_for = gangs_.waits(job);
    }
    FilesUse files = job.files_use;
    files.served = job.spec.files == FilesMode::home;
    if (!runs) files.waits.clear();
    r.files = std::move(files);
    return r;
}

}  // namespace souk
