// SPDX-License-Identifier: GPL-2.0-or-later
// marketd's configuration: a TOML file read once into one const struct. An unknown key or a value
// out of range is an error that names file, line and key. `marketd --check-config` stops after it.
#pragma once

#include <string>
#include <vector>

#include "kernel/base/result.hpp"
#include "kernel/sys/host/config_text.hpp"
#include "kernel/sys/net/strangers.hpp"
#include "market/core/market.hpp"

namespace souk {

struct MarketConfig {
    std::string name;  // default: this host's name
    std::string site;  // what other sites call this one; empty: by the realm of its certificates
    std::string listen = "0.0.0.0:7070";  // where agents connect
    std::string metrics;                  // host:port of its figures; empty: none
    std::string status_file;              // how it is, for scripts; empty: none
    Nanos status_every = Nanos::from_s(5);
    std::string socket = "/run/souk/marketd.sock";  // where marketctl connects
    std::string state = "/var/lib/souk/marketd";
    // who the market is to others, and the authority that certifies (kernel/trust/identity.hpp);
    // default: STATE/identity
    std::string identity;
    // No certificates: whoever reaches the port may act as any node and as an operator.
    bool insecure = false;
    // Until then (Unix time) nodes may come with a certificate or without; 0: only with.
    Nanos insecure_until;
    // Root of each node is an operator of the market (as with `souk up`, where they are one).
    bool nodes_operate = false;
    // The account whose souk-web may serve all users who log in there; empty: each user's own does.
    std::string web_user;
    market::MarketOptions market = default_market();
    uint64_t finished_max = 100'000;  // finished jobs whose records are kept, the newest
    Nanos finished_age;               // and for so long; 0: whatever their age
    // The decision log (docs/decision-log.md): at most so much on disk (0: there is none), and for
    // so long (0: whatever its age).
    int64_t decisions_mb = 64;
    Nanos decisions_age = Nanos::from_s(90 * 86'400LL);
    // speaks the solver's text protocol; empty: the own solver
    std::vector<std::string> solver_program;
    bool solver_places = false;  // it knows `rj` and `fj`: it is told where jobs are
    Nanos solver_patience = Nanos::from_ms(1'000);  // a later answer counts as none
    // Executables that are asked (docs/filters.md); empty: none.
    std::string submit_filter, arrival_filter, user_map, site_metric, site_reroute;
    bool site_news = true;
    Nanos programs_limit = Nanos::from_s(5);  // a later answer counts as none
    std::string programs_user = "nobody";     // who they are where marketd is root
    Nanos hello_patience = Nanos::from_s(5);
    Strangers::Bounds strangers;  // who has not said yet who he is
    // what waits for one agent; an agent that lets it pass this starts afresh
    int64_t agent_queue_mb = 64;
    // a silent agent is asked after this long, and given up after three times
    Nanos keepalive = Nanos::from_s(10);

  private:
    // Nobody starves by default, where a simulation is to be told so.
    static market::MarketOptions default_market() {
        market::MarketOptions options;
        options.solver.ageing = Nanos::from_s(86'400);
        return options;
    }
};

// `path` empty: the defaults. `effective`: what is in force, as TOML with where each value comes
// from.
Result<MarketConfig> load_market_config(const std::string& path, ConfigText* effective = nullptr);
// Every key as JSON (kernel/sys/host/settings.hpp).
std::string market_config_reference();

}  // namespace souk
