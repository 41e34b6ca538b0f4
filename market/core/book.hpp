// SPDX-License-Identifier: GPL-2.0-or-later
// Book: the jobs, nodes and users that a market knows, each found by its name and by its key, and
// what of their records is to be stored. It says who is let in (how many there may be at most),
// numbers the new ones, and forgets the oldest of those that have finished. Part of Market, which
// decides what the records say. What fails: one more than there may be.
#pragma once

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "kernel/base/result.hpp"
#include "market/core/key_map.hpp"
#include "market/core/ledger.hpp"
#include "market/core/marked.hpp"
#include "market/core/market_io.hpp"
#include "market/core/market_state.hpp"

namespace souk::market {

class Book {
  public:
    struct Limits {
        size_t jobs_max, nodes_max;
        size_t finished_recent;  // so many that have finished are known
        // of one home, of one user; 0: nine tenths of jobs_max
        size_t jobs_home_max = 0, jobs_user_max = 0;
        // of one home: users of its jobs in this life of the market, and what the texts and lists
        // in the reports of its unfinished jobs take
        size_t users_home_max = 65'536, bytes_home_least = size_t{64} << 20;
        size_t bytes_home_max() const {
            constexpr size_t of_job = 512;
            return std::max(bytes_home_least, jobs_home_max * of_job);
        }

        // The last of jobs_max are for homes and users that have few.
        size_t reserve() const { return jobs_max / 10; }
        size_t few() const { return std::max<size_t>(1, jobs_max / 1'000); }
    };
    // `ledger`: what a node that was forgotten has earned is known when it comes again; null: no
    // node has earned anything before.
    explicit Book(const Limits& limits, const Ledger* ledger = nullptr)
        : limits_(limits), ledger_(ledger) {
        const size_t most = limits.jobs_max - limits.reserve();
        if (limits_.jobs_home_max == 0) limits_.jobs_home_max = most;
        if (limits_.jobs_user_max == 0) limits_.jobs_user_max = most;
    }
    const Limits& limits() const { return limits_; }

    // These take what was stored, in any order; then begin().
    void load(MetaRecord meta) { meta_ = std::move(meta); }
    Job& load(JobRecord record);
    Node& load(NodeRecord record);
    User& load(UserRecord record);
    // One that has finished, and was forgotten; null: it is known, or had not finished.
    Job* recall(JobRecord record);
    // The jobs that have not finished, in the order of their arrival: each is to be numbered.
    // If two of them have one address, the later one has none from now on.
    std::vector<Job*> begin();
    const std::vector<std::pair<JobId, Ipv4>>& lost_addresses() const { return lost_addresses_; }
    void number(Job& job);
    // Another key, behind all others.
    void number_again(Job& job) {
        job_by_key_.erase(job.key.n);
        number(job);
    }

    // The job that a home reports: the one that is known, or a new one. Errors: there may be no
    // more, of that home, or of that user.
    Result<Job*> admit(const JobReport& report);
    // The job's home has said something else of it, perhaps more than there is room for; then this
    // is shortened to what decides something (claims::shorten).
    void replaced(Job& job, const JobReport& before);
    // So many of it have not finished.
    size_t jobs_of_home(const NodeName& home) const;
    size_t jobs_of_user(uint32_t uid) const;
    // Errors: there may be no more of that home, whoever's they are.
    Status has_room(const NodeName& home) const;
    size_t room_for_jobs() const {
        const size_t unfinished = jobs_.size() - finished_.size();
        return limits_.jobs_max - std::min(limits_.jobs_max, unfinished);
    }
    Error too_many_jobs() const;
    Status admits_node(const NodeName& name) const;
    Node& node(const NodeName& name);  // a new one if there is none
    // Its record is to be erased. Nothing names it any more, but for jobs that have finished.
    void forget(Node& node);
    User& user(uint32_t uid);
    // Null: there is none of that name.
    const User* project(std::string_view name) const;
    // The number of the project that such a job names and may; 0: it names none, or its user is no
    // member of it.
    uint32_t project_for(const JobReport& report) const;

    std::map<JobId, Job>& jobs() { return jobs_; }
    const std::map<JobId, Job>& jobs() const { return jobs_; }
    std::map<NodeName, Node>& nodes() { return nodes_; }
    const std::map<NodeName, Node>& nodes() const { return nodes_; }
    std::map<uint32_t, User>& users() { return users_; }
    const std::map<uint32_t, User>& users() const { return users_; }
    MetaRecord& meta() { return meta_; }
    const MetaRecord& meta() const { return meta_; }
    // Null: there is none.
    Job* find(const JobId& id);
    const Job* find(const JobId& id) const;
    const Node* find_node(const NodeName& name) const;
    // Null: it was never connected, and nobody has named it.
    const Node* home_of(const Job& job) const {
        if (!job.home) job.home = find_node(job.id().home);
        return job.home;
    }
    // It names a project for which its user may not spend.
    bool lacks_project(const Job& job) const {
        const JobReport& r = job.record.report;
        return !r.terms.project.empty() && project_for(r) == 0;
    }
    // Null: it is finished, or there is none.
    Job* job_of(JobKey key) const { return job_by_key_.find(key.n); }
    Node* node_of(ProviderKey key) const { return node_by_key_.find(key.n); }
    // All that it may spend today is spent, or its account is empty or full, or owes too much.
    bool day_is_spent(const User& user) const {
        return user.is_empty || user.is_full || user.owes ||
               (user.record.ended_day >= 0 && user.record.ended_day == meta_.day);
    }
    // The user's jobs wait, whatever they bid.
    bool may_not_run(const User& user) const { return user.is_closed || day_is_spent(user); }
    // One that a new job or node might get.
    uint64_t free_key() const { return next_key_; }

    // It has ended at `ended`: its record says so, and what it cost is part of what is retired.
    void finish(Job& job, Nanos ended);
    void forget_key(const Job& job) { job_by_key_.erase(job.key.n); }
    // The oldest of those that have finished, if they are too many: to be forgotten.
    Job* one_too_many();
    void forget(const Job& job);

    // Its record is to be stored.
    void save(Job& job) { unsaved_.insert(job); }
    void save(Node& node) { unsaved_nodes_.insert(node); }
    void save_user(uint32_t uid) { unsaved_users_.insert(uid); }
    void save_meta() { meta_unsaved_ = true; }
    // Puts out what is to be stored of jobs, nodes and users. Returns the jobs of which something
    // is different.
    std::vector<Job*> store(Outputs& out);
    // After all others, as it has the last number of each. `next_seq`: of the next order.
    void store_meta(uint64_t next_seq, Outputs& out);

  private:
    void lease_address(Job& job);

    Limits limits_;
    const Ledger* ledger_;
    std::map<JobId, Job> jobs_;
    std::map<NodeName, Node> nodes_;
    std::map<uint32_t, User> users_;
    KeyTable<Job> job_by_key_;  // the unfinished ones
    KeyTable<Node> node_by_key_;
    uint64_t next_key_ = 1;
    std::map<uint64_t, JobId> finished_;  // by finish_seq
    // the unfinished ones, by whose they are
    std::map<NodeName, size_t> of_home_;
    std::map<uint32_t, size_t> of_user_;
    std::map<NodeName, size_t> bytes_of_home_;
    std::map<NodeName, std::set<uint32_t>> users_of_home_;
    std::map<Ipv4, JobId> of_address_;  // of jobs with networks of their own
    std::vector<std::pair<JobId, Ipv4>> lost_addresses_;
    MetaRecord meta_;
    Marked<Job, &Job::unsaved> unsaved_;
    Marked<Node, &Node::unsaved> unsaved_nodes_;
    std::set<uint32_t> unsaved_users_;
    std::set<NodeName> forgotten_;  // nodes, whose records are still stored
    bool meta_unsaved_ = false;

    void count(Job& job);
};

}  // namespace souk::market
