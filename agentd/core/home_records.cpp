// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/core/home_records.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "kernel/base/check.hpp"
#include "kernel/base/fields.hpp"

namespace souk {

HomeRecords::HomeRecords(NodeName node, const Limits& limits)
    : node_(std::move(node)), limits_(limits) {
    MUST(valid_node_name(node_));
}

void HomeRecords::set_aside(uint64_t seq) {
    aside_.insert(seq);
    if (seq < rule::counter_max) next_seq_ = std::max(next_seq_, seq + 1);
}

Status HomeRecords::sound(const HomeJob& job) {
    const bool moves = job.phase == JobPhase::moving || job.phase == JobPhase::thawing;
    const bool is_somewhere = job.phase != JobPhase::waiting && job.phase != JobPhase::finished;
    if (moves != (job.step != MoveStep::none)) return fail("its phase and its step do not fit");
    if (moves && (job.to.node.empty() || job.to_epoch.n == 0))
        return fail("it moves, and nowhere to");
    if (is_somewhere && (job.at.node.empty() || job.epoch.n == 0))
        return fail("it has begun, and is nowhere");
    if (std::max(job.epoch.n, job.to_epoch.n) > job.last_epoch.n)
        return fail("it is of an epoch that was not given yet");
    return {};
}

HomeJob& HomeRecords::load(HomeJob job) {
    MUST(job.id.home == node_);
    const uint64_t seq = job.id.seq;
    next_seq_ = std::max(next_seq_, seq + 1);
    if (job.phase == JobPhase::finished && job.settled) settled(job);
    uncount(seq);
    count(seq, job.spec);
    return jobs_.insert_or_assign(seq, std::move(job)).first->second;
}

Result<HomeJob*> HomeRecords::add(HomeJob job) {
    if (jobs_.size() >= limits_.jobs_max)
        return fail("this node keeps " + std::to_string(limits_.jobs_max) +
                    " jobs already; wait until some are done");
    TRY(check_share(job.spec));
    job.spec.address = {};
    if (job.spec.net == NetMode::own) {
        TRY_ASSIGN(job.spec.address, free_address(job.spec.launch.uid));
    }
    job.id = {node_, next_seq_++};
    count(job.id.seq, job.spec);
    return &jobs_.emplace(job.id.seq, std::move(job)).first->second;
}

// -------------------------------------------------------------------------------------------------
// what one user may keep here

static size_t bytes_of(const JobSpec& spec) {
    size_t bytes = 0;
    for (const auto* list : {&spec.launch.argv, &spec.launch.env})
        for (const std::string& text : *list) bytes += text.size() + sizeof text;
    return bytes;
}

Status HomeRecords::check_share(const JobSpec& spec) const {
    if (spec.launch.uid == 0) return {};
    const auto it = users_.find(spec.launch.uid);
    const Held held = it == users_.end() ? Held{} : it->second;
    if (held.jobs >= limits_.user_jobs_max)
        return fail("this node keeps " + std::to_string(held.jobs) +
                    " jobs of yours already, the most for one user; wait until some are done");
    if (held.bytes + bytes_of(spec) > limits_.user_bytes_max)
        return fail(
            "the arguments and environments of your jobs on this node would be longer "
            "than " +
            std::to_string(limits_.user_bytes_max >> 20) +
            " MB, the most for one user; wait until some are done");
    return {};
}

void HomeRecords::count(uint64_t seq, const JobSpec& spec) {
    const Held held{spec.launch.uid, 1, bytes_of(spec)};
    sizes_[seq] = held;
    users_[spec.launch.uid].jobs += held.jobs;
    users_[spec.launch.uid].bytes += held.bytes;
}

void HomeRecords::uncount(uint64_t seq) {
    const auto it = sizes_.find(seq);
    if (it == sizes_.end()) return;
    Held& user = users_[it->second.uid];
    user.jobs -= it->second.jobs;
    user.bytes -= it->second.bytes;
    if (user.jobs == 0) users_.erase(it->second.uid);
    sizes_.erase(it);
}

// -------------------------------------------------------------------------------------------------
// addresses of jobs

// One that no job here has, beginning where the job's number says, so that one that has just been
// given back rests. A user's jobs that do not run cost him nothing, so they may not have more
// addresses than they leave free: whoever comes later always finds some.
Result<Ipv4> HomeRecords::free_address(uint32_t uid) const {
    if (!limits_.addresses)
        return fail(CauseCode::not_possible,
                    "this node has no addresses for jobs with a network of their own (-N, --mpi, "
                    "--net=own): souk setup addresses gives it some");
    std::set<Ipv4> used;
    uint64_t idle = 0;
    for (const auto& [seq, job] : jobs_) {
        if (!job.spec.address || job.phase == JobPhase::finished) continue;
        used.insert(job.spec.address);
        idle += job.spec.launch.uid == uid &&
                (job.phase == JobPhase::waiting || job.phase == JobPhase::frozen);
    }
    const uint64_t given = limits_.addresses->size() - 2;
    if (uid != 0 && idle > 0 && idle + used.size() >= given)
        return fail(CauseCode::too_many,
                    "your jobs that do not run have " + std::to_string(idle) + " of the " +
                        std::to_string(given) +
                        " addresses of this node, as many as they leave to others; wait until one "
                        "runs or is done");
    for (uint64_t i = 0; i < std::min(given, used.size() + 1); ++i)
        if (const Ipv4 a{
                static_cast<uint32_t>(limits_.addresses->first.n + 1 + (next_seq_ + i) % given)};
            !used.contains(a))
            return a;
    return fail("all " + std::to_string(given) +
                " addresses of this node are in use by jobs; wait until one is done");
}

const HomeJob* HomeRecords::find(const JobId& id) const {
    if (id.home != node_) return nullptr;
    const auto it = jobs_.find(id.seq);
    return it == jobs_.end() ? nullptr : &it->second;
}

HomeJob* HomeRecords::find(const JobId& id) {
    return const_cast<HomeJob*>(std::as_const(*this).find(id));
}

const HomeJob* HomeRecords::find_token(uint32_t uid, uint64_t token) const {
    if (token == 0) return nullptr;
    for (auto it = jobs_.rbegin(); it != jobs_.rend(); ++it)
        if (it->second.token == token && it->second.spec.launch.uid == uid) return &it->second;
    return nullptr;
}

// -------------------------------------------------------------------------------------------------
// index

void HomeRecords::look_at(uint64_t seq, Nanos due) {
    std::vector<NodeName> guests;
    const auto need = [&](const NodeName& node) {
        if (std::find(guests.begin(), guests.end(), node) == guests.end()) guests.push_back(node);
    };
    if (const auto it = jobs_.find(seq); it != jobs_.end()) {
        const HomeJob& job = it->second;
        if (job.phase != JobPhase::finished && !job.at.node.empty()) need(job.at.node);
        if (job.step != MoveStep::none) need(job.to.node);
        if (job.saving.epoch.n > 0) need(job.saving.peer.node);
        if (job.evacuation.epoch.n > 0) need(job.evacuation.peer.node);
        if (job.checkpoint.epoch.n > 0) need(job.checkpoint.at.node);
        for (const Orphan& r : job.orphans) need(r.peer.node);
    }
    index_.put(seq, due, std::move(guests));
}

std::vector<NodeName> HomeRecords::guests_needed() const {
    std::vector<NodeName> nodes;
    for (const auto& [node, jobs] : index_.guests()) nodes.push_back(node);
    return nodes;
}

std::optional<Peer> HomeRecords::peer_of(const NodeName& node) const {
    for (const uint64_t seq : index_.of_guest(node)) {
        const HomeJob& job = jobs_.at(seq);
        if (job.at.node == node) return job.at;
        if (job.to.node == node) return job.to;
        for (const Orphan& r : job.orphans)
            if (r.peer.node == node) return r.peer;
    }
    return std::nullopt;
}

// -------------------------------------------------------------------------------------------------
// what is kept

void HomeRecords::settled(const HomeJob& job) {
    finished_.push_back({job.id.seq, job.spec.launch.uid});
    ++finished_of_[job.spec.launch.uid];
}

// An orphan that is forgotten is told by its node when that comes back, and dropped then.
bool HomeRecords::may_go(const Settled& one, bool too_many) const {
    if (one.seq + 1 == next_seq_) return false;  // the next number follows from it after a restart
    const auto it = jobs_.find(one.seq);
    return it != jobs_.end() && (it->second.orphans.empty() || too_many);
}

std::vector<HomeRecords::Settled>::const_iterator HomeRecords::first_to_go() const {
    const bool too_many = finished_.size() - limits_.finished_max > 3 * limits_.finished_max;
    size_t most = 0;
    for (const auto& [uid, count] : finished_of_) most = std::max(most, count);
    auto first = finished_.end();
    for (auto it = finished_.begin(); it != finished_.end(); ++it) {
        if (!may_go(*it, too_many)) continue;
        if (finished_of_.at(it->uid) == most) return it;
        if (first == finished_.end()) first = it;
    }
    return too_many ? first : finished_.end();
}

void HomeRecords::trim(const HomeTurn& turn) {
    while (finished_.size() > limits_.finished_max) {
        const auto gone = first_to_go();
        if (gone == finished_.end()) return;
        const auto [seq, uid] = *gone;
        finished_.erase(gone);
        if (--finished_of_[uid] == 0) finished_of_.erase(uid);
        turn.out.push_back(home::Erase{{node_, seq}});
        jobs_.erase(seq);
        uncount(seq);
        look_at(seq, Nanos::never());
    }
}

constexpr ptrdiff_t orphans_of_node_max = 4;

void HomeRecords::stale_copy(const NodeName& node, const GuestEvent& event, const HomeTurn& turn) {
    HomeJob* const job = find(event.id);
    Peer peer = peer_of(node).value_or(Peer{node, {}});
    if (job) {
        const auto is_it = [&](const Orphan& r) {
            return r.peer.node == node && r.epoch == event.epoch;
        };
        const auto it = std::find_if(job->orphans.begin(), job->orphans.end(), is_it);
        if (it != job->orphans.end()) peer = it->peer;
        const auto of_node =
            std::ranges::count(job->orphans, node, [](const Orphan& r) { return r.peer.node; });
        // Until it is gone, the node is asked again after every break. A node that invents copies
        // does not push out what others have.
        if (event.state != GuestState::unknown && of_node < orphans_of_node_max)
            add_orphan(*job, peer, event.epoch);
        else if (event.state == GuestState::unknown && it != job->orphans.end())
            job->orphans.erase(it);
    }
    switch (event.state) {
        case GuestState::unknown:
            if (job && job->settled) trim(turn);
            return;
        case GuestState::frozen:
        case GuestState::exited:
        case GuestState::killed:
        case GuestState::failed: return turn.send(peer, event.id, event.epoch, GuestVerb::drop);
        default: return turn.send(peer, event.id, event.epoch, GuestVerb::kill);
    }
}

void HomeRecords::add_orphan(HomeJob& job, const Peer& peer, Epoch epoch) {
    constexpr size_t orphans_max = 64;
    const Orphan r{peer, epoch};
    if (std::find(job.orphans.begin(), job.orphans.end(), r) != job.orphans.end()) return;
    if (job.orphans.size() == orphans_max) job.orphans.erase(job.orphans.begin());
    job.orphans.push_back(r);
}

void HomeRecords::add_place(HomeJob& job) {
    constexpr size_t places_max = 64;
    if (!job.places.empty() && job.places.back() == job.at.node) return;
    if (job.places.size() == places_max) job.places.erase(job.places.begin());
    job.places.push_back(job.at.node);
}

}  // namespace souk
