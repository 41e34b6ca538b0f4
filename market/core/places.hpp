// SPDX-License-Identifier: GPL-2.0-or-later
// Places: where a job may run, and why not: what nodes offer now, which machine can take what ran
// on which, back-off, missing programs, jobs that cannot leave, nodes that will not come back. It
// answers about the jobs and nodes of a Book, which it does not change. Pure; part of Market.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "market/core/book.hpp"
#include "market/core/machines.hpp"
#include "market/core/needs_index.hpp"
#include "market/core/network_packing.hpp"
#include "market/core/reason.hpp"
#include "market/core/resource_book.hpp"
#include "market/core/supply.hpp"

namespace souk::market {

// The needs of the required components of a gang; `machine` is the key of the only node for one.
struct GangShape {
    std::vector<NetworkPacking::Need> needs;
    GangLayout layout;
    bool operator==(const GangShape&) const = default;
};

// How its home says that a gang is to lie; the same of each component.
GangLayout layout_of(const JobReport& report);
// Which machines its owner says are near it, and how near.
void set_near(ProviderSpec& spec, const ProviderReport& report);

class Places {
  public:
    explicit Places(const Book& book) : book_(book), resources_(book) {}

    // -- nodes

    // It may be given new jobs.
    static bool usable(const Node& node) {
        const ProviderReport& r = node.record.report;
        return node.connected && node.record.has_report && r.on_market && r.cannot.empty();
    }
    // Guests of the node stay, although it takes nobody new. (An owner who left the market wants
    // them gone instead.)
    static bool keeps_guests(const Node& node);
    // Never below what its jobs have already: what is short of memory takes nobody new, and throws
    // nobody out.
    static int64_t memory_of(const Node& node);
    // The jobs that are still there, stopped ones included; asked of a node that takes no jobs now.
    static int32_t guests_left(const Node& node);
    // A node came, went, or offers something else.
    void changed() {
        nobody_.clear();
        supply_.reset();
        absent_.reset();
        never_.reset();
    }
    // The machine of a node may be another one. True: it takes other things than the one before.
    bool take_machine(Node& node);
    bool is_known_machine(const Node& node) const {
        return machines_.is(node.machine, node.record.report.machine);
    }
    void forget_machine(Node& node);
    // A node may be another thing for jobs that ask for one. True: for some of them it is.
    bool attributes_changed(const ProviderReport& before, const Node& node) {
        return needs_.changed(before, node);
    }
    const NeedsIndex& needs() const { return needs_; }
    const ResourceBook& resources() const { return resources_; }
    ResourceBook& resources() { return resources_; }
    // Its operator says that it will not come back, until it does.
    void write_off(const NodeName& name) { written_off_.insert(name); }
    void came_back(const NodeName& name) { written_off_.erase(name); }
    const std::set<NodeName>& written_off() const { return written_off_; }

    // -- a job and a node

    // An order has stopped it where it is, with its memory, and it could be dumped.
    static bool stands(const Job& job) {
        const JobReport& r = job.record.report;
        return r.phase == JobPhase::frozen && r.in_place && r.cannot_move.empty() &&
               !job.record.unbacked;
    }
    // It stands so, and nobody can send it to disk now: its home is away, or could not do it.
    static bool stands_fast(const Job& job) {
        return stands(job) && (!job.reported || job.failed->stuck.active);
    }
    // It cannot be dumped: it is where it is, running or stopped, with its memory, until it ends.
    static bool is_rooted(const Job& job) {
        const JobReport& r = job.record.report;
        const bool runs = r.phase == JobPhase::running || r.phase == JobPhase::freezing;
        const bool in_place = r.phase == JobPhase::frozen && r.in_place;
        return (runs || in_place) && !r.cannot_move.empty() && !job.record.unbacked;
    }
    void note_rooted(const Job& job);
    const std::set<JobId>& rooted() const { return rooted_; }
    // The named resources of the market that nobody keeps who cannot leave.
    NamedOffers licences() const;
    // Jobs that cannot leave keep not so much of the named resources that too little is there.
    bool could_have(const Job& job, const Node& node) const;
    // It has begun, and would get a device there, of which its programs could not be told: which.
    // Empty: nothing.
    std::string untold_device(const Job& job, const Node& node) const;
    // Neither moved nor frozen nor thawed now.
    bool cannot_leave(const Job& job) const;
    // Its program, or its user: its home has said so.
    static bool lacks(const Job& job, const NodeName& name);
    // Every node has tried to start it, and cannot execute its program. One that is off the market
    // or too small now was not asked, and may have it; so may one that is away, for some minutes:
    // its daemon may just be started again.
    bool no_node_is_left(const Job& job, Nanos now) const;
    // There is room beside what runs there, and `before` jobs of the same size.
    bool fits(const Job& job, const Node& node, int32_t before = 0) const;
    bool may_run_at(const Job& job, const Node& node) const;
    // As far as is known for later: whether the node takes jobs now, and named resources that
    // others have now, or were sold, do not count.
    bool may_run_later(const Job& job, const Node& node) const;
    // The node is such as its user wants.
    bool meets_needs(const Job& job, const Node& node) const {
        return needs_.fits(needs_of(job), node);
    }
    // Its home says that it cannot run there, or that orders for that have come to nothing.
    static bool is_barred(const Job& job, const Node& node);
    bool may_run_at(const Job& job, const NodeName& name) const;
    // That node holds a component that waits, until all of its gang are ready.
    static bool holds_for(const Job& job, const Node& node);
    // All nodes where the job may not run, for the solver.
    std::vector<ProviderKey> barred(const Job& job) const;
    // Empty: it may run there.
    std::string why_not_at(const Job& job, const NodeName& name) const;
    // The node to which an operator wants the job to go; an error: why it cannot go there.
    Result<const Node*> destination(const Job& job, const NodeName& name) const;

    // -- a job and all nodes

    // All that nodes hold that may be given jobs.
    const Supply& supply() const;
    // Why no bid would help: nobody on the market can hold the job. Empty if somebody can.
    Reason why_no_provider(const Job& job) const;
    // Why the nodes on the market, all empty, would not hold these components. Empty: they would.
    Reason why_never(const GangShape& shape) const;
    // No node that is connected is what is needed, and which part of that fails. Empty: one is.
    const Reason& why_nobody_fits(const std::string& needs) const;
    // Which job that cannot leave holds the memory that this one would need. Empty if there is
    // none.
    Reason memory_held_on(const JobTerms& terms) const;
    // For tests: no change of what nodes hold was missed.
    bool supply_is_right() const;

  private:
    Reason with_absent(Reason reason, const JobTerms& terms) const;
    Status machine_takes(const Job& job, const Node& node) const;
    std::string failing_part(const std::string& needs, const Node& node) const;
    Reason reckon_nobody(const std::string& needs) const;
    Reason why_devices_alone(const Job& job) const;
    Reason reckon_never(const GangShape& shape) const;

    const Book& book_;
    Machines machines_;
    NeedsIndex needs_;
    ResourceBook resources_;
    std::set<JobId> rooted_;
    std::set<NodeName> written_off_;                // lives as long as this process
    mutable std::map<std::string, Reason> nobody_;  // answers of why_nobody_fits
    mutable std::optional<Supply> supply_;          // none: it may have changed
    // Nodes that may not be given jobs now, but for those that another equals or surpasses.
    mutable std::optional<std::vector<const Node*>> absent_;
    // The last answer of why_never: all components of a gang ask the same.
    mutable std::optional<std::pair<GangShape, Reason>> never_;
};

}  // namespace souk::market
