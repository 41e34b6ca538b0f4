// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/gang_list.hpp"

#include <algorithm>
#include <utility>

namespace souk::market {

std::string gang_name(const Job& job) { return job.id().home + "/" + *job.record.report.gang; }

void GangList::list(const Job& job) {
    if (!is_component(job)) return;
    const std::string name = gang_name(job);
    if (job.phase() != JobPhase::finished) {
        gangs_[name].insert(job.id());
        return;
    }
    const auto gang = gangs_.find(name);
    if (gang == gangs_.end()) return;
    gang->second.erase(job.id());
    if (!gang->second.empty()) return;
    refused_.erase(name);
    gangs_.erase(gang);
}

std::vector<Job*> GangList::of(const Job& job) const {
    std::vector<Job*> all;
    const auto gang = gangs_.find(gang_name(job));
    if (gang == gangs_.end()) return all;
    for (const JobId& id : gang->second) {
        Job* const one = book_.find(id);
        const bool is_one = one && one->phase() != JobPhase::finished && is_component(*one) &&
                            gang_name(*one) == gang->first;
        if (is_one) all.push_back(one);
    }
    std::sort(all.begin(), all.end(), [](const Job* a, const Job* b) {
        return std::pair(a->record.report.component, a->id()) <
               std::pair(b->record.report.component, b->id());
    });
    return all;
}

void GangList::wake_for(const Node& node) {
    const auto waiting = waiting_.extract(node.id());
    if (!waiting) return;
    for (const std::string& name : waiting.mapped())
        if (const auto gang = gangs_.find(name); gang != gangs_.end())
            for (const JobId& id : gang->second)
                if (Job* one = book_.find(id)) work_.touch(*one);
}

void GangList::wake_unplaced() {
    for (const auto& [gang, ids] : gangs_)
        for (const JobId& id : ids)
            if (Job* const job = book_.find(id); job && !job->in_solver) work_.touch(*job);
}

// Lists the components without which the gang does not begin.
std::vector<const Job*> GangList::required(const std::string& gang) const {
    std::vector<const Job*> all;
    const auto known = gangs_.find(gang);
    if (known == gangs_.end()) return all;
    const Book& book = book_;
    for (const JobId& id : known->second)
        if (const Job* one = book.find(id); one && !is_optional(*one)) all.push_back(one);
    return all;
}

Reason GangList::why_waits(const Job& job) const {
    if (!is_component(job)) return {};
    const std::string name = gang_name(job);
    if (const auto refused = refused_.find(name); refused != refused_.end())
        return Reason(ReasonCode::components_refused).with(Figure::cause, refused->second.message);
    const std::vector<const Job*> all = required(name);
    for (const Job* one : all)
        if (const JobReport& r = one->record.report;
            !r.only_node.empty() && !book_.find_node(r.only_node))
            return Reason(ReasonCode::component_node_unknown)
                .with(Figure::count, std::to_string(r.component))
                .with(Figure::node, r.only_node);
    if (!job.in_solver || all.empty())
        return Reason(ReasonCode::components_coming)
            .with(Figure::count, std::to_string(job.record.report.components));
    const JobTerms& own = job.record.report.terms;
    // Places::why_no_provider says more about a component that fits nowhere by itself.
    const Supply& supply = places_.supply();
    if (!supply.empty() && !supply.least_reserve(own.cpus, own.memory_mb)) return {};
    GangShape shape;
    for (const Job* one : all) {
        const JobReport& r = one->record.report;
        shape.needs.push_back({r.terms.cpus, r.terms.memory_mb,
                               r.only_node.empty() ? 0 : book_.find_node(r.only_node)->key.n});
        shape.layout = layout_of(r);
    }
    return places_.why_never(shape);
}

}  // namespace souk::market
