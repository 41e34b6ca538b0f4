// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/sim/coallocation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace souk::sim::coallocation {

size_t spread(const Allocation& where) {
    size_t clusters = 0;
    for (size_t i = 0; i < where.size(); ++i) {
        size_t earlier = 0;
        while (earlier < i && where[earlier].cluster != where[i].cluster) ++earlier;
        clusters += earlier == i;
    }
    return clusters;
}

int64_t stretched_ms(int64_t run_ms, const Allocation& where, const Terms& terms) {
    if (terms.slowdown == 1000 || spread(where) < 2) return run_ms;
    return (run_ms * terms.slowdown + 999) / 1000;
}

int64_t cpus_of(const Allocation& where) {
    int64_t sum = 0;
    for (const Piece& piece : where) sum += piece.cpus;
    return sum;
}

bool fits(const Allocation& where, std::span<const int64_t> idle) {
    Idle left(idle.begin(), idle.end());
    take(left, where);
    return std::all_of(left.begin(), left.end(), [](int64_t n) { return n >= 0; });
}

void take(Idle& idle, const Allocation& where) {
    for (const Piece& piece : where) idle[piece.cluster] -= piece.cpus;
}

void give(Idle& idle, const Allocation& where) {
    for (const Piece& piece : where) idle[piece.cluster] += piece.cpus;
}

namespace {

Status check_flexible(const Job& job) {
    if (!job.components.empty()) return fail("a flexible job has no components of its own");
    if (job.component_min < 1 || job.component_min > job.component_max)
        return fail(
            fmt::format("components of {} to {} processors", job.component_min, job.component_max));
    if (job.cpus < job.component_min)
        return fail(fmt::format("{} processors, and components of {} or more", job.cpus,
                                job.component_min));
    return {};
}

}  // namespace

Status check(const Job& job, std::span<const Cluster> clusters) {
    constexpr int64_t time_max_ms = int64_t{1} << 48;
    for (const int64_t time : {job.submit_ms, job.run_ms, job.estimate_ms, job.overhead_ms})
        if (time < 0 || time > time_max_ms) return fail("a time below 0 or beyond 2^48 ms");
    if (job.run_ms < 1 || job.estimate_ms < job.run_ms)
        return fail("it runs for no time, or longer than its estimate");
    if (job.cpus < 1 || job.cpus > std::numeric_limits<int32_t>::max())
        return fail(fmt::format("{} processors", job.cpus));
    if (job.kind == Kind::flexible) return check_flexible(job);
    int64_t sum = 0;
    for (const Component& c : job.components) {
        if (c.cpus < 1 || c.cpus > job.cpus)
            return fail(fmt::format("a component of {} processors", c.cpus));
        if (c.cluster != Component::anywhere && c.cluster >= clusters.size())
            return fail(fmt::format("cluster {} of {}", c.cluster, clusters.size()));
        if (job.kind == Kind::ordered && c.cluster == Component::anywhere)
            return fail("an ordered job's component without its cluster");
        if (job.kind == Kind::unordered && c.cluster != Component::anywhere)
            return fail("an unordered job's component with a cluster");
        sum += c.cpus;
    }
    if (sum != job.cpus)
        return fail(fmt::format("components of {} processors in all, not {}", sum, job.cpus));
    if (job.kind == Kind::total && job.components.size() != 1)
        return fail("a total job has one component");
    return {};
}

bool answers(const Allocation& where, const Job& job) {
    if (cpus_of(where) != job.cpus) return false;
    if (job.kind == Kind::flexible) {
        for (const Piece& piece : where)
            if (piece.cpus < job.component_min || piece.cpus > job.component_max) return false;
        return spread(where) == where.size();
    }
    if (where.size() != job.components.size()) return false;
    for (size_t i = 0; i < where.size(); ++i) {
        const Component& c = job.components[i];
        if (where[i].cpus != c.cpus) return false;
        if (c.cluster != Component::anywhere && c.cluster != where[i].cluster) return false;
    }
    return true;
}

bool anywhere(const Job& job) {
    return !job.components.empty() &&
           std::all_of(job.components.begin(), job.components.end(),
                       [](const Component& c) { return c.cluster == Component::anywhere; });
}

std::vector<Component> split(int64_t cpus, int64_t limit) {
    const int64_t count = (cpus + limit - 1) / limit;
    std::vector<Component> out;
    for (int64_t i = 0; i < count; ++i) out.push_back({cpus / count + (i < cpus % count)});
    return out;
}

}  // namespace souk::sim::coallocation
