// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/core/home_groups.hpp"

#include <algorithm>

namespace souk {
namespace {

bool has_ended(const HomeJob& job) { return job.phase == JobPhase::finished; }

void set_default(std::vector<std::string>& env, const std::string& name, const std::string& value) {
    const auto is_it = [&](const std::string& v) { return v.starts_with(name + "="); };
    if (std::none_of(env.begin(), env.end(), is_it)) env.push_back(name + "=" + value);
}

}  // namespace

void set_variable(std::vector<std::string>& env, const std::string& name,
                  const std::string& value) {
    const std::string begin = name + "=";
    std::erase_if(env, [&](const std::string& v) { return v.starts_with(begin); });
    env.push_back(begin + value);
}

bool ended_well(const HomeJob& job) {
    return has_ended(job) && !job.cancelled && job.why.empty() && job.wait_status == 0;
}

Status HomeGroups::check(HomeJob& job, const Jobs& jobs) {
    JobTies& g = job.group;
    const uint32_t uid = job.spec.launch.uid;
    if (g.array != 0) {
        const auto first = jobs.find(g.array);
        if (first == jobs.end() || !first->second.group.first ||
            first->second.spec.launch.uid != uid)
            return fail(
                CauseCode::not_found,
                "there is no array " + JobId{job.id.home, g.array}.text() + " of yours here");
    }
    if (g.after == 0) return {};
    const std::string id = JobId{job.id.home, g.after}.text();
    const auto other = jobs.find(g.after);
    if (other == jobs.end() || (uid != 0 && other->second.spec.launch.uid != uid))
        return fail(CauseCode::not_found, "--after: this node has no job " + id + " of yours");
    if (!has_ended(other->second)) return {};
    if (g.after_ok && !ended_well(other->second))
        return fail(CauseCode::not_possible, "--after: job " + id + " has not ended well");
    g.after = 0;
    return {};
}

void HomeGroups::add(HomeJob& job) {
    JobTies& g = job.group;
    if (g.first) g.array = job.id.seq;
    if (has_ended(job)) return;
    if (g.after != 0) after_[g.after].insert(job.id.seq);
    if (g.array != 0) arrays_[g.array].insert(job.id.seq);
    if (job.phase != JobPhase::waiting) return;
    auto& env = job.spec.launch.env;
    set_variable(env, "SOUK_JOB_ID", job.id.text());
    set_variable(env, "SOUK_JOB_NAME", job.name);
    set_variable(env, "SOUK_CPUS", std::to_string(job.terms.cpus));
    // nproc and OpenMP ask for it: they know no limit of a control group.
    set_default(env, "OMP_NUM_THREADS", std::to_string(job.terms.cpus));
    set_variable(env, "SOUK_MEMORY_MB", std::to_string(job.terms.memory_mb));
    if (g.array == 0) return;
    set_variable(env, "SOUK_ARRAY_ID", JobId{job.id.home, g.array}.text());
    set_variable(env, "SOUK_ARRAY_INDEX", std::to_string(g.index));
}

std::string HomeGroups::waits(const HomeJob& job) const {
    const JobTies& g = job.group;
    if (job.phase != JobPhase::waiting || job.last_epoch.n != 0) return {};
    if (g.after != 0)
        return "job " + JobId{job.id.home, g.after}.text() +
               (g.after_ok ? " to end well" : " to end");
    const auto array = arrays_.find(g.array);
    if (g.at_once == 0 || array == arrays_.end()) return {};
    const auto end = array->second.find(job.id.seq);
    // no further than the bound: an array may be long
    uint32_t before = 0;
    for (auto at = array->second.begin(); at != end && before < g.at_once; ++at) ++before;
    if (before < g.at_once) return {};
    return "others of its array to end: " + std::to_string(g.at_once) + " at once";
}

std::vector<uint64_t> HomeGroups::ended(const HomeJob& job) {
    std::vector<uint64_t> freed;
    if (const auto waiting = after_.find(job.id.seq); waiting != after_.end()) {
        freed.assign(waiting->second.begin(), waiting->second.end());
        after_.erase(waiting);
    }
    if (const auto own = after_.find(job.group.after); own != after_.end())
        own->second.erase(job.id.seq);
    const auto array = arrays_.find(job.group.array);
    if (array == arrays_.end()) return freed;
    array->second.erase(job.id.seq);
    if (job.group.at_once > 0 && array->second.size() >= job.group.at_once)
        freed.push_back(*std::next(array->second.begin(), job.group.at_once - 1));
    if (array->second.empty()) arrays_.erase(array);
    return freed;
}

}  // namespace souk
