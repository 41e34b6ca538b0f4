// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/core/home_turn.hpp"

#include <utility>

#include "kernel/base/wait_status.hpp"

namespace souk {

void HomeTurn::send(const Peer& peer, const JobId& id, Epoch epoch, GuestVerb verb) const {
    GuestCommand c;
    c.id = id;
    c.epoch = epoch;
    c.verb = verb;
    c.or_stand = verb == GuestVerb::freeze;
    send(peer, std::move(c));
}

void HomeTurn::send_with_spec(const HomeJob& job, const Peer& peer, Epoch epoch,
                              GuestVerb verb) const {
    GuestCommand c;
    c.id = job.id;
    c.epoch = epoch;
    c.verb = verb;
    c.spec = job.spec;
    if (peer.node == node) c.spec.lease = {};  // one daemon is both
    c.memory_mb = job.terms.memory_mb;
    c.cpus = job.terms.cpus;
    send(peer, std::move(c));
}

void HomeTurn::fail_order(HomeJob& job, const NodeName& at, const std::string& why) const {
    job.comment = why;
    job.story.add(step(StoryStep::What::failed, at, why));
    OrderFailed f{job.id, job.order_seq, at, why};
    out.push_back(home::ToMarketMsg{std::move(f)});
    tell(job, home::Tell::What::comment, why);
}

StoryStep HomeTurn::step(StoryStep::What what, const NodeName& at, std::string why,
                         Money price) const {
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
HomeNext own_end(const HomeJob& job, const GuestEvent& e, const HomeTurn& turn) {
    const bool killed = !e.why.empty() && ended_by_sigkill(e.wait_status);
    if (!e.why.empty() && !killed) turn.tell(job, home::Tell::What::comment, e.why);
    return home::Finished{e.wait_status, killed ? e.why : ""};
}

HomeNext node_lost_it(const HomeJob& job) {
    return home::Gone{"node " + job.at.node + " has lost it"};
}

HomeNext image_is_lost(const HomeJob& job) {
    return home::Gone{"its image on " + job.at.node + " is lost"};
}

}  // namespace souk
