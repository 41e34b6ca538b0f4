// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/core/home_turn.hpp"

#include <utility>

#include "agentd/core/guest_devices.hpp"
#include "agentd/core/home_groups.hpp"
#include "kernel/base/wait_status.hpp"

namespace souk {
namespace {
GuestCommand command_to(const HomeJob& job, GuestVerb verb) {
    GuestCommand c;
    c.id = job.id;
    c.epoch = job.epoch;
    c.verb = verb;
    return c;
}
}  // namespace

void HomeTurn::send(const Peer& peer, const JobId& id, Epoch epoch, GuestVerb verb) const {
    GuestCommand c;
    c.id = id;
    c.epoch = epoch;
    c.verb = verb;
    c.or_stand = verb == GuestVerb::freeze;
    send(peer, std::move(c));
}

void HomeTurn::send_signal(const HomeJob& job, int32_t signal, bool to_all) const {
    GuestCommand c = command_to(job, GuestVerb::signal);
    c.signal = signal;
    c.to_all = to_all;
    send(job.at, std::move(c));
}

void HomeTurn::send_resume(const HomeJob& job, const Trouble& why) const {
    GuestCommand c = command_to(job, GuestVerb::resume);
    c.not_restored = why.code == CauseCode::criu_cannot_restore;
    send(job.at, std::move(c));
}

void HomeTurn::send_freeze(const HomeJob& job, bool stands) const {
    GuestCommand c = command_to(job, GuestVerb::freeze);
    c.or_stand = true;
    c.stand = stands;
    send(job.at, std::move(c));
}

void HomeTurn::send_checkpoint(const HomeJob& job, const Orphan& to) const {
    GuestCommand c = command_to(job, GuestVerb::checkpoint);
    c.new_epoch = to.epoch;
    c.dest = to.peer.node;
    c.dest_address = to.peer.address;
    send(job.at, std::move(c));
}

void HomeTurn::send_with_spec(const HomeJob& job, const Peer& peer, Epoch epoch,
                              GuestVerb verb) const {
    GuestCommand c;
    c.id = job.id;
    c.epoch = epoch;
    c.verb = verb;
    c.spec = job.spec;
    if (verb != GuestVerb::start) c.source = job.at.node;
    if (peer.node == node)  // one daemon is both
        c.spec.lease = {};
    else
        c.ticket = job.ticket;
    c.memory_mb = job.terms.memory_mb;
    c.cpus = job.terms.cpus;
    c.resources = *job.terms.resources;
    if (verb == GuestVerb::start)
        for (const ResourceNeed& need :
             parse_resources(c.resources).value_or(std::vector<ResourceNeed>{}))
            set_variable(c.spec.launch.env, resource_variable(need.name),
                         std::to_string(need.count));
    send(peer, std::move(c));
}

void HomeTurn::fail_order(HomeJob& job, const NodeName& at, const Trouble& why) const {
    job.comment = why;
    job.story.add(step(StoryStep::What::failed, at, why));
    if (!reporter.is_superseded(job))
        out.push_back(home::ToMarketMsg{OrderFailed{job.id, job.order_seq, at, why}});
    tell(job, home::Tell::What::comment, why);
}

StoryStep HomeTurn::step(StoryStep::What what, const NodeName& at, Trouble why, Money price) const {
    StoryStep s;
    s.what = what;
    s.at = unix_now;
    s.node = at;
    s.why = std::move(why);
    s.price = price;
    return s;
}

// A job that was killed for a limit of its capsule has not run to its own end; one that lost a
// process so has.
Cause why_cancelled(const HomeJob& job) {
    return job.ended_for.empty() ? because(CauseCode::cancelled) : job.ended_for;
}

HomeNext own_end(const HomeJob& job, const GuestEvent& e, const HomeTurn& turn) {
    const bool killed = !e.why.empty() && ended_by_sigkill(e.wait_status);
    if (!e.why.empty() && !killed) turn.tell(job, home::Tell::What::comment, e.why);
    return home::Finished{e.wait_status, killed ? e.why : Trouble()};
}

HomeNext node_lost_it(const HomeJob& job) {
    return home::Gone{because(CauseCode::job_lost, {{"node", job.at.node}})};
}

HomeNext image_is_lost(const HomeJob& job) {
    return home::Gone{because(CauseCode::image_lost, {{"node", job.at.node}})};
}

HomeNext image_is_refused(const HomeJob& job, const std::string& why) {
    return home::Gone{Cause(CauseCode::image_refused,
                            "its image on " + job.at.node + " is refused and kept there: " + why)};
}

}  // namespace souk
