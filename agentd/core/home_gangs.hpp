// SPDX-License-Identifier: GPL-2.0-or-later
// HomeGangs: jobs of several components (docs/gangs.md). A component is a job of this home like any
// other, with a place, a price and receipts of its own. The ties of its record name its gang. This
// index knows the components of each gang, and which rules hold for the gang as a whole:
//
//   all have come     then the market may place them
//   all are held      each is started on its node and runs no byte of its program; one durable
//                     write releases all of them (`spec.hold` goes, in one step of Home)
//   one cannot start  the start of all others is taken back, so that none waits in vain;
//                     after tries_max such starts they end
//   one has ended     otherwise than with 0, or before they were released: the others are ended
//
// These rules hold for required components. An interactive one is held like them, but it ends when
// it could not start several times, and the others go on without it. An optional one is not waited
// for: it is released with the others, or at once if they run already. The end of neither ends
// others; those that are left end with the last required one.
//
// The index follows from the records. GangStart, GangFreeze, GangCheckpoints and GangReturn act by
// the rules. Pure; part of Home.
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

    static bool is_component(const HomeJob& job) { return job.group.components > 0; }
    static bool is_required(const HomeJob& job) {
        return job.group.role == ComponentClass::required;
    }
    // The component may not run on every node, or not on every one beside its siblings.
    static bool has_layout(const HomeJob& job) {
        return !job.group.node.empty() || job.group.spread > 0 || job.group.pack || job.group.near;
    }
    static bool is_optional(const HomeJob& job) {
        return job.group.role == ComponentClass::optional;
    }
    // The component waits, or is held: no byte of its program has run.
    static bool is_unreleased(const HomeJob& job) { return is_component(job) && job.spec.hold; }

    // Checks that the ties of a new job let it join its gang. Errors: what is wrong with them, or
    // what a component cannot be (yet).
    static Status check(HomeJob& job, const Jobs& jobs);
    // Adds a job that is in the records, and puts the variables into its environment by which a
    // program knows its gang.
    void add(HomeJob& job);
    // If the newest component completes its gang, all learn that and each other's addresses.
    // Returns their numbers; else none.
    std::vector<uint64_t> complete(const HomeJob& newest, Jobs& jobs);
    void forget(uint64_t seq);

    // The components that are known here, in the order of the gang; none for a job without one.
    std::vector<uint64_t> all_of(const HomeJob& job) const;
    std::vector<uint64_t> others_of(const HomeJob& job) const;
    // How many components have not ended.
    uint32_t left(const HomeJob& job, const Jobs& jobs) const;
    // The reason why the job may not begin yet; empty: it may.
    std::string waits(const HomeJob& job) const;

    // A node that cannot execute the program of one component cannot execute the same program for
    // another. True: that is news for the other.
    static bool lacks_as_well(HomeJob& other, const HomeJob& job);

    // The terms of the components that have not ended, by number, when those of `job` become
    // `wanted`. Price, deadline, project and sites are the gang's, and so is a new budget, which is
    // divided by CPUs; the rest is the component's own. Errors: what a gang cannot change.
    Result<std::map<uint64_t, JobTerms>> changed(const HomeJob& job, const JobTerms& wanted,
                                                 const Jobs& jobs) const;

    // The reason why the others are to end, now that this one has; empty: they go on.
    Trouble verdict(const HomeJob& ended) const;
    // The reason why the component is being ended: the verdict of the one that ended first, or that
    // no required one is left; empty: neither.
    Trouble why_ended(const HomeJob& job, const Jobs& jobs) const;
    // True for a component that is ended with others, if all required ones that ended by themselves
    // have ended well.
    bool ends_with_success(const HomeJob& job, const Jobs& jobs) const;

  private:
    Trouble none_required(const HomeJob& job, const Jobs& jobs) const;

    std::map<uint64_t, std::map<uint32_t, uint64_t>> gangs_;  // by component
    std::map<uint64_t, uint64_t> gang_of_;                    // those that are not forgotten
};

}  // namespace souk
