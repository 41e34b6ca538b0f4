// SPDX-License-Identifier: GPL-2.0-or-later
// WorkList: the jobs and nodes that the next decision of a Market looks at, each once. A job that
// was touched is told to the solver anew, then it is pending: it gets an order if it is not where
// the solver has it. A node that was touched is told to the solver, and its owner hears of it.
// Pure; owned by Market.
#pragma once

#include <utility>
#include <vector>

#include "market/core/marked.hpp"
#include "market/core/market_state.hpp"
#include "market/core/notes.hpp"

namespace souk::market {

class WorkList {
  public:
    explicit WorkList(Notes& notes) : notes_(notes) {}

    // Something about it has changed: the solver is told, and decides anew.
    void touch(Job& job) {
        touched_.insert(job);
        due_ = true;
    }
    // The solver is told of it in this decision, too, which asks for no other one.
    void tell(Job& job) { touched_.insert(job); }
    void touch(Node& node) {
        touched_nodes_.insert(node);
        notes_.of(node);
        due_ = true;
    }
    // The next placing looks at it. That alone asks for no decision.
    void place(Job& job) { pending_.insert(job); }
    // A decision is due, whatever was touched.
    void decide() { due_ = true; }

    bool is_due() const { return due_; }
    void taken_up() { due_ = false; }
    std::vector<Job*> take_jobs() { return touched_.take(); }
    std::vector<Node*> take_nodes() { return touched_nodes_.take(); }
    std::vector<Job*> take_pending() { return pending_.take_any_order(); }
    bool is_placing() const { return !pending_.empty(); }

    // It has ended: nothing is to be placed any more.
    void leave_place(Job& job) { pending_.erase(job); }
    // It is about to be gone from the book.
    void forget(Job& job) {
        touched_.erase(job);
        pending_.erase(job);
        notes_.forget(job);
    }
    void forget(Node& node) { touched_nodes_.erase(node); }

  private:
    Notes& notes_;
    Marked<Job, &Job::touched> touched_;
    Marked<Job, &Job::pending> pending_;
    Marked<Node, &Node::touched> touched_nodes_;
    bool due_ = false;
};

}  // namespace souk::market
