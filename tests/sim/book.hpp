// SPDX-License-Identifier: GPL-2.0-or-later
// Book: the real Market as the simulated cluster's bookkeeper. It hears what homes report, at the
// times at which the network lets them through, prices and charges it, and tells the homes. Its
// orders go nowhere, as the toy market's are wilder; but with `gives_orders` it hears what nodes
// offer, too, and its orders are handed out, as there is no toy market then. It dies and comes back
// from what it has stored: by marketd's own Journal, on a disk that may be full for a time. After
// every step:
//   ledger   all balances add up to zero; each job has cost what its stored receipts and its open
//            tab say; users have paid what nodes have earned (Market::audit)
//   budget   no job has paid more than its budget
//   files    what its home counted of a job's files (every third job has some) is in receipts once
//   whose    nobody pays for the jobs that a liar has made up, but his own user
//   run      no job is charged for more run time than it had (where nothing is lost: a home that
//            forgets, or cannot be heard, is charged by the market's own clock)
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernel/base/rng.hpp"
#include "market/core/market.hpp"
#include "tests/sim/disk.hpp"

namespace souk::sim {

// Jobs that liars report to the market, and that are nowhere, have numbers from here on; and their
// user.
inline constexpr uint64_t lied_jobs = 1'000'000;
inline constexpr uint32_t liars_uid = 2'000;

class Book {
  public:
    enum class Bug : uint8_t { none, skip_receipt, torn_commit, bill_frozen_time, no_broken };
    Book(uint64_t seed, Bug bug, bool gives_orders);

    // `offer`: of a market that gives orders.
    void connected(const NodeName& node, ProviderReport offer, Nanos now);
    void lost(const NodeName& node, Nanos now);
    void hears(JobReport report, Nanos now);
    // An honest node says that it cannot carry out an order, or what it offers.
    void hears(const NodeName& node, const ToMarket& message, Nanos now);
    // The operator says that the node will not come back.
    void is_lost(const NodeName& node) { (void)market_->write_off(node, 0); }
    // A node that lies says that. A refusal ends its connection, as marketd does.
    void is_told(const NodeName& liar, const ToMarket& message, Nanos now);
    void is_told(const NodeName& liar, const UseReport& use, Nanos now);
    void restart(Nanos now);
    void disk_is_full(bool full) { disk_.full = full; }
    // Decides, stores, checks. What it has to say to homes is handed to `say`: notes, and orders
    // if it gives any. Returns when it wants to be called again.
    using Say = std::function<void(const NodeName&, const FromMarket&)>;
    Nanos step(Nanos now, const Say& say);
    // Whose record or receipts it stored in the last step; in a step that looked at all jobs this
    // is not all of them.
    const std::vector<JobId>& stored_now() const { return stored_now_; }
    bool looked_at_all() const { return steps_unchecked_ == 0; }
    // All run time that a job was charged for so far.
    Nanos charged(const JobId& id) const;
    static ProviderReport usual_offer(const NodeName& node);
    void tell_to(TraceListener* listener);

    // With gives_orders these hear of each ticket that goes with an order, of each record in the
    // step that decides it, and of each record and receipt when it is on disk.
    std::function<void(const Ticket&)> on_ticket;
    std::function<void(const market::JobRecord&)> on_decided, on_stored;
    std::function<void(const market::Receipt&)> on_receipt;

    std::set<NodeName> liars;
    std::string failure;  // the first invariant that did not hold

  private:
    void store(const market::StoreOp& op);
    void leaves(const market::Send& send, const Say& say);
    void became_durable(const RecordName& name, const std::string& value);
    void check();
    void check_job(const JobId& id, const market::JobRecord& record);

    Rng rng_;
    Bug bug_;
    const bool gives_orders_;
    TraceListener* listener_ = nullptr;
    std::unique_ptr<market::Market> market_;
    std::set<NodeName> connected_;
    Disk disk_;
    std::unique_ptr<Journal> journal_;
    // Durable: what a restart finds.
    std::map<JobId, market::JobRecord> jobs_;
    std::map<NodeName, market::NodeRecord> nodes_;
    std::map<market::Holder, market::AccountRecord> accounts_;
    market::MetaRecord meta_;
    size_t steps_unchecked_ = 0;
    std::vector<JobId> stored_now_;
    struct Sum {
        Money paid;
        Nanos run;
        uint64_t files_requests = 0;
    };
    std::map<JobId, Sum> receipts_;
    std::map<JobId, std::pair<Nanos, Nanos>> frozen_;  // since when; for how long in all
};

}  // namespace souk::sim
