// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/book.hpp"

#include <algorithm>
#include <utility>

#include "market/core/claims.hpp"

namespace souk::market {

namespace {
constexpr uint64_t seq_block = 1024;  // orders between two writes of the limit
}  // namespace

// -------------------------------------------------------------------------------------------------
// what was stored

Job& Book::load(JobRecord record) {
    Job job;
    const JobId id = record.report.id;
    job.record = std::move(record);
    if (job.record.arrived.ns == 0) job.record.arrived = job.record.report.submitted;
    Reason reason(std::exchange(job.record.reason, {}));
    std::string comment = std::exchange(job.record.comment, {});
    job.reason = is_known(reason.code) && reason.text() == comment
                     ? std::move(reason)
                     : Reason::said(std::move(comment));
    job.run_base = job.record.billed;
    const uint32_t payer = job.record.payer;
    job.user = &user(payer != 0 ? payer : job.record.report.uid);
    if (job.phase() != JobPhase::finished) count(job);
    return jobs_.insert_or_assign(id, std::move(job)).first->second;
}

Node& Book::load(NodeRecord record) {
    Node& node = this->node(record.node);
    node.record = std::move(record);
    return node;
}

User& Book::load(UserRecord record) {
    User& user = this->user(record.uid);
    user.record = std::move(record);
    if (const auto hours = TimeFrames::parse(user.record.limits.hours))
        user.frames = *hours;
    else
        user.record.limits.hours.clear();
    return user;
}

Job* Book::recall(JobRecord record) {
    const uint64_t seq = record.finish_seq;
    if (seq == 0 || jobs_.contains(record.report.id)) return nullptr;
    Job& job = load(std::move(record));
    finished_.emplace(seq, job.id());
    return &job;
}

std::vector<Job*> Book::begin() {
    std::vector<Job*> order, unfinished;
    for (auto& [id, job] : jobs_) order.push_back(&job);
    std::sort(order.begin(), order.end(), [](const Job* a, const Job* b) {
        return std::pair(a->record.arrived, a->id()) < std::pair(b->record.arrived, b->id());
    });
    of_address_.clear();  // in the order of arrival, not of loading
    for (Job* job : order) {
        if (job->phase() != JobPhase::finished) {
            lease_address(*job);
            unfinished.push_back(job);
            continue;
        }
        meta_.finish_seq = std::max(meta_.finish_seq, job->record.finish_seq);
        finished_.emplace(job->record.finish_seq, job->id());
        if (meta_.finished_retired) continue;
        meta_.retired += job->record.account.amount;
        save(*job);  // to be stored among the finished
    }
    if (!std::exchange(meta_.finished_retired, true)) save_meta();
    return unfinished;
}

// A version before this leased no addresses, so its records may have one twice. The job that came
// later loses it: it stays where it is, and its next ticket gives it none.
void Book::lease_address(Job& job) {
    Ipv4& address = job.record.report.address;
    if (!address || of_address_.emplace(address, job.id()).second) return;
    lost_addresses_.emplace_back(job.id(), address);
    address = {};
    save(job);
}

void Book::number(Job& job) {
    job.key = {next_key_++};
    job_by_key_.insert(job.key.n, job);
}

// -------------------------------------------------------------------------------------------------
// who is let in

Result<Job*> Book::admit(const JobReport& report) {
    if (Job* known = find(report.id)) return known;
    TRY(has_room(report.id.home));
    const size_t of_user = jobs_of_user(report.uid);
    const bool has_few = of_user < limits_.few() || room_for_jobs() > limits_.reserve();
    if (of_user >= limits_.jobs_user_max || !has_few)
        return fail("it has " + std::to_string(of_user) + " jobs of user " +
                    std::to_string(report.uid) + " (jobs_user_max, jobs_max)");
    const auto users = users_of_home_.find(report.id.home);
    if (users != users_of_home_.end() && users->second.size() >= limits_.users_home_max &&
        !users->second.contains(report.uid))
        return fail("node " + report.id.home + " has had jobs of " +
                    std::to_string(limits_.users_home_max) + " users");
    const auto bytes = bytes_of_home_.find(report.id.home);
    if (bytes != bytes_of_home_.end() &&
        bytes->second + claims::bytes_of(report) > limits_.bytes_home_max())
        return fail("the reports of node " + report.id.home + " take " +
                    std::to_string(limits_.bytes_home_max() >> 20) + " MB");
    if (const auto lease = of_address_.find(report.address); lease != of_address_.end())
        return fail("its address " + report.address.text() + " is another job's");
    Job& job = jobs_[report.id];
    job.record.report.id = report.id;
    job.record.report.uid = report.uid;
    job.record.report.address = report.address;
    job.record.payer = project_for(report);
    job.user = &user(job.record.payer != 0 ? job.record.payer : report.uid);
    job.record.billed = job.run_base = report.stats.run_time;  // before the market knew it
    job.record.tab.cpu = report.stats.cpu_time;
    number(job);
    count(job);
    return &job;
}

void Book::count(Job& job) {
    ++of_home_[job.id().home];
    users_of_home_[job.id().home].insert(job.record.report.uid);
    job.report_bytes = claims::bytes_of(job.record.report);
    bytes_of_home_[job.id().home] += job.report_bytes;
    ++of_user_[job.record.report.uid];
    if (const Ipv4 address = job.record.report.address) of_address_.emplace(address, job.id());
}

void Book::replaced(Job& job, const JobReport& before) {
    size_t& all = bytes_of_home_[job.id().home];
    JobReport& report = job.record.report;
    size_t bytes = claims::bytes_of(report);
    if (bytes > job.report_bytes && all - job.report_bytes + bytes > limits_.bytes_home_max()) {
        claims::shorten(report, before);
        bytes = claims::bytes_of(report);
    }
    all += bytes - job.report_bytes;
    job.report_bytes = bytes;
}

size_t Book::jobs_of_home(const NodeName& home) const {
    const auto it = of_home_.find(home);
    return it == of_home_.end() ? 0 : it->second;
}

size_t Book::jobs_of_user(uint32_t uid) const {
    const auto it = of_user_.find(uid);
    return it == of_user_.end() ? 0 : it->second;
}

Status Book::has_room(const NodeName& home) const {
    if (room_for_jobs() == 0) return tl::unexpected(too_many_jobs());
    const size_t of_home = jobs_of_home(home);
    const bool has_few = of_home < limits_.few() || room_for_jobs() > limits_.reserve();
    if (of_home >= limits_.jobs_home_max || !has_few)
        return fail("it has " + std::to_string(of_home) + " jobs of node " + home +
                    " (jobs_home_max, jobs_max)");
    return {};
}

Error Book::too_many_jobs() const {
    return fail("the market has " + std::to_string(limits_.jobs_max) + " jobs already").value();
}

Status Book::admits_node(const NodeName& name) const {
    if (!nodes_.contains(name) && nodes_.size() >= limits_.nodes_max)
        return fail("the market has " + std::to_string(limits_.nodes_max) + " nodes already");
    return {};
}

Node& Book::node(const NodeName& name) {
    const auto [it, is_new] = nodes_.try_emplace(name);
    if (is_new) {
        it->second.record.node = name;
        it->second.record.report.node = name;
        it->second.key = {next_key_++};
        if (ledger_) it->second.record.earned = ledger_->by_use(Holder::provider(name));
        node_by_key_.insert(it->second.key.n, it->second);
    }
    return it->second;
}

void Book::forget(Node& node) {
    node_by_key_.erase(node.key.n);
    unsaved_nodes_.erase(node);
    const NodeName name = node.id();
    for (auto it = jobs_.lower_bound({name, 0}); it != jobs_.end() && it->first.home == name; ++it)
        it->second.home = nullptr;
    forgotten_.insert(name);
    nodes_.erase(name);
}

User& Book::user(uint32_t uid) {
    User& user = users_[uid];
    user.record.uid = uid;
    return user;
}

const User* Book::project(std::string_view name) const {
    for (auto it = users_.lower_bound(project_first); it != users_.end() && is_project(it->first);
         ++it)
        if (it->second.record.name == name) return &it->second;
    return nullptr;
}

uint32_t Book::project_for(const JobReport& report) const {
    if (report.terms.project.empty()) return 0;
    const User* const one = project(*report.terms.project);
    return one && one->record.has_member(report.uid) ? one->record.uid : 0;
}

// -------------------------------------------------------------------------------------------------
// who is there

Job* Book::find(const JobId& id) {
    const auto it = jobs_.find(id);
    return it == jobs_.end() ? nullptr : &it->second;
}

const Job* Book::find(const JobId& id) const {
    const auto it = jobs_.find(id);
    return it == jobs_.end() ? nullptr : &it->second;
}

const Node* Book::find_node(const NodeName& name) const {
    const auto it = nodes_.find(name);
    return it == nodes_.end() ? nullptr : &it->second;
}

void Book::finish(Job& job, Nanos ended) {
    const auto one_less = [](auto& of, const auto& key) {
        const auto it = of.find(key);
        if (it != of.end() && --it->second == 0) of.erase(it);
    };
    one_less(of_home_, job.id().home);
    one_less(of_user_, job.record.report.uid);
    const auto bytes = bytes_of_home_.find(job.id().home);
    if (bytes != bytes_of_home_.end() && (bytes->second -= job.report_bytes) == 0)
        bytes_of_home_.erase(bytes);
    job.report_bytes = 0;
    const auto lease = of_address_.find(job.record.report.address);
    if (lease != of_address_.end() && lease->second == job.id()) of_address_.erase(lease);
    job.record.finish_seq = ++meta_.finish_seq;
    job.record.ended = ended;
    meta_.retired += job.record.account.amount;
    save_meta();
    finished_.emplace(job.record.finish_seq, job.id());
    save(job);
}

Job* Book::one_too_many() {
    return finished_.size() > limits_.finished_recent ? &jobs_.at(finished_.begin()->second)
                                                      : nullptr;
}

void Book::forget(const Job& job) {
    forget_key(job);
    finished_.erase(job.record.finish_seq);
    const JobId id = job.id();
    unsaved_.erase(jobs_.at(id));
    jobs_.erase(id);
}

// -------------------------------------------------------------------------------------------------
// what is to be stored

std::vector<Job*> Book::store(Outputs& out) {
    std::vector<Job*> different = unsaved_.take();
    for (Job* const one : different) {
        Job& job = *one;
        auto& stored = std::get<JobRecord>(out.store.emplace_back(job.record));
        stored.reason = job.reason;
        stored.comment = job.reason.text();
    }
    for (const NodeName& name : std::exchange(forgotten_, {})) out.store.push_back(EraseNode{name});
    for (const Node* const node : unsaved_nodes_.take()) out.store.push_back(node->record);
    for (const uint32_t uid : std::exchange(unsaved_users_, {})) {
        const UserRecord& record = users_.at(uid).record;
        if (record.limits.any() || is_project(uid))
            out.store.push_back(record);
        else
            out.store.push_back(EraseUser{uid});
    }
    return different;
}

void Book::store_meta(uint64_t next_seq, Outputs& out) {
    if (!std::exchange(meta_unsaved_, false)) return;
    if (meta_.seq_limit < next_seq)
        meta_.seq_limit += (next_seq - meta_.seq_limit + seq_block - 1) / seq_block * seq_block;
    out.store.push_back(meta_);
}

}  // namespace souk::market
