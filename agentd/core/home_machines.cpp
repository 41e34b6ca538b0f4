// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/core/home_machines.hpp"

#include <algorithm>

#include "kernel/base/json.hpp"

namespace souk {

namespace {

std::string place(const Peer& peer, Epoch epoch) {
    return peer.node + "." + std::to_string(epoch.n);
}

void write_due(JsonWriter& j, const char* name, Nanos at, Nanos now) {
    if (at != Nanos::never()) j.field(name, (at - now).seconds());
}

}  // namespace

HomeMachines::HomeMachines(const NodeName& node, const HomeLimits& limits)
    : records(node, {.jobs_max = limits.jobs_max,
                     .finished_max = limits.finished_max,
                     .addresses = limits.addresses}),
      runs({limits.step_patience, limits.transfer_patience}),
      moves({limits.step_patience, limits.transfer_patience}),
      checkpoints({limits.checkpoint_every, limits.transfer_patience, limits.address,
                   limits.address_known}),
      evacuations({node, limits.expel_patience, limits.transfer_patience}),
      budget(limits.warn_permille, limits.warn_span),
      expels(limits.expel_patience),
      wakes(node, limits.wake),
      reports(runs, checkpoints, clock, groups, gangs, records, evacuations, delays, orders) {}

Nanos HomeMachines::due(const HomeJob& job) const {
    return std::min({expels.due(job), moves.due(job), runs.due(job), checkpoints.due(job),
                     budget.due(job), leases.due(job), evacuations.due(job), ends.due(job),
                     time_limits.due(job), delays.due(job)});
}

void HomeMachines::forget(uint64_t seq) {
    orders.forget(seq);
    runs.forget(seq);
    moves.forget(seq);
    checkpoints.forget(seq);
    evacuations.forget(seq);
    clock.forget(seq);
    claims.forget(seq);
    budget.forget(seq);
    leases.forget(seq);
    expels.forget(seq);
    wakes.forget(seq);
    signals.forget(seq);
    ends.forget(seq);
    time_limits.forget(seq);
    delays.forget(seq);
    gangs.forget(seq);
}

void HomeMachines::describe(const HomeJob& job, Nanos now, JsonWriter& j) const {
    j.field("job", job.id.text()).field("phase", to_string(job.phase));
    if (job.step != MoveStep::none) j.field("step", to_string(job.step));
    if (!job.at.node.empty()) j.field("at", place(job.at, job.epoch));
    if (job.step != MoveStep::none)
        j.field("to", place(job.to, job.to_epoch)).field("from_frozen", job.from_frozen);
    j.field("last_epoch", job.last_epoch.n).field("order_seq", job.order_seq);
    j.key("flags").begin_array();
    for (const auto& [name, set] : {std::pair{"cancelled", job.cancelled},
                                    {"settled", job.settled},
                                    {"leased", job.leased},
                                    {"to_leased", job.to_leased},
                                    {"in_place", job.in_place},
                                    {"going_back", job.going_back},
                                    {"splice_due", job.splice.due},
                                    {"clock_runs", job.running_since != Nanos::never()}})
        if (set) j.value(name);
    j.end_array();
    if (job.checkpoint.epoch.n > 0)
        j.field("checkpoint", place(job.checkpoint.at, job.checkpoint.epoch));
    if (job.saving.epoch.n > 0) j.field("saving", place(job.saving.peer, job.saving.epoch));
    if (job.evacuation.epoch.n > 0)
        j.field("evacuation", place(job.evacuation.peer, job.evacuation.epoch));
    j.key("orphans").begin_array();
    for (const Orphan& r : job.orphans) j.value(place(r.peer, r.epoch));
    j.end_array();
    write_due(j, "limit_s", std::min(moves.due(job), runs.due(job)), now);
    write_due(j, "freeze_for_owner_s", expels.due(job), now);
    write_due(j, "checkpoint_s", checkpoints.save_at(job), now);
    if (const Order* pending = orders.pending(job))
        j.field("pending", std::string(to_string(pending->kind)) +
                               (pending->node.empty() ? "" : " " + pending->node));
    if (const Order* kept = wakes.kept(job.id.seq)) j.field("wakes_later", kept->node);
    if (const size_t waiting = signals.waiting(job)) j.field("signals", waiting);
    if (job.step != MoveStep::none) {
        const HomeMoves::Ready ready = moves.ready(job);
        j.field("source_ready", ready.source)
            .field("destination_ready", ready.destination)
            .field("source_stands", ready.source_stands);
    }
    if (const Trouble& why = runs.cannot_move(job); !why.empty()) j.field("cannot_move", why);
    if (const Trouble& why = checkpoints.trouble(job); !why.empty())
        j.field("checkpoint_trouble", why);
    if (const Cause& why = evacuations.trouble(job); !why.empty())
        j.field("evacuation_trouble", why);
    write_due(j, "lease_over_s", leases.due(job), now);
    if (!job.comment.empty()) j.field("comment", job.comment);
    if (!job.why.empty()) j.field("why", job.why);
}

}  // namespace souk
