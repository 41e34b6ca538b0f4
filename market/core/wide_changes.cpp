// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/wide_changes.hpp"

namespace souk::market {

void WideChanges::look(Nanos now) {
    while (!later_.empty() && later_.begin()->first <= now) {
        const NodeName name = later_.extract(later_.begin()).value().second;
        if (book_.find_node(name)) machine(book_.node(name), now);
    }
    if (!is_noted() || now < next_) return;
    for (auto& [id, job] : book_.jobs())
        if (job.phase() != JobPhase::finished && concerns(job)) work_.touch(job);
    attributes_ = resources_ = machines_ = false;
    next_ = now + pause;
}

void WideChanges::machine(Node& node, Nanos now) {
    if (now < node.machine_next) {
        if (!places_.is_known_machine(node)) later_.insert({node.machine_next, node.id()});
        return;
    }
    const int old = node.machine;
    if (places_.take_machine(node)) machines_ = true;
    if (old != 0 && old != node.machine) node.machine_next = now + machine_pause;
}

bool WideChanges::concerns(const Job& job) const {
    const JobReport& r = job.record.report;
    return (attributes_ && !needs_of(job).empty()) || (resources_ && !r.terms.resources.empty()) ||
           (machines_ && !r.where.empty());
}

}  // namespace souk::market
