// SPDX-License-Identifier: GPL-2.0-or-later
// SpeedCheck: whether nodes are as fast as their owners say, from how long programs run. Jobs of
// one user with one command line are taken for one program. Its run time x the speed of the node is
// the same everywhere if all nodes are as fast as they say, so a node on which it is greater than
// on others gives less than it claims. A run time is what was charged, by the word of home and node
// (use_check.hpp): a node that tells a shorter one is paid less.
//
// One user alone says nothing: at least two users must find a node slow, and of the users that have
// run there the (upper) median counts, so that half of them may say what they like. Nor does one
// other node, as the upper median of them is compared with. A program that does not compute on the
// other nodes, or takes now this long and now that long there, says nothing, and at most half of a
// claim is found missing. A home may make up runs of many users, so this decides nothing: it is a
// sign for the operator. Pure; in memory alone, owned by Market.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kernel/base/ids.hpp"
#include "kernel/base/time.hpp"

namespace souk::market {

class SpeedCheck {
  public:
    static constexpr size_t runs_min = 3;                // of a program on a node, to compare
    static constexpr size_t others_min = 2;              // nodes to compare with
    static constexpr size_t runs_all_min = 8;            // on a node, to say anything of it
    static constexpr size_t users_min = 2;               // that have run there
    static constexpr int64_t tolerance_percent = 85;     // of its claim: less is marked
    static constexpr int64_t floor_percent = 50;         // of its claim: no mark is below
    static constexpr Nanos run_min = Nanos::from_s(20);  // shorter ones are mostly their start
    // Bounds of memory. The program that has not ended for longest is forgotten.
    static constexpr size_t programs_max = 512, programs_user_max = 64, nodes_max = 16,
                            runs_kept = 9;

    // A job that ran to its end on one node, without a stop. `speed`: what the node's owner says
    // now, above 0; a node that lends less of itself for a while says less.
    struct Run {
        NodeName node;
        int64_t speed = 0;
        uint32_t uid = 0;
        std::string program;
        Nanos run, cpu;  // cpu: that it used
    };
    // True: from now on another speed counts for its node.
    bool ended(const Run& run);
    // No greater speed counts for that node; nullopt: as its owner says.
    std::optional<int64_t> most(const NodeName& node) const;
    void forget(const NodeName& node);

  private:
    struct Runs {
        std::vector<int64_t> ms, speeds;     // of the newest, at most runs_kept; speeds: as claimed
        int64_t computed = 0;                // of 100 of the newest's run time, a processor's time
        std::vector<int64_t> works() const;  // run time x speed
        bool is_steady() const;              // these differ by a quarter of the greatest at most
    };
    struct Found {
        int64_t permille = 0;  // of what it claimed when the programs ran there
        int64_t given = 0;     // as a speed
    };
    using Program = std::pair<uint32_t, std::string>;
    struct Known {
        uint64_t used = 0;
        std::map<NodeName, Runs> nodes;
    };
    void note(const Run& run);
    void make_room(uint32_t uid);
    // nullopt: there is nothing to compare.
    static std::optional<Found> found(const Known& program, const NodeName& node);
    std::optional<Found> judged(const NodeName& node) const;

    std::map<Program, Known> programs_;
    std::map<NodeName, int64_t> most_;
    uint64_t clock_ = 0;
};

}  // namespace souk::market
