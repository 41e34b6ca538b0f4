// SPDX-License-Identifier: GPL-2.0-or-later
// ResourceBook: who has which named resources (named_resources.hpp), as orders and reports say it.
// A job has those of a node from the order that sends it there until it has left, so while it moves
// of both nodes; those of the market it has once, wherever it is. A job that is stopped in memory
// keeps what it has. Pure; part of Places.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "market/core/book.hpp"
#include "market/core/named_resources.hpp"
#include "market/core/reason.hpp"
#include "market/core/resource_text.hpp"

namespace souk::market {

class ResourceBook {
  public:
    static constexpr size_t names_few = 1'024;
    struct Asked {
        NamedAmounts here, licences;  // of its node, and of the market
        bool any() const { return !here.empty() || !licences.empty(); }
    };

    // Resources that were sold ahead on a node to a job, from `start` to `end` (Unix time).
    struct Ahead {
        JobId job;
        NodeName node;
        std::string resources;
        Nanos start, end;
        bool operator==(const Ahead&) const = default;
    };
    // A job with a device that ends at the end of its place may take so long to go.
    static constexpr Nanos leaves_within = Nanos::from_s(30);

    explicit ResourceBook(const Book& book) : book_(book) {}
    void set_licences(const std::vector<ResourceOffer>& all);
    const std::vector<ResourceOffer>& licences() const { return licences_; }

    // A name that the market has is of the market, whatever a node says.
    Asked asked(const JobTerms& terms) const;
    Asked asked(const std::string& resources) const;
    NamedOffers offered(const Node& node) const;
    NamedOffers offered() const;  // of the market
    // The same without what jobs keep that cannot leave: nobody else gets that.
    NamedOffers left_by_rooted(const Node& node) const;
    NamedOffers left_by_rooted(const std::vector<const Job*>& rooted) const;

    // Names that no node and no job has any more are forgotten, now and then: anybody may ask for
    // any name. To be called when nobody holds amounts but jobs, nodes and the solver.
    void forget_names();
    size_t names() const { return names_.size(); }

    // A job with a device never leaves, so devices that were sold ahead are given to nobody who may
    // have them still when their time comes. `unix`: now. True: others than before are.
    // `all` in the order of nodes.
    bool set_ahead(const std::vector<Ahead>& all, Nanos unix);
    // Whether what the job asks for there is kept for others to whom it was sold ahead.
    bool is_kept(const Job& job, const Node& node) const;
    // The sum that owners ask for all that it asks for there, for each of its CPUs per hour.
    Money reserve_of(const JobTerms& terms, const Node& node) const;
    // All that the job asks for is there from `start` to `end` beside what was sold to others and
    // what jobs keep that cannot leave.
    bool could_sell(const Job& job, const Node& node, Nanos start, Nanos end) const;

    // To be called when the job's claims of nodes (Job::claims) or its terms have changed.
    void claim(const Job& job);
    // So many are taken of it on the node, and of the market.
    int64_t taken(const NodeName& node, const std::string& name) const;
    int64_t taken(const std::string& name) const;
    // All that the job asks for is there beside what others have, and `before` jobs of the same.
    bool has_room(const Job& job, const Node& node, int32_t before = 0) const;
    // The node has as much at all as the job asks for there; else what it lacks.
    std::optional<ResourceNeed> lacks(const JobTerms& terms, const Node& node) const;
    // The first of what it asks for that is a device on that node; empty: nothing.
    std::string device(const JobTerms& terms, const Node& node) const;
    // No connected node, or not the market, has so much. Empty: there is enough.
    Reason why_nowhere(const JobTerms& terms) const;
    // Which of it is taken now, by the job that pays least of those that have it. Empty: enough is
    // free on some node that `may` says yes to.
    template <class May>
    Reason why_taken(const Job& job, May&& may) const;

  private:
    struct SoldAhead : Ahead {
        Asked asked;
    };
    struct Claim {
        Asked asked;
        std::array<NodeName, 2> places;
        bool operator==(const Claim& o) const {
            return asked.here == o.asked.here && asked.licences == o.asked.licences &&
                   places == o.places;
        }
    };
    void count(const Claim& claim, int by);
    uint32_t number(const std::string& name) const;
    bool of_market(const std::string& name) const;
    int64_t taken(const NodeName& node, uint32_t name) const;
    int64_t taken(uint32_t name) const;
    // Not enough of that is free; on no node: of the market.
    struct Shortage {
        NamedAmount amount;
        NodeName node;
        bool operator<(const Shortage& o) const {
            return std::tie(node, amount.name) < std::tie(o.node, o.amount.name);
        }
    };
    bool is_device(const Node& node, uint32_t name) const;
    static Nanos end_of(const Job& job, Nanos unix);
    bool never_leaves(const Asked& asked, const Node& node) const;
    std::span<const SoldAhead> ahead_on(const Node* node) const;
    struct Had {
        int64_t most = 0;
        bool sold = false;  // some of it was sold ahead
    };
    Had most_had(const Job& job, const Node* node, uint32_t name, Nanos from, Nanos until,
                 bool not_yet_had) const;
    int64_t kept(const Job& job, const Node* node, uint32_t name, Nanos from) const;
    bool claims_on(const JobId& id, const NodeName& node) const;
    Reason taken_by_weakest(const Job& job, const std::set<Shortage>& all) const;
    std::optional<Shortage> short_of(const Job& job, const Asked& asked, const Node& node,
                                     int32_t before = 0) const;
    std::optional<ResourceNeed> lacks(const Asked& asked, const Node& node) const;

    const Book& book_;
    std::vector<ResourceOffer> licences_;
    mutable std::map<std::string, uint32_t, std::less<>> numbers_;
    mutable std::map<uint32_t, std::string> names_;
    mutable uint32_t last_ = 0;      // no number is used for a second name
    size_t forget_at_ = names_few;   // with so many names
    std::map<JobId, Claim> claims_;  // of those that have any
    std::vector<SoldAhead> ahead_;   // in the order of nodes
    Nanos ahead_unix_;               // when ahead_ was set
    std::map<std::pair<NodeName, uint32_t>, int64_t> on_node_;
    std::map<uint32_t, int64_t> of_all_;
};

template <class May>
Reason ResourceBook::why_taken(const Job& job, May&& may) const {
    const JobTerms& terms = job.record.report.terms;
    if (terms.resources.empty()) return {};
    const Asked asked = this->asked(terms);
    std::set<Shortage> all;
    for (const auto& [name, node] : book_.nodes()) {
        if (lacks(asked, node) || !may(node)) continue;
        const auto missing = short_of(job, asked, node);
        if (!missing) return {};
        all.insert(*missing);
    }
    return all.empty() ? Reason() : taken_by_weakest(job, all);
}

}  // namespace souk::market
