// SPDX-License-Identifier: GPL-2.0-or-later
// Home: the jobs submitted on this node. It alone decides who owns a running job. Pure: it is fed
// inputs by its shell and returns what to do, in the order persist, send, tell; the shell makes
// everything persisted durable before the first message of the same step leaves.
//
// A job has one owner, a (node, epoch), and at most one candidate (node, newer epoch) while it
// moves. The candidate becomes the owner by one durable write (`commit`); before it the source is
// told to resume, after it the source is told to kill, and never both. An epoch is used once, and
// is durable before a command carries it.
//
//   waiting --run--> starting --> running --run elsewhere--> moving --> running
//   running --suspend--> freezing --> frozen --run--> thawing --> running
//   running --suspend--> freezing --> frozen in place (it cannot be dumped) --run there--> running
//   any --> finished (its own end, a cancel, a program that cannot be executed)
//
// Messages from a guest are levels, not edges: each states what is true of one (job, epoch), may
// repeat, and is asked for again (`query`) whenever a guest comes back. So are commands: each may
// be sent again, and is, until the guest says what it leads to.
//
// What the shell owes: the messages of one connection arrive in order; a connection that was
// replaced is read no more, on either side; `undelivered` only for a command no byte of which was
// ever handed to a connection.
//
// Home is put together from machines of their own, each in the header of its name. They do not know
// each other but for what a signature says, and Home puts their steps in order:
//
//   HomeRecords      the jobs' records, by id, by due time and by guest; ids and addresses; orphans
//   HomeOrders       what an order or a note of the market means; the order that waits
//   HomeRuns         a job at its owner: start, freeze, what its node says of it
//   HomeMoves        the steps of a move or thaw, and the way back
//   HomeCheckpoints  when one is due, how it is made, which is the last whole one
//   HomeEvacuations  whose image comes home as its node's owner wants it gone
//   HomeClaims       what a node may say of a job, at most
//   HomeClock        how long it has run, and what that costs
//   HomeBudget       when what it may cost ends
//   HomeLeases       until when it may run without this home
//   HomeExpels       when it is frozen for the owner of its node
//   HomeWakes        how many frozen jobs wake at one time, and whose turn it is
//   HomeSignals      signals that wait until it can take them
//   HomeEnds         how long one that is cancelled may take to end
//   HomeGroups       jobs that wait for others of this home
//   HomeGangs        jobs of several components: started, cancelled and ended as one
//   HomeCuts         and frozen at one cut
//   HomeSets         and checkpoints of them, made at one cut
//   HomeDoubts       whose end may come of another one's loss
//   HomeReports      how it is, for the market
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agentd/core/home_budget.hpp"
#include "agentd/core/home_checkpoints.hpp"
#include "agentd/core/home_claims.hpp"
#include "agentd/core/home_clock.hpp"
#include "agentd/core/home_cuts.hpp"
#include "agentd/core/home_doubts.hpp"
#include "agentd/core/home_ends.hpp"
#include "agentd/core/home_evacuations.hpp"
#include "agentd/core/home_expels.hpp"
#include "agentd/core/home_gangs.hpp"
#include "agentd/core/home_groups.hpp"
#include "agentd/core/home_io.hpp"
#include "agentd/core/home_leases.hpp"
#include "agentd/core/home_moves.hpp"
#include "agentd/core/home_orders.hpp"
#include "agentd/core/home_records.hpp"
#include "agentd/core/home_reports.hpp"
#include "agentd/core/home_runs.hpp"
#include "agentd/core/home_sets.hpp"
#include "agentd/core/home_signals.hpp"
#include "agentd/core/home_wakes.hpp"
#include "kernel/base/time.hpp"
#include "kernel/base/trace.hpp"
#include "market/core/messages.hpp"

namespace souk {

class Home {
  public:
    struct Limits {
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
        // of a budget, or what is left of it lasts for no longer than warn_span: a warning
        int64_t warn_permille = 100;
        Nanos warn_span = Nanos::from_s(60);
        Nanos checkpoint_every = {};  // of jobs that do not say; 0: never
        std::string address = {};     // of this node, where checkpoints come to
        bool address_known = true;    // other nodes reach it there; else own_address tells it later
        // of this machine, another after each; 0: not known, and a restart forgets stretches
        uint64_t boot = 0;
        int64_t memory_default_mb = 0;  // of jobs that do not say; 0: none
        // of jobs from now on, on other nodes (lease.hpp); 0: none
        Nanos lease = Nanos::from_s(600);
        Nanos grace = {};  // of jobs that do not say (JobSpec); 0: a cancel ends them at once
        WakeRule wake = WakeRule::all;
    };
    Home(const NodeName& node, Limits limits);

    // Before anything else: a job read back from disk. `next_seq` follows from the largest id seen.
    void load(HomeJob job);
    // The record of the job with this number cannot be read. Its number is not used again, and
    // where it runs or lies it stays as it is: nothing is told or asked of it.
    void set_aside(uint64_t seq) { records_.set_aside(seq); }
    // After the last load: a move that was not decided when the daemon ended is given up, the rest
    // gets its limits.
    void restarted(Nanos now, home::Outputs& out);

    // From tools. submit: the id is durable in the outputs before the caller answers.
    Result<JobId> submit(Submission s, Nanos now_unix, home::Outputs& out);
    // that the next submission gets, unless it is refused
    JobId next_id() const { return records_.next_id(); }
    Status change(const JobId& id, const JobTerms& terms, Nanos now, home::Outputs& out);
    Status cancel(const JobId& id, Nanos now, home::Outputs& out);
    Status signal(const JobId& id, int32_t signal, home::Outputs& out);

    // From the market.
    void market_up(Nanos now, home::Outputs& out);  // a fresh connection: report every job
    void order(const Order& order, Nanos now, home::Outputs& out);
    void note(const JobNote& note, Nanos now, home::Outputs& out);
    void own_address(std::string address) { checkpoints_.own_address(std::move(address)); }
    // What may change while it runs: memory_default_mb, of jobs that come from now on, and wake.
    void configured(const Limits& limits);
    // Of this node, now; those that wait for it wake at the next tick.
    void free_memory(int64_t bytes) { wakes_.free_memory(bytes); }
    // Likewise, where images come to.
    void free_disk(int64_t bytes) { evacuations_.free_disk(bytes); }
    // until market_up this node itself sees to it that no job outruns its budget
    void market_down();

    // From guests.
    // a fresh connection: ask what is there
    void guest_up(const NodeName& node, Nanos now, home::Outputs& out);
    void guest_event(const NodeName& node, const GuestEvent& event, Nanos now, home::Outputs& out);
    // The command never left this node (no connection could be made): the step goes back if it can.
    void undelivered(const NodeName& node, const GuestCommand& command, Nanos now,
                     home::Outputs& out);
    void expel(const NodeName& node, const Expel& expel, Nanos now, home::Outputs& out);
    void heartbeat(const NodeName& node, const Heartbeat& heartbeat, Nanos now, home::Outputs& out);

    // It will not come back, or not with what it had: an operator's word. Nothing that ran there
    // may run any more.
    void node_lost(const NodeName& node, Nanos now, home::Outputs& out);
    // As long are the job's streams here, and so much of its input it has been given in all.
    // `files`: what is to be said of its files, which are as they are to be.
    void spliced(const JobId& id, const uint64_t output_end[2], uint64_t input_end,
                 const std::string& files, Nanos now, home::Outputs& out);
    // As much of its files was asked for from other nodes, in all; `waits`: why it is not reached.
    void files_used(const JobId& id, const FilesUse& use, Nanos now, home::Outputs& out);

    // Time limits; returns when it wants to be called again (never() if nothing waits).
    Nanos tick(Nanos now, home::Outputs& out);

    // Who hears of each step (kernel/base/trace.hpp); null: nobody. It outlives the machine.
    void tell_to(TraceListener* listener) { tracer_.tell_to(listener); }
    // Before each step: the time by which the steps of stories are told.
    void set_unix_time(Nanos unix_now) { unix_now_ = unix_now; }
    // What is held of one job right now: keys and values of an open JSON object
    // (tools/common/replies.md).
    void describe(const JobId& id, Nanos now, JsonWriter& j) const;
    const HomeJob* find(const JobId& id) const { return records_.find(id); }
    // What it has cost by the price that the market told last; exact where nothing has run since.
    static Money cost(const HomeJob& job, Nanos now) { return HomeClock::cost(job, now); }
    // With the present stretch.
    static Nanos run_time(const HomeJob& job, Nanos now) { return HomeClock::run_time(job, now); }
    // The job that this user submitted with this token (a request that is sent again); newest
    // first.
    const HomeJob* find_token(uint32_t uid, uint64_t token) const {
        return records_.find_token(uid, token);
    }
    const std::map<uint64_t, HomeJob>& jobs() const { return records_.all(); }
    // When whatever of it was told to run on another node is sure to stand still, if nothing more
    // is heard from there; never() if that is not known or leads to nothing.
    Nanos lease_due(const HomeJob& job) const { return leases_.due(job); }
    // Guests that the home needs a connection to now.
    std::vector<NodeName> guests_needed() const { return records_.guests_needed(); }
    bool needs_guest(const NodeName& node) const { return !records_.of_guest(node).empty(); }
    // Of such a guest: where it is.
    std::optional<Peer> peer_of(const NodeName& node) const { return records_.peer_of(node); }

  private:
    // One input: the turn that the machines are handed.
    struct Step {
        Step(const Home& home, Nanos now, home::Outputs& out)
            : reports(home.runs_, home.checkpoints_, home.clock_, home.groups_, home.gangs_,
                      home.records_, home.evacuations_),
              turn{now, home.unix_now_, home.node_, home.limits_.boot, reports, out} {}
        Step(const Step&) = delete;
        HomeReports reports;
        HomeTurn turn;
    };
    // Keeps the index true of one job: made where a step begins, it looks at the job where the step
    // ends.
    class Reindex {
      public:
        Reindex(Home& home, uint64_t seq) : home_(home), seq_(seq) {}
        ~Reindex() { home_.reindex(seq_); }
        Reindex(const Reindex&) = delete;

      private:
        Home& home_;
        uint64_t seq_;
    };
    void reindex(uint64_t seq);
    Nanos due_of(const HomeJob& job) const;
    void tick(HomeJob& job, const HomeTurn& turn);

    // home_trace.cpp
    using Input = home::Input;
    friend class TraceScene<Home, home::Outputs>;
    using Scene = TraceScene<Home, home::Outputs>;
    static TraceLine trace_in(Input input, const JobId& id = {}, Epoch epoch = {},
                              const NodeName& node = {}, std::string why = {});
    static TraceLine trace_order(const Order& order);
    static TraceLine trace_event(const NodeName& node, const GuestEvent& event);
    static TraceLine trace_of(const home::Output& output);
    void trace_state(const JobId& id, Epoch epoch);

    // A job that does not say how much memory it needs.
    void give_default_memory(JobTerms& terms) const;
    void hear(const NodeName& node, const GuestEvent& told, const HomeTurn& turn);
    void ask(const HomeJob& job, const NodeName& node, const HomeTurn& turn) const;

    // home_steps.cpp: what more than one machine has a part in
    void carry_out(const Order& order, Nanos now, home::Outputs& out);
    void wake(Nanos now, home::Outputs& out);
    void evacuate(Nanos now, home::Outputs& out);
    void take(HomeJob& job, const Order& order, const HomeTurn& turn);
    // stands: where that can be, it is only stopped where it runs.
    void freeze(HomeJob& job, const HomeTurn& turn, bool stands = false);
    void cancel(HomeJob& job, const HomeTurn& turn);
    void conclude(HomeJob& job, const HomeNext& next, const HomeTurn& turn);
    void steady(HomeJob& job, const HomeTurn& turn);
    void end_by_cancel(HomeJob& job, const HomeTurn& turn);
    void became_frozen(HomeJob& job, int64_t image_bytes, const HomeTurn& turn);
    void became_standing(HomeJob& job, const Trouble& cannot_move, const HomeTurn& turn);
    void finish(HomeJob& job, int32_t wait_status, const Trouble& why, const HomeTurn& turn);
    void killed(HomeJob& job, const Trouble& why, const HomeTurn& turn);
    void go_back(HomeJob& job, const Trouble& why, const HomeTurn& turn);
    void lease_over(HomeJob& job, const HomeTurn& turn);
    void node_gone(HomeJob& job, const Trouble& why, const HomeTurn& turn);
    void forget(uint64_t seq);
    void free_others(const HomeJob& ended, const HomeTurn& turn);

    // home_gang_steps.cpp: what the step of one component means for the others
    void cancel_all(HomeJob& job, const HomeTurn& turn);
    void release_if_all_held(HomeJob& job, const HomeTurn& turn);
    void take_others_back(HomeJob& job, const HomeTurn& turn);
    void not_in_time(HomeJob& job, const HomeTurn& turn);
    void end_others(const HomeJob& ended, const HomeTurn& turn);
    void restarted_gang(HomeJob& job, const HomeTurn& turn);

    // home_gang_cuts.cpp: a gang is frozen at one cut, and thaws as one
    bool begin_cut(HomeJob& job, const HomeTurn& turn);
    bool join_cut(HomeJob& job, const HomeTurn& turn);
    void hear_in_cut(HomeJob& job, const GuestEvent& event, const HomeTurn& turn);
    void go_on_with_cut(uint64_t gang, const HomeTurn& turn);
    void decide_cut(uint64_t gang, const HomeTurn& turn);
    void give_up_cut(const HomeJob& of, const HomeJob* failed, const Trouble& why,
                     const HomeTurn& turn);
    void not_frozen(HomeJob& job, const Trouble& why, const HomeTurn& turn);
    void cut_overdue(HomeJob& job, const HomeTurn& turn);
    void thaw_if_all_held(HomeJob& job, const HomeTurn& turn);
    void take_thaw_back(HomeJob& job, const HomeTurn& turn);
    bool thaw_goes_on(const HomeJob& job) const;
    void restarted_cut(HomeJob& job, const HomeTurn& turn);

    // home_gang_saves.cpp: a checkpoint of all is made at one cut
    void set_due(HomeJob& job, const HomeTurn& turn);
    void begin_set(HomeJob& job, const HomeTurn& turn);
    bool hear_in_set(HomeJob& job, const GuestEvent& event, const HomeTurn& turn);
    void keeper_in_set(HomeJob& job, const GuestEvent& event, const HomeTurn& turn);
    void go_on_with_set(uint64_t gang, const HomeTurn& turn);
    void tell_set(HomeSets::Set& set, HomeSets::Step step, const HomeTurn& turn);
    void set_is_whole(uint64_t gang, const HomeTurn& turn);
    void give_up_set(uint64_t gang, const HomeTurn& turn);
    void drop_set(const HomeJob& job, const HomeTurn& turn);
    void restarted_set(HomeJob& job, const HomeTurn& turn);
    void end_saving(HomeJob& job, const HomeTurn& turn);

    // home_gang_back.cpp: one is lost, and all go back
    static Cause all_go_back();
    bool may_go_back(const HomeJob& job) const;
    void others_go_back(HomeJob& job, const HomeTurn& turn);
    void back_with_others(HomeJob& job, const HomeTurn& turn);
    bool goes_on_back(HomeJob& job, const HomeTurn& turn);
    void is_back(HomeJob& job, const Trouble& why, const HomeTurn& turn);
    bool is_ended_again(const HomeJob& job, const GuestEvent& event, const HomeTurn& turn);
    bool is_doubtful(HomeJob& job, const home::Finished& end, const HomeTurn& turn);
    void doubt_due(HomeJob& job, const HomeTurn& turn);
    void doubts_heard(const HomeJob& other, const HomeTurn& turn);

    Tracer tracer_;
    Nanos unix_now_;
    NodeName node_;
    Limits limits_;
    HomeRecords records_;
    HomeOrders orders_;
    HomeRuns runs_;
    HomeMoves moves_;
    HomeCheckpoints checkpoints_;
    HomeEvacuations evacuations_;
    HomeClaims claims_;
    HomeClock clock_;
    HomeBudget budget_;
    HomeLeases leases_;
    HomeExpels expels_;
    HomeWakes wakes_;
    HomeSignals signals_;
    HomeEnds ends_;
    HomeGroups groups_;
    HomeGangs gangs_;
    HomeCuts cuts_;
    HomeSets sets_;
    HomeDoubts doubts_;
    std::vector<uint64_t> ended_;  // whose end others still have to hear of
    bool freeing_ = false;
};

}  // namespace souk
