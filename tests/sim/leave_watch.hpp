// SPDX-License-Identifier: GPL-2.0-or-later
// LeaveWatch checks guests that leave a simulated node while its owner is there: they may take no
// more of his disk and link than he has said, and must still leave in time. It knows when he came,
// the guests and images that are really there (world.hpp), each piece that left, and the faults of
// the cluster, but nothing of the machines that it checks. While he is there
//   rate    within any second no more leaves than the rate that he has said, and `burst` of each
//           guest that sends; more only by what is needed to have all that is there gone when three
//           quarters of a promised time are over, and nothing holds it back after that
//   wanted  a guest whose memory he wants holds none from the promised time on
//   empty   the whole node is empty from the promised time on, if guests are to leave it
// For the last two, a guest first has the time to leave by itself (Rules::leaves). A miss is
// explained by a fault of the node or of the job's home since then, by a job that cannot be dumped
// or whose dump or transfer has failed (or those of another component of its gang), and by an order
// that it is there.
#pragma once

#include <deque>
#include <map>
#include <string>

#include "tests/sim/world.hpp"

namespace souk::sim {

class LeaveWatch {
  public:
    // Two pieces: one may go as soon as there is room for its first byte, and as the rate is
    // raised, one is still late by the rate before.
    static constexpr uint64_t burst = 8 << 20;

    struct Rules {
        uint64_t bytes_per_s = 0;  // 0: he has said none
        Nanos memory, empty;       // promised; 0: nothing is
        Nanos leaves;              // a guest may take so long to begin to leave
        Nanos all_leave;           // all may, since he came; never: they may stay
        Nanos away;                // within that he has not gone
    };
    struct Counts {
        uint64_t in_time = 0, explained = 0;  // wanted guests, and nodes to be empty
    };
    void rules(const Rules& rules) { rules_ = rules; }

    void came(const NodeName& node, Nanos now);  // each sign of him that a daemon can notice
    void gone(const NodeName& node, Nanos now);  // he, or the daemon
    // A daemon that begins finds guests that stand for him: it takes him to be there.
    void found(const NodeName& node, Nanos now) { nodes_[node].found_at = now; }
    void wants(const NodeName& node, const GuestKey& key, Nanos now);

    // These calls excuse a miss. trouble: something fails on that node, or is slow, until then.
    // failed: an operation on that job fails, with consequences until then. to_stay: the market
    // wants the job to stay there.
    void trouble(const NodeName& node, Nanos until) {
        Nanos& end = troubles_[node];
        end = std::max(end, until);
    }
    void failed(const JobId& id, Nanos until) {
        Nanos& end = failed_[id];
        end = std::max(end, until);
    }
    void to_stay(const JobId& id, const NodeName& node, Nanos now) { to_stay_[{id, node}] = now; }

    // left() notes how much of a guest has left. Both say what is wrong, or nothing. If nothing
    // changes there, look() need not be asked until `again`, which it brings forward.
    std::string left(const World& world, const NodeName& node, const GuestKey& key, uint64_t bytes,
                     Nanos now);
    std::string look(const World& world, const NodeName& node, Nanos now, Nanos& again);
    const Counts& counts() const { return counts_; }

  private:
    struct Piece {
        Nanos at;
        uint64_t bytes = 0;
        GuestKey key;
    };
    struct There {
        Nanos at;
        uint64_t bytes = 0;
    };
    struct Wish {
        Nanos since, due;
    };
    struct Node {
        bool here = false;
        Nanos found_at = Nanos::never();
        Nanos stays_since, gone_at;  // he may have been away for less than `away` since
        Nanos came, empty_due = Nanos::never();
        std::deque<Piece> pieces;  // of the last second
        std::deque<There> there;   // of the last two
        std::map<GuestKey, Wish> wishes;
    };
    void note_there(const World& world, const NodeName& name, Node& n, Nanos now) const;
    bool is_explained(const World& world, const World::At& at, Nanos since) const;
    std::string not_empty(const World& world, const NodeName& name, Nanos since);

    Rules rules_;
    std::map<NodeName, Node> nodes_;
    std::map<NodeName, Nanos> troubles_;
    std::map<JobId, Nanos> failed_;
    std::map<std::pair<JobId, NodeName>, Nanos> to_stay_;
    Counts counts_;
};

}  // namespace souk::sim
