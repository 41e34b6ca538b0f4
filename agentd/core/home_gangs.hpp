// SPDX-License-Identifier: GPL-2.0-or-later
// HomeGangs: jobs of several components (docs/gangs.md). A component is a job of this home like any
// other, with a place, a price and receipts of its own; its gang is what its record's ties name.
// What holds of the gang as a whole is here:
//
//   all have come     then the market may place them
//   all are held      each is started on its node and runs no byte of its program; one durable
//                     write releases all of them (`spec.hold` goes, in one step of Home)
//   one cannot start  the start of all others is taken back, so that nobody waits for them;
//                     after tries_max such starts they end
//   one has ended     otherwise than with 0, or before they were released: the others are ended
//
// That is so for required components. An interactive one is held like them, but when it could not
// start several times it ends, and the others go on without it; an optional one is not waited for:
// it is released with the others, or at once if they run already. The end of neither ends others;
// what is left of them ends with the last required one.
//
// What is held here follows from the records and from what guests say again (`held`): an index.
// Pure; part of Home.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "agentd/core/home_io.hpp"

namespace souk {

class HomeGangs {
  public:
    using Jobs = std::map<uint64_t, HomeJob>;
    static constexpr uint32_t components_max = 1024;  // what the solver takes
    static constexpr uint32_t tries_max = 20, interactive_tries_max = 3;

    explicit HomeGangs(Nanos patience) : patience_(patience) {}

    static bool is_component(const HomeJob& job) { return job.group.components > 0; }
    static bool is_required(const HomeJob& job) {
        return job.group.role == ComponentClass::required;
    }
    // Not every node does for it, or not every one beside its siblings.
    static bool has_layout(const HomeJob& job) {
        return !job.group.node.empty() || job.group.spread > 0 || job.group.pack || job.group.near;
    }
    static bool is_optional(const HomeJob& job) {
        return job.group.role == ComponentClass::optional;
    }
    // It waits, or is held: no byte of its program has run.
    static bool is_unreleased(const HomeJob& job) { return is_component(job) && job.spec.hold; }

    // Of a new job: its ties are such that it may join its gang. Errors: what is wrong with them,
    // or what a component cannot be (yet).
    static Status check(HomeJob& job, const Jobs& jobs);
    // It is in the records. The variables by which a program knows its gang are in its environment.
    void add(HomeJob& job);
    // All of them are there now, and were not before: they know it, and each other's addresses.
    // Their numbers; else none.
    std::vector<uint64_t> complete(const HomeJob& newest, Jobs& jobs);
    void forget(uint64_t seq);

    // The components that are known here, by their number in the gang; of no gang: none.
    std::vector<uint64_t> all_of(const HomeJob& job) const;
    std::vector<uint64_t> others_of(const HomeJob& job) const;
    // Those that have not ended.
    uint32_t left(const HomeJob& job, const Jobs& jobs) const;
    // Why it may not begin yet; empty: it may.
    std::string waits(const HomeJob& job) const;

    // It was told to start: by then all must be held.
    void started(const HomeJob& job, Nanos now);
    // Its node holds it. True: so are all that it waits for, and those that are held may be
    // released.
    bool held(const HomeJob& job, const Jobs& jobs);
    // It is the copy that its node holds.
    bool is_held(const HomeJob& job) const;
    // It is not on its way to be held any more.
    void step_ended(const HomeJob& job);
    // never(): it is not held, and need not be soon.
    Nanos due(const HomeJob& job) const;
    Nanos patience() const { return patience_; }

    // A node that cannot execute the program of one cannot execute it for another that has the
    // same. True: that is news.
    static bool lacks_as_well(HomeJob& other, const HomeJob& job);

    // Why the others are to end, now that this one has; empty: they go on.
    Trouble verdict(const HomeJob& ended) const;
    // Of a component that is being ended: the verdict of the one that ended first, or that no
    // required one is left; empty: neither.
    Trouble why_ended(const HomeJob& job, const Jobs& jobs) const;
    // Whether all of the required ones that ended by themselves have ended well, of a component
    // that is ended with them.
    bool ends_with_success(const HomeJob& job, const Jobs& jobs) const;

  private:
    Trouble none_required(const HomeJob& job, const Jobs& jobs) const;

    struct Waits {
        Epoch held;  // of the copy that its node holds; 0: none
        Nanos due = Nanos::never();
    };
    std::map<uint64_t, std::map<uint32_t, uint64_t>> gangs_;  // by component
    std::map<uint64_t, uint64_t> gang_of_;                    // those that are not forgotten
    std::map<uint64_t, Waits> waits_;
    Nanos patience_;
};

}  // namespace souk
