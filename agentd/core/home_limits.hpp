// SPDX-License-Identifier: GPL-2.0-or-later
// HomeLimits: what a Home (home.hpp) is told of its node when it is made.
#pragma once

#include <optional>
#include <string>

#include "agentd/core/home_wakes.hpp"
#include "kernel/base/ids.hpp"
#include "kernel/base/time.hpp"
#include "market/core/messages.hpp"

namespace souk {

struct HomeLimits {
    size_t jobs_max = 100'000;
    // finished and settled jobs kept for srun --attach; those with orphans on
    // nodes that do not answer come on top, at most three times as many
    size_t finished_max = 500;
    // how long an expelled job waits for a market order; after each
    // freeze that failed twice as long, to a minute
    Nanos expel_patience = Nanos::from_ms(1'500);
    // limit of a start and of each short step of a move
    Nanos step_patience = Nanos::from_s(60);
    Nanos transfer_patience = Nanos::from_s(900);  // limit of a dump with its transfer
    // for jobs with a network of their own: all but the first and the last
    std::optional<Ipv4Range> addresses = {};
    // a budget of which less is left than that share, or than lasts for warn_span: a warning
    int64_t warn_permille = 100;
    Nanos warn_span = Nanos::from_s(60);
    Nanos checkpoint_every = {};  // for jobs that do not say; 0: never
    std::string address = {};     // of this node, to which checkpoints come
    bool address_known = true;    // other nodes reach it there; else own_address tells it later
    // number of this boot of the machine, another after each; 0: not known, and a restart forgets
    // stretches
    uint64_t boot = 0;
    int64_t memory_default_mb = 0;  // for jobs that do not say; 0: none
    // lease of jobs that start from now on, on other nodes (lease.hpp); 0: none
    Nanos lease = Nanos::from_s(600);
    Nanos grace = {};  // for jobs that do not say (JobSpec); 0: a cancel ends them at once
    WakeRule wake = WakeRule::all;
};

}  // namespace souk
