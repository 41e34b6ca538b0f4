// SPDX-License-Identifier: GPL-2.0-or-later
// souk down: what lives is asked for first. Jobs that are not finished are ended with --force
// alone; with --keep they are frozen, and the state stays for the next `souk up`.
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>

#include "agentd/store/records.hpp"
#include "kernel/sys/host/clock.hpp"
#include "kernel/sys/loop/backoff.hpp"
#include "kernel/sys/store/statedb.hpp"
#include "tools/common/ask.hpp"
#include "tools/common/table.hpp"
#include "tools/souk/verbs.hpp"

namespace souk {
namespace {

using tools::Json;
constexpr Nanos supervisor_limit = Nanos::from_s(60), rest_limit = Nanos::from_s(300),
                rest_pause = Nanos::from_ms(100);

std::string agent_socket(const Daemon& d) { return d.dir + "/agentd.sock"; }

Result<Json> asked(const std::string& socket, const std::string& verb,
                   const std::vector<std::string>& args = {}) {
    TRY_ASSIGN(tools::Answer parts,
               tools::ask([&] { return Result<std::string>(socket); }, verb, args, Nanos{}));
    TRY_ASSIGN(const std::string text, tools::joined(std::move(parts)));
    Json j = tools::parse_json(text);
    if (j.is_discarded()) return fail(verb + ": the daemon's answer is not JSON");
    return j;
}

// Counts the jobs of a node that are not finished: its agentd knows, or what it has written down.
Result<size_t> jobs_of(const Daemon& d) {
    if (alive(d.process)) {
        TRY_ASSIGN(const Json status, asked(agent_socket(d), "node-status"));
        return status.value("home_jobs", size_t{0});
    }
    const std::string file = d.state + "/state.db";
    if (::access(file.c_str(), F_OK) != 0) return 0;
    TRY_ASSIGN(const StateDb db, StateDb::open_to_read(file, 0));
    TRY_ASSIGN(const auto rows, db.load("home"));
    size_t n = 0;
    for (const auto& row : rows) {
        TRY_ASSIGN(const HomeJob job, wire::unpack<HomeJob>(row.value));
        n += job.phase != JobPhase::finished;
    }
    return n;
}

// Fails if `souk down` alone is not enough, and says why.
Status no_job_lives(const Instance& i) {
    size_t all = 0;
    std::string where;
    for (const Daemon& d : i.nodes) {
        const auto n = jobs_of(d);
        if (!n)
            return fail("whether node " + d.name +
                        " has jobs that are not finished is not known (" + n.error().message + ")");
        if (*n == 0) continue;
        all += *n;
        where += (where.empty() ? "" : ", ") + d.name + ": " + std::to_string(*n);
    }
    if (all == 0) return {};
    return fail(CauseCode::not_possible, std::to_string(all) +
                                             (all == 1 ? " job is" : " jobs are") +
                                             " not finished (" + where + ")");
}

// Every node leaves the market, and its guests, which have nowhere to go, are frozen. Takes down
// what was off for it.
Status put_to_rest(const Instance& i, MarketShape& shape) {
    const std::string market = i.market.dir + "/marketd.sock";
    TRY(asked(market, "list-jobs", {"state=run"}));  // it answers
    for (const Daemon& d : i.nodes) {
        TRY_ASSIGN(const Json status, asked(agent_socket(d), "provider-status"));
        if (!status.value("on_market", false)) continue;
        shape.off.push_back(d.name);
        // before: whatever happens now, the next `souk up` brings it back
        TRY(save_shape(i.state, shape));
        TRY(asked(agent_socket(d), "provider-market", {"off"}));
    }
    // A freeze takes as long as the job's memory; nobody tells its end on this socket.
    const Nanos limit = monotonic_now() + rest_limit;
    for (;;) {
        TRY_ASSIGN(const Json jobs, asked(market, "list-jobs", {"state=live"}));
        std::string awake;
        for (const Json& j : jobs)
            if (j.value("status", "") == "run" || j.contains("going_to"))
                awake += " " + j.value("id", "?");
        if (awake.empty()) return {};
        if (monotonic_now() >= limit)
            return fail(CauseCode::not_possible,
                        "these jobs cannot be frozen:" + awake + " (marketctl job ID says why)");
        const timespec pause = to_timespec(rest_pause);
        ::nanosleep(&pause, nullptr);
    }
}

// The market goes as it was if it is not taken down after all.
void wake_up(const Instance& i, MarketShape& shape) {
    for (const std::string& name : shape.off)
        for (const Daemon& d : i.nodes)
            if (d.name == name) (void)asked(agent_socket(d), "provider-unset", {"market"});
    shape.off.clear();
    (void)save_shape(i.state, shape);
}

// The supervisor takes down what runs, or what it left is taken down here.
Status end_all(const Instance& i) {
    std::vector<std::string> note;
    if (const Pidfd supervisor = open_process(i.supervisor)) {
        TRY(supervisor.signal(SIGTERM));
        const auto gone = supervisor.exited_within(supervisor_limit);
        if (!gone || !*gone)
            return fail("the supervisor, pid " + std::to_string(supervisor.pid()) +
                        ", does not end");
    }
    TRY_ASSIGN(const auto left, load_instance(i.run));
    if (left)
        demolish(*left, note);
    else
        end_daemons(i, note);
    if (note.empty()) return {};
    for (const std::string& line : note) complain(line);
    return fail("something is left of the market in " + i.run + "; run souk down again");
}

int forget_kept(const std::string& run, bool force) {
    const std::string state = state_root(run);
    const auto kept = load_shape(state);
    if (kept && !*kept) return complain(CauseCode::not_found, "no market is up in " + run);
    if (!force)
        return complain(CauseCode::not_possible,
                        "no market is up in " + run + "; one is kept in " + state +
                            ": souk up takes it again, souk down --force removes it");
    if (!kept) return complain(kept.error());
    Instance i;
    i.run = run;
    i.state = state;
    i.market.state = state + "/market";
    for (const NodeOptions& n : (*kept)->nodes) {
        Daemon d;
        d.state = state + "/" + n.name;
        i.nodes.push_back(d);
    }
    std::vector<std::string> note;
    remove_state(i, note);
    for (const std::string& line : note) complain(line);
    if (note.empty()) std::puts("the market that was kept is removed");
    return note.empty() ? 0 : 1;
}

}  // namespace

int cmd_down(const std::string& run, const DownOptions& options) {
    if (::geteuid() != 0)
        return complain(CauseCode::not_allowed,
                        "down removes network namespaces and control groups: run it as root");
    const auto instance = load_instance(run);
    if (!instance) return complain(instance.error());
    if (!*instance) return forget_kept(run, options.force);
    const Instance& i = **instance;
    MarketShape shape;
    if (options.keep) {
        const auto kept = load_shape(i.state);
        if (!kept) return complain(kept.error());
        if (*kept) shape = **kept;
        if (!options.force) {
            if (auto rests = put_to_rest(i, shape); !rests) {
                wake_up(i, shape);
                return complain(rests.error().cause,
                                rests.error().message +
                                    "; nothing was taken down (--keep --force ends what runs, and "
                                    "keeps the state)");
            }
        }
    } else if (!options.force) {
        if (auto none = no_job_lives(i); !none)
            return complain(none.error().cause,
                            none.error().message +
                                ": souk down --keep freezes and keeps them for the next souk up, "
                                "--force ends them and removes the ledger and all state");
    }
    if (auto ended = end_all(i); !ended) return complain(ended.error());
    if (options.keep) {
        std::printf("the market is down; it is kept in %s: souk up takes it again\n",
                    i.state.c_str());
        return 0;
    }
    std::vector<std::string> note;
    remove_state(i, note);
    for (const std::string& line : note) complain(line);
    if (note.empty()) std::puts("the market is down");
    return note.empty() ? 0 : 1;
}

}  // namespace souk
