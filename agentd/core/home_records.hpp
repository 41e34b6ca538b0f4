// SPDX-License-Identifier: GPL-2.0-or-later
// HomeRecords: the jobs of a Home by the number of their id, which of them wants to be looked at
// first and which need which guest (HomeIndex), and which finished ones are kept. It gives each job
// its number and, if it asks for one, an address of its own. Part of Home, which puts a job into
// the index again after each step that may have changed it (`look_at`).
#pragma once

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "agentd/core/home_index.hpp"
#include "agentd/core/home_turn.hpp"

namespace souk {

class HomeRecords {
  public:
    struct Limits {
        size_t jobs_max = 0;
        size_t finished_max = 0;             // settled ones that are kept
        std::optional<Ipv4Range> addresses;  // all but the first and the last
        // of one user other than root: jobs, and bytes of their arguments and environments
        size_t user_jobs_max = 20'000, user_bytes_max = 256 << 20;
    };
    HomeRecords(NodeName node, const Limits& limits);

    // Whether the parts of a record fit each other, as those of one that this home has written.
    static Status sound(const HomeJob& job);
    // A record that cannot be read, and whether a job has such a one.
    void set_aside(uint64_t seq);
    bool is_aside(const JobId& id) const { return id.home == node_ && aside_.contains(id.seq); }
    // As it was read back from disk. It is not in the index yet.
    HomeJob& load(HomeJob job);
    JobId next_id() const { return {node_, next_seq_}; }
    // A new job: it gets the next id, and an address if its spec asks for one. Errors: too many
    // jobs, of all or of its user; no address is free.
    Result<HomeJob*> add(HomeJob job);

    HomeJob* find(const JobId& id);
    const HomeJob* find(const JobId& id) const;
    HomeJob* find(uint64_t seq) { return find(JobId{node_, seq}); }
    const HomeJob* find(uint64_t seq) const { return find(JobId{node_, seq}); }
    HomeJob& at(uint64_t seq) { return jobs_.at(seq); }
    // The newest that this user submitted with this token; null: none, or no token.
    const HomeJob* find_token(uint32_t uid, uint64_t token) const;
    const std::map<uint64_t, HomeJob>& all() const { return jobs_; }
    std::map<uint64_t, HomeJob>& all() { return jobs_; }

    // The job of that number is due then; the guests that it needs are those that its record names.
    void look_at(uint64_t seq, Nanos due);
    std::vector<uint64_t> due(Nanos now) const { return index_.due(now); }
    Nanos next_due() const { return index_.next_due(); }
    const HomeIndex::Jobs& of_guest(const NodeName& node) const { return index_.of_guest(node); }
    std::vector<NodeName> guests_needed() const;
    // The address of a guest that is needed.
    std::optional<Peer> peer_of(const NodeName& node) const;

    // The market has closed this finished job's account.
    void settled(const HomeJob& job);
    // Forgets settled jobs that are too many: the oldest of the user who has most, so that nobody
    // loses the output of his by what others end. Those with orphans stay longer, until there are
    // four times as many as are kept.
    void trim(const HomeTurn& turn);

    // A stale copy: a copy of a job that its home does not count (any more), or a copy of a job
    // that is not known here. It is ended, then forgotten by its node.
    void stale_copy(const NodeName& node, const GuestEvent& event, const HomeTurn& turn);
    // Something of the job may still lie there; asked after until the node says `unknown`.
    static void add_orphan(HomeJob& job, const Peer& peer, Epoch epoch);
    // Adds the job's node at the end of the places where it has been.
    static void add_place(HomeJob& job);

  private:
    struct Held {
        uint32_t uid = 0;
        size_t jobs = 0, bytes = 0;
    };
    Result<Ipv4> free_address(uint32_t uid) const;
    Status check_share(const JobSpec& spec) const;
    void count(uint64_t seq, const JobSpec& spec);
    void uncount(uint64_t seq);

    NodeName node_;
    Limits limits_;
    uint64_t next_seq_ = 1;
    std::set<uint64_t> aside_;
    std::map<uint64_t, HomeJob> jobs_;
    HomeIndex index_;
    struct Settled {
        uint64_t seq = 0;
        uint32_t uid = 0;
    };
    bool may_go(const Settled& one, bool too_many) const;
    std::vector<Settled>::const_iterator first_to_go() const;
    std::vector<Settled> finished_;  // oldest first
    std::map<uint32_t, size_t> finished_of_;
    std::map<uint64_t, Held> sizes_;  // of each job, as it came
    std::map<uint32_t, Held> users_;  // their sums
};

}  // namespace souk
