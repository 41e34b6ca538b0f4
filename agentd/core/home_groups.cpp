// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/core/home_groups.hpp"

#include <algorithm>
#include <iterator>
#include <optional>
#include <span>
#include <utility>

namespace souk {
namespace {

bool has_ended(const HomeJob& job) { return job.phase == JobPhase::finished; }

bool is_as_it_should(const JobAfter& after, const HomeJob& job) {
    return after.how == JobAfter::How::ended ||
           ended_well(job) == (after.how == JobAfter::How::well);
}

bool is_as_it_should(const JobAfter& array) {
    return array.how == JobAfter::How::ended || array.failed == (array.how == JobAfter::How::badly);
}

enum class Ending : uint8_t { open, as_it_should, otherwise };

// The arrays that a job names, each with its elements.
using Arrays = std::map<uint64_t, std::vector<const HomeJob*>>;

// One walk finds them all: a user may have many jobs, and name many arrays.
Arrays arrays_of(const std::vector<JobAfter>& afters, const HomeGroups::Jobs& jobs) {
    Arrays named;
    for (const JobAfter& after : afters) named[after.seq];
    if (named.empty()) return named;
    for (auto it = jobs.lower_bound(named.begin()->first); it != jobs.end(); ++it) {
        const uint64_t array = it->second.group.array;
        if (array == 0) continue;
        if (const auto found = named.find(array); found != named.end())
            found->second.push_back(&it->second);
    }
    return named;
}

// Tells how a job or an array that is waited for has ended, and notes failures of the array.
// Nothing: the user has no such job.
std::optional<Ending> ending_of(JobAfter& after, const HomeGroups::Jobs& jobs, const Arrays& arrays,
                                uint32_t uid) {
    bool open = false, single_is = false;
    const auto found = jobs.find(after.seq);
    const HomeJob* const single = found == jobs.end() ? nullptr : &found->second;
    std::span<const HomeJob* const> all(&single, single ? 1 : 0);
    if (after.whole) all = arrays.at(after.seq);
    if (all.empty()) return {};
    for (const HomeJob* const other : all) {
        if (uid != 0 && other->spec.launch.uid != uid) return {};
        open = open || !has_ended(*other);
        after.failed = after.failed || (has_ended(*other) && !ended_well(*other));
        single_is = has_ended(*other) && is_as_it_should(after, *other);
    }
    if (after.whole && after.how == JobAfter::How::well && after.failed) return Ending::otherwise;
    if (open) return Ending::open;
    return (after.whole ? is_as_it_should(after) : single_is) ? Ending::as_it_should
                                                              : Ending::otherwise;
}

// Keeps each job once, since its end is heard once. An array that is named by its first job stands
// for all of its elements.
Result<std::vector<JobAfter>> expanded(const JobTies& g, const Arrays& arrays) {
    std::vector<JobAfter> all;
    for (JobAfter after : g.afters) {
        const std::vector<const HomeJob*>& elements = arrays.at(after.seq);
        if (std::exchange(after.each, false)) {
            const auto same = std::ranges::find_if(
                elements, [&](const HomeJob* one) { return one->group.index == g.index; });
            if (same == elements.end())
                return fail(CauseCode::not_found,
                            "--after: the array has no element " + std::to_string(g.index));
            after.seq = (*same)->id.seq;
            after.whole = false;
        } else {
            after.whole = !elements.empty();
        }
        if (std::ranges::find(all, after) == all.end()) all.push_back(after);
    }
    return all;
}

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
    if (g.after != 0)
        g.afters.push_back(
            {std::exchange(g.after, 0), g.after_ok ? JobAfter::How::well : JobAfter::How::ended});
    g.after_ok = false;
    if (g.afters.size() > JobTies::afters_max)
        return fail(CauseCode::too_many, "--after: it waits for more than " +
                                             std::to_string(JobTies::afters_max) + " jobs");
    const Arrays arrays = arrays_of(g.afters, jobs);
    TRY_ASSIGN(g.afters, expanded(g, arrays));
    std::vector<JobAfter> left;
    bool one_is = false;
    for (JobAfter after : g.afters) {
        const std::string other_id = JobId{job.id.home, after.seq}.text();
        const std::optional<Ending> now = ending_of(after, jobs, arrays, uid);
        if (!now)
            return fail(CauseCode::not_found,
                        "--after: this node has no job " + other_id + " of yours");
        if (*now == Ending::open)
            left.push_back(after);
        else if (*now == Ending::as_it_should)
            one_is = true;
        else if (!g.after_any)
            return fail(CauseCode::not_possible,
                        "--after: job " + other_id + " has " +
                            (after.how == JobAfter::How::well ? "not ended well" : "ended well"));
    }
    if (g.after_any && !one_is && left.empty() && !g.afters.empty())
        return fail(CauseCode::not_possible, "--after: none of these jobs has ended so");
    if (g.after_any && one_is) left.clear();
    g.afters = std::move(left);
    return {};
}

void HomeGroups::add(HomeJob& job) {
    JobTies& g = job.group;
    if (g.first) g.array = job.id.seq;
    if (has_ended(job)) return;
    if (g.after != 0)  // a record of an older version
        g.afters.push_back(
            {std::exchange(g.after, 0), g.after_ok ? JobAfter::How::well : JobAfter::How::ended});
    for (const JobAfter& after : g.afters) waiters_of(after)[after.seq].insert(job.id.seq);
    if (!job.name.empty()) names_[{job.spec.launch.uid, job.name}].insert(job.id.seq);
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
    if (!g.afters.empty()) {
        const JobAfter& next = g.afters[0];
        const size_t others = g.afters.size() - 1;
        return "job " + JobId{job.id.home, next.seq}.text() +
               (others == 0   ? ""
                : g.after_any ? " or one of " + std::to_string(others) + " others"
                              : " and " + std::to_string(others) + " others") +
               (next.how == JobAfter::How::well    ? " to end well"
                : next.how == JobAfter::How::badly ? " to fail"
                                                   : " to end");
    }
    if (g.singleton && has_namesake_before(job))
        return "an earlier job of the name " + job.name + " to end";
    const auto array = arrays_.find(g.array);
    if (g.at_once == 0 || array == arrays_.end()) return {};
    const auto end = array->second.find(job.id.seq);
    // no further than the bound: an array may be long
    uint32_t before = 0;
    for (auto at = array->second.begin(); at != end && before < g.at_once; ++at) ++before;
    if (before < g.at_once) return {};
    return "others of its array to end: " + std::to_string(g.at_once) + " at once";
}

bool HomeGroups::has_namesake_before(const HomeJob& job) const {
    const auto it = names_.find({job.spec.launch.uid, job.name});
    return it != names_.end() && *it->second.begin() < job.id.seq;
}

HomeGroups::Waiters& HomeGroups::waiters_of(const JobAfter& after) {
    return after.whole ? array_after_ : after_;
}

std::vector<uint64_t> HomeGroups::ended(const HomeJob& job) {
    std::set<uint64_t> freed;
    const uint64_t seq = job.id.seq;
    if (auto waiting = after_.extract(seq)) freed = std::move(waiting.mapped());
    for (const JobAfter& after : job.group.afters) stop_waiting(after, seq);
    if (const auto name = names_.find({job.spec.launch.uid, job.name}); name != names_.end()) {
        const bool was_first = *name->second.begin() == seq;
        name->second.erase(seq);
        if (was_first && !name->second.empty()) freed.insert(*name->second.begin());
        if (name->second.empty()) names_.erase(name);
    }
    const auto array = arrays_.find(job.group.array);
    if (array != arrays_.end()) {
        array->second.erase(seq);
        if (job.group.at_once > 0 && array->second.size() >= job.group.at_once)
            freed.insert(*std::next(array->second.begin(), job.group.at_once - 1));
        const bool was_last = array->second.empty();
        const auto waiting = array_after_.find(job.group.array);
        if (waiting != array_after_.end() && (was_last || !ended_well(job)))
            freed.insert(waiting->second.begin(), waiting->second.end());
        if (was_last) arrays_.erase(array);
    }
    return {freed.begin(), freed.end()};
}

void HomeGroups::stop_waiting(const JobAfter& after, uint64_t seq) {
    Waiters& waiters = waiters_of(after);
    const auto of = waiters.find(after.seq);
    if (of == waiters.end()) return;
    of->second.erase(seq);
    if (of->second.empty()) waiters.erase(of);
}

HomeGroups::Wait HomeGroups::settle(HomeJob& waiting, const HomeJob& ended) {
    JobTies& g = waiting.group;
    bool good = false, bad = false, changed = false;
    std::vector<JobAfter> left;
    for (JobAfter after : g.afters) {
        bool is_over = false, is_good = false;
        if (!after.whole && after.seq == ended.id.seq) {
            is_over = true;
            is_good = is_as_it_should(after, ended);
        } else if (after.whole && after.seq == ended.group.array) {
            changed = changed || (!after.failed && !ended_well(ended));
            after.failed = after.failed || !ended_well(ended);
            is_good = is_as_it_should(after);
            is_over =
                !arrays_.contains(after.seq) || (after.how == JobAfter::How::well && after.failed);
        }
        if (!is_over) {
            left.push_back(after);
            continue;
        }
        stop_waiting(after, waiting.id.seq);
        changed = true;
        (is_good ? good : bad) = true;
    }
    if (good && g.after_any)
        for (const JobAfter& other : std::exchange(left, {})) stop_waiting(other, waiting.id.seq);
    g.afters = std::move(left);
    if (bad && (!g.after_any || (!good && g.afters.empty()))) return Wait::never;
    return changed ? Wait::changed : Wait::same;
}

}  // namespace souk
