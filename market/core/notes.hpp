// SPDX-License-Identifier: GPL-2.0-or-later
// Notes: what homes hear of their jobs, and owners of their guests and prices: each note when it
// says something else than the last one, an owner's at most once a second. Pure; part of Market,
// which says what is in a note.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "market/core/marked.hpp"
#include "market/core/market_state.hpp"

namespace souk::market {

class Notes {
  public:
    class Texts {
      public:
        // The note of a job goes there; null: nobody is there.
        virtual const Node* home_of(const Job& job) const = 0;
        virtual Reason reason(const Job& job) const = 0;
        virtual ProviderNote prices(const Node& node) const = 0;

      protected:
        ~Texts() = default;
    };

    // There may be something to say of it.
    void of(Job& job) { jobs_.insert(job); }
    void of(Node& node) { nodes_.insert(node); }
    void forget(Job& job) { jobs_.erase(job); }
    void forget(Node& node) { nodes_.erase(node); }
    void lost(const NodeName& to, const NodeName& node) { said_.push_back({to, NodeLost{node}}); }
    // To the home of a job that is not known here.
    void of(const JobNote& note) { said_.push_back({note.id.home, note}); }

    // All that is to be said by now, of the nodes of this market.
    void send(const Texts& texts, std::map<NodeName, Node>& nodes, Nanos now, Outputs& out);
    // When send() has something to do; never(): when there is something to say of somebody.
    Nanos next() const {
        if (!nodes_.empty()) return {0};
        return later_.empty() ? Nanos::never() : later_.begin()->first;
    }

  private:
    static void send(const Texts& texts, Job& job, Nanos now, Outputs& out);

    Marked<Job, &Job::noted> jobs_;
    Marked<Node, &Node::noting> nodes_;
    std::set<std::pair<Nanos, NodeName>> later_;  // not before that
    std::vector<Send> said_;
};

}  // namespace souk::market
