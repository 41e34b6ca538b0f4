// SPDX-License-Identifier: GPL-2.0-or-later
// Market: jobs of several components. Each component is a job with a record, a price and receipts
// of its own; the solver is told of all of them as one gang when the market knows all, and a set of
// orders leaves for all of them or for none. See market.hpp and docs/gangs.md.
#include <algorithm>
#include <map>
#include <utility>

#include "market/core/market.hpp"

namespace souk::market {

namespace {

bool is_optional(const Job& job) { return job.record.report.optional; }

// It was ordered to thaw, perhaps when its home had not said yet that the others are frozen, too:
// it is held for them.
bool is_thawing(const Job& job) {
    const auto& order = job.record.order;
    if (job.record.cancel || (order && order->kind != Order::Kind::run)) return false;
    return job.phase() == JobPhase::thawing || (order && job.phase() == JobPhase::frozen);
}

// A home speaks for its own gangs alone.
std::string gang_name(const Job& job) { return job.id().home + "/" + *job.record.report.gang; }

// Of a gang that is to begin: what its components take on each node.
class GangRoom {
  public:
    // It fits there beside those that were put before.
    bool put(const Job& job, const Node& target) {
        const JobTerms& t = job.record.report.terms;
        auto& [cpus, mb] = taken_[&target];
        const bool stands_there = Places::is_rooted(job) && job.record.report.where == target.id();
        const int64_t more_mb = stands_there ? 0 : t.memory_mb;
        if (target.used_cpus + cpus + t.cpus > target.record.report.cpus ||
            target.used_mb + mb + more_mb > Places::memory_of(target))
            return false;
        cpus += t.cpus;
        mb += more_mb;
        return true;
    }

  private:
    std::map<const Node*, std::pair<int64_t, int64_t>> taken_;  // CPUs, MB
};

}  // namespace

void Market::list_in_gang(const Job& job) {
    if (!of_gang(job)) return;
    const std::string name = gang_name(job);
    if (job.phase() != JobPhase::finished) {
        gangs_[name].insert(job.id());
        return;
    }
    const auto gang = gangs_.find(name);
    if (gang == gangs_.end()) return;
    gang->second.erase(job.id());
    if (!gang->second.empty()) return;
    gangs_refused_.erase(name);
    gangs_.erase(gang);
}

// Those of its gang that have not finished, itself included, in the order of their numbers.
std::vector<Job*> Market::gang_of(const Job& job) {
    std::vector<Job*> all;
    const auto gang = gangs_.find(gang_name(job));
    if (gang == gangs_.end()) return all;
    for (const JobId& id : gang->second) {
        Job* const one = book_.find(id);
        const bool is_one = one && one->phase() != JobPhase::finished && of_gang(*one) &&
                            gang_name(*one) == gang->first;
        if (is_one) all.push_back(one);
    }
    std::sort(all.begin(), all.end(), [](const Job* a, const Job* b) {
        return std::pair(a->record.report.component, a->id()) <
               std::pair(b->record.report.component, b->id());
    });
    return all;
}

// The solver is told of all, with keys one after the other. False: not all are known, or it does
// not take them.
bool Market::enter_gang(Job& job, Nanos now) {
    const std::string name = gang_name(job);
    std::vector<Job*> all = gang_of(job);
    uint32_t left = UINT32_MAX;
    for (const Job* one : all) left = std::min(left, one->record.report.components);
    if (all.size() < left) return false;
    const auto required = std::stable_partition(all.begin(), all.end(),
                                                [](const Job* one) { return !is_optional(*one); });
    if (required == all.begin()) return false;  // its home ends what is left of it
    for (const Job* one : all)
        if (const NodeName& only = one->record.report.only_node;
            !only.empty() && !find_node(only)) {
            gangs_wait_for_[only].insert(name);
            return false;
        }
    if (outside_.is_used()) {
        gangs_refused_[name] = {0, "a program beside the market decides, for single jobs only"};
        return false;
    }
    Money least = job.bid;
    for (const Job* one : all) least = std::min(least, one->bid);
    std::vector<JobDemand> specs;
    for (Job* one : all) {
        admission_.unlist(*one);
        if (std::exchange(one->in_solver, false)) {
            solver_.remove_job(one->key);
            if (log_) log_->gone(*one);
        }
        book_.number_again(*one);
        const Wish w = wish(*one);
        note_wait(*one, waits(w), now);
        if (!w.place.empty() && !node_of(w.place).in_solver) {
            touch(node_of(w.place));
            sync_nodes();
        }
        specs.push_back(spec_of(*one, w));
        specs.back().value = least;
        specs.back().arrival = specs.front().arrival;
    }
    const int32_t lightest = weight_of(all, now);
    for (JobDemand& spec : specs) spec.weight = lightest;
    const JobReport& first = all.front()->record.report;
    const Status taken = solver_.add_gang(
        all.front()->key, specs, static_cast<size_t>(required - all.begin()), layout_of(first));
    for (size_t i = 0; i < all.size(); ++i) {
        admission_.list(*all[i]);
        notes_.of(*all[i]);
        if (!taken) continue;
        all[i]->in_solver = true;
        if (log_) log_->told(*all[i], specs[i]);
        pending_.insert(*all[i]);
    }
    gangs_refused_.erase(name);
    if (!taken) gangs_refused_[name] = taken.error();
    return taken.has_value();
}

// This one is known from now on: gangs may have a component for it.
void Market::wake_gangs_for(const Node& node) {
    const auto waiting = gangs_wait_for_.extract(node.id());
    if (!waiting) return;
    for (const std::string& name : waiting.mapped())
        if (const auto gang = gangs_.find(name); gang != gangs_.end())
            for (const JobId& id : gang->second)
                if (Job* one = book_.find(id)) touch(*one);
}

// What became of one lets others go; and none pays more than any of them bids.
void Market::wake_gang(const Job& job, Nanos now) {
    if (!gangs_seen_.insert(gang_name(job)).second) return;
    Money least = job.bid;
    const std::vector<Job*> all = gang_of(job);
    for (Job* one : all) {
        least = std::min(least, one->bid);
        pending_.insert(*one);
    }
    const auto known = solver_.job(job.key);
    if (known && known->value != least) (void)solver_.change_value(job.key, least);
    const int32_t weight = weight_of(all, now);
    if (known && known->weight != weight) (void)solver_.change_weight(job.key, weight);
}

// Orders for all required components that do not run, or none: nobody is held for one that has no
// place yet. With them, or later, for each optional one that has one.
bool Market::place_gang(Job& job, Nanos now, Outputs& out) {
    if (!gangs_seen_.insert(gang_name(job)).second) return true;
    std::vector<Job*> all = gang_of(job), begin;
    std::stable_partition(all.begin(), all.end(),
                          [](const Job* one) { return !is_optional(*one); });
    if (all.empty() || is_optional(*all.front())) return true;
    GangRoom room;
    const bool thaws = std::any_of(all.begin(), all.end(), [](const Job* one) {
        return !is_optional(*one) && is_thawing(*one);
    });
    bool refused = false;
    for (Job* one : all) {
        if (is_thawing(*one)) continue;  // and has its room
        const bool settled =
            one->in_solver && one->reported && !one->record.cancel && !in_transit(*one);
        if (settled && one->phase() == JobPhase::running) continue;
        const Node* const target = settled ? target_of(*one) : nullptr;
        const bool late = thaws && one->phase() != JobPhase::frozen;
        if (!target || late || !places_.may_run_at(*one, *target)) {
            if (is_optional(*one)) continue;
            return true;
        }
        if (!Admission::has_room(*one)) {
            pending_.insert(*one);
            if (is_optional(*one)) continue;
            return true;
        }
        if (room.put(*one, *target)) {
            begin.push_back(one);
            continue;
        }
        wants_room_.push_back(one);
        if (is_optional(*one))
            pending_.insert(*one);
        else
            refused = true;
    }
    if (refused) return false;
    for (Job* one : begin)
        issue(*one, Order::Kind::run, target_of(*one)->id(), one->reason, now, out);
    return true;
}

// Why the solver is not told of its gang, or what no bid would mend. Empty: neither.
Reason Market::why_gang_waits(const Job& job) const {
    if (!of_gang(job)) return {};
    const std::string name = gang_name(job);
    if (const auto refused = gangs_refused_.find(name); refused != gangs_refused_.end())
        return Reason(ReasonCode::components_refused).with(Figure::cause, refused->second.message);
    const auto gang = gangs_.find(name);
    std::vector<const Job*> required;
    if (gang != gangs_.end())
        for (const JobId& id : gang->second)
            if (const Job* one = book_.find(id); one && !is_optional(*one)) required.push_back(one);
    for (const Job* one : required)
        if (const JobReport& r = one->record.report;
            !r.only_node.empty() && !find_node(r.only_node))
            return Reason(ReasonCode::component_node_unknown)
                .with(Figure::count, std::to_string(r.component))
                .with(Figure::node, r.only_node);
    if (!job.in_solver || gang == gangs_.end() || required.empty())
        return Reason(ReasonCode::components_coming)
            .with(Figure::count, std::to_string(job.record.report.components));
    const JobTerms& own = job.record.report.terms;
    const Supply& supply = places_.supply();  // which says more of one that fits nowhere by itself
    if (!supply.empty() && !supply.least_reserve(own.cpus, own.memory_mb)) return {};
    GangShape shape;
    for (const Job* one : required) {
        const JobReport& r = one->record.report;
        shape.needs.push_back({r.terms.cpus, r.terms.memory_mb,
                               r.only_node.empty() ? 0 : find_node(r.only_node)->key.n});
        shape.layout = layout_of(r);
    }
    return places_.why_never(shape);
}

}  // namespace souk::market
