// SPDX-License-Identifier: GPL-2.0-or-later
// World: what is really there in the simulated cluster, whatever any daemon believes: each node's
// capsules, the copy of a job in each, and images. A daemon's crash leaves all of it. Progress of a
// job is the virtual time that it ran, so two copies are the same job at the same point exactly
// when their numbers are equal.
//
// Every change is checked at once; the first broken invariant is kept in `failure`:
//   one       at most one copy of a job can make progress
//   forward   a copy that begins to make progress stands where the job stood when it last did:
//             nothing twice, nothing lost
//   never 0   a job that has run, did not end and was not cancelled has a copy or a complete image
//             at that point; a copy that lacks memory, and an image without it, are none
//   back      a job goes back only when no copy of it runs, to a checkpoint that is there, and from
//             then on stands there
//   ended     a job that ended by itself never makes progress again
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <ranges>
#include <string>
#include <vector>

#include "agentd/core/guest.hpp"

namespace souk::sim {

struct Capsule {
    bool alive = true;      // PID 1
    bool job = false;       // the root of the job
    bool frozen = false;    // by its control group, for a dump
    bool restored = false;  // CRIU holds it after a restore
    // The capsule's progress counts only when all its memory is here, and its daemon has written
    // that down.
    bool filling = false;
    bool pages_in = false;
    bool exited = false;  // PID 1 has reaped the root
    bool by_itself = false;
    int32_t status = 0;
    int64_t base = 0;        // progress when last stopped, ns
    Nanos since;             // running: since when
    Nanos until;             // its lease, by its node's clock; 0: none
    bool lapsed = false;     // frozen because that was over
    bool dumped = false;     // held by CRIU, and then by its group: frozen until that is undone
    bool paused = false;     // by its group too, for the owner of the node alone
    bool stood = false;      // frozen because it was to stand in place, until it is let go on
    bool stays = false;      // dumped, and frozen whoever dies there
    Nanos let_go{-1};        // when its dump failed; its daemon hears of it a moment later
    bool unwatched = false;  // it has gone on since its daemon died, which does not know
    uint64_t run = 0;        // counts beginnings and ends of progress
    bool progressing() const { return alive && job && !frozen && !restored && !paused; }
};

struct Image {
    bool complete = false;
    int64_t progress = 0;
    bool in_ram = false;  // gone with its machine
    // In another form than this one, an image is nothing without the frozen job on that node, in
    // this life of its daemon and under this order to send it.
    MoveForm form = MoveForm::stop_and_copy;
    NodeName source;
    GuestKey source_key;
    uint64_t source_life = 0, source_token = 0;
    // The capsules from which this image was made stood still from the first moment until the
    // second.
    Nanos stood_from = {}, stood_until = Nanos::never();
};

// The truth about one job, which the simulator knows and no daemon does.
struct Truth {
    bool ran = false, cancelled = false;
    // its PID 1 was killed from outside while it held the newest state
    bool destroyed = false;
    bool went_back = false;  // to a checkpoint, or to its beginning
    bool released = false;   // where it goes to, and nobody has said that it runs there
    Epoch sent_as;
    uint64_t gang = 0;           // of its home
    bool begins_anew = false;    // once at least
    bool unheard = false;        // once at least it was as before that again
    std::set<NodeName> lacking;  // nodes that cannot execute it
    // the market was told so by every machine there was, and said that it may end
    bool given_up = false;
    bool cannot_dump = false;      // no dump of it succeeds
    int64_t pauses = 0;            // for owners of nodes
    int64_t memory_mb = 0;         // that it holds where it is
    int64_t stands = 0;            // by orders
    int64_t work = 0;              // progress at which it ends by itself
    int64_t frontier = 0;          // the farthest that it ever came
    std::optional<int32_t> ended;  // its own end
    Nanos ended_at;                // that was then
};

// Capsules, or images: a map by node, and which of them are of one job. `changed` has the nodes of
// those that anybody could have changed since it was last emptied.
template <class T>
class Copies {
  public:
    using At = std::pair<NodeName, GuestKey>;
    using Map = std::map<At, T>;
    using Entry = typename Map::value_type;

    auto begin() { return all_.begin(); }
    auto end() { return all_.end(); }
    auto begin() const { return all_.begin(); }
    auto end() const { return all_.end(); }
    bool empty() const { return all_.empty(); }
    size_t size() const { return all_.size(); }
    std::vector<NodeName> changed;

    auto find(const At& at) {
        note(at.first);
        return all_.find(at);
    }
    auto find(const At& at) const { return all_.find(at); }
    T& operator[](const At& at) {
        note(at.first);
        const auto [it, is_new] = all_.try_emplace(at);
        if (is_new) of_job_[at.second.id].push_back(&*it);
        return it->second;
    }
    auto erase(typename Map::iterator it) {
        note(it->first.first);
        const auto job = of_job_.find(it->first.second.id);
        std::erase(job->second, &*it);
        if (job->second.empty()) of_job_.erase(job);
        return all_.erase(it);
    }
    void erase(const At& at) {
        if (const auto it = all_.find(at); it != all_.end()) erase(it);
    }
    // The capsules or images on one node, of all jobs.
    auto on(const NodeName& node) const {
        const auto first = all_.lower_bound({node, {}});
        return std::ranges::subrange(first, end_on(node, first));
    }
    auto on(const NodeName& node) {
        note(node);
        const auto first = all_.lower_bound({node, {}});
        return std::ranges::subrange(first, end_on(node, first));
    }
    // The capsules or images of one job, on all nodes.
    const std::vector<const Entry*>& of(const JobId& id) const {
        static const std::vector<const Entry*> none;
        const auto it = of_job_.find(id);
        return it == of_job_.end() ? none : it->second;
    }

  private:
    void note(const NodeName& node) {
        if (changed.empty() || changed.back() != node) changed.push_back(node);
    }
    template <class It>
    It end_on(const NodeName& node, It it) const {
        while (it != all_.end() && it->first.first == node) ++it;
        return it;
    }

    Map all_;
    std::map<JobId, std::vector<const Entry*>> of_job_;
};

class World {
  public:
    using At = std::pair<NodeName, GuestKey>;
    Copies<Capsule> capsules;
    Copies<Image> images;
    std::map<JobId, Truth> truths;
    std::string failure;

    void create(const At& at) { capsules[at] = Capsule{}; }
    // exec of the program in an empty capsule
    void start(const At& at, Nanos now);
    void freeze(const At& at, Nanos now);
    void thaw(const At& at, Nanos now);
    void pause(const At& at, Nanos now, bool on);
    void make_image(const At& at, Nanos now, bool complete);
    void restore(const At& at, const Image& image);  // held
    void release(const At& at, Nanos now);           // held to running
    // a copy that was filling counts, if its memory has come
    void whole(const At& at, Nanos now);
    void exit(const At& at, int32_t status, Nanos now);  // the job's own end
    void kill_job(const At& at, Nanos now);              // SIGKILL by CRIU; PID 1 reaps it
    void kill_capsule(const At& at, Nanos now);
    void destroy(const At& at, Nanos now);  // PID 1 killed from outside
    void remove(const At& at, Nanos now);   // image and directory
    void drop_image(const At& at, Nanos now);
    // The machine dies. Whatever runs there ends, and images in memory are gone.
    void machine_dies(const NodeName& node, Nanos now);
    // go_back: the job's home goes back to that checkpoint (none: it begins anew). stands_at: the
    // copy that was let run elsewhere is lost, so the copy at its source is the job.
    void stands_at(const JobId& id, const At& source, Nanos now);
    void go_back(const JobId& id, const At* checkpoint);

    Capsule* capsule(const At& at);
    const Image* complete_image(const At& at) const;
    bool progressing(const JobId& id) const;
    int64_t progress(const Capsule& c, Nanos now) const {
        return c.progressing() ? c.base + (now - c.since).ns : c.base;
    }
    void fail(const JobId& id, const std::string& what);

  private:
    void begin(const At& at, Nanos now);
    void stop(const At& at, Nanos now);
    void check(const JobId& id, Nanos now);
};

}  // namespace souk::sim
