// SPDX-License-Identifier: GPL-2.0-or-later
// BookedWatch: whether what the market of a simulated cluster sells ahead of its time is kept. It
// shares no code with the market: it reads the market's records and receipts, knows what nodes have
// offered and homes were told, and what is really there (world.hpp). At every moment:
//   room    the places that are sold on a node are together no more than it has; when one is sold
//           or moved, no more than what its owner had offered then
//   begins  the job runs in its place a few seconds after the start; else its user has been told
//           another thing than that it does, and where nothing has failed meanwhile (no fault, no
//           word or use of an owner) that is no excuse
//   price   for time in the place a receipt has the price that was fixed, or less
// and of each promised deadline, once all is healed:
//   kept    the job has ended by then, and no receipt says that the promise was broken
//   broken  it has not, and exactly one receipt says so, with a cause that the world bears out; no
//           more is given back than was paid there
//   given up  its user has cancelled it before
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "market/core/market_io.hpp"
#include "tests/sim/world.hpp"

namespace souk::sim {

class BookedWatch {
  public:
    // From the start of a place, or from when its clearing can be over, to the first look.
    static constexpr Nanos late = Nanos::from_s(10), clearing = Nanos::from_s(35);
    struct Counts {
        uint64_t sold = 0, begun = 0, excused = 0;    // places
        uint64_t kept = 0, broken = 0, given_up = 0;  // promises
        void add(const Counts& c) {
            sold += c.sold, begun += c.begun, excused += c.excused;
            kept += c.kept, broken += c.broken, given_up += c.given_up;
        }
    };

    // The market has heard this of a node; nothing: its connection has ended.
    void offers(const NodeName& node, const ProviderReport* offer, Nanos now);
    void decided(const market::JobRecord& record);
    void all_decided(Nanos now);
    // Returns when it is to be looked whether the job is in a place that was not known before.
    std::optional<Nanos> stored(const market::JobRecord& record, Nanos now);
    void posted(const market::Receipt& receipt, Nanos now);
    void restarted() { decided_ = places_; }
    void heard(const JobReport& report, Nanos now);
    void told(const JobNote& note) { told_[note.id] = note.code; }

    // The place that it was sold and that is not over. Null: there is none.
    const market::Contract* place_of(const JobId& id) const;
    // The last time at which the node offered something else, or was not there.
    Nanos changed(const NodeName& node) const;
    // Whether it is to be looked at now: it is not over, and has not been moved since.
    bool is_due(const JobId& id, Nanos now) const;
    // `excuse`: of a job that does not run in its place. Empty: there is none. `hears`: its home
    // has heard all that the market had to say.
    void look(const JobId& id, bool is_there, const std::string& excuse, bool hears);
    // All is healed. `calm`: nothing failed since then.
    void judge(const World& world, Nanos calm);

    std::string failure;  // the first that was not kept
    const Counts& counts() const { return counts_; }

  private:
    struct Offer {
        int64_t cpus = 0, mb = 0;
        bool takes = false;
        Nanos changed;
    };
    struct Promise {
        Nanos deadline, made, needs;
        NodeName node;
        bool has_budget = false;
        int times_broken = 0;
        std::string cause;
        NodeName back_from;
        Money back;
    };
    // The market was told this of a job, perhaps before its promise was on disk.
    struct Heard {
        Nanos end = Nanos::never(), cancel = Nanos::never();
        Nanos drop = Nanos::never();  // its user wants no promise any more
        bool at_limit = false;        // its home says so, although it may have ended just before
    };
    void fail(const JobId& id, const std::string& what);
    void judge_broken(const JobId& id, const Promise& p, const Truth& truth, Nanos calm);
    void check_room(const JobId& id, const market::Contract& place, Nanos now);

    std::map<NodeName, Offer> offers_;
    std::map<JobId, market::Contract> decided_, places_;  // not over; places_: on disk
    std::set<JobId> moved_;                               // of decided_, in this step
    std::map<JobId, Nanos> due_;                          // of places_: the next look
    std::map<JobId, Nanos> came_;                         // of places_: to the node where it is
    std::map<JobId, Promise> promises_;
    std::map<JobId, Heard> heard_;
    std::map<JobId, std::string> told_;
    std::map<std::pair<JobId, NodeName>, Money> paid_;
    Counts counts_;
};

}  // namespace souk::sim
