// SPDX-License-Identifier: GPL-2.0-or-later
// Home: the jobs submitted on this node. It alone decides who owns a running job. Pure: it is fed
// inputs by its shell and returns what to do, in the order persist, send, tell; the shell makes
// everything persisted durable before the first message of the same step leaves.
//
// A job has one owner, a (node, epoch), and at most one candidate (node, newer epoch) while it
// moves. The candidate becomes the owner by one durable write (`committed`); before it the source
// is told to resume, after it the source is told to kill, and never both. An epoch is used once,
// and is durable before a command carries it.
//
//   waiting --run--> starting --> running --run elsewhere--> moving --> running
//   running --suspend--> freezing --> frozen --run--> thawing --> running
//   running --suspend--> freezing --> frozen in place (it cannot be dumped) --run there--> running
//   any --> finished (its own end, a cancel, a program that cannot be executed)
//
// The decision is taken back only when the candidate is gone or the source says that it is not
// held, both before the candidate was told to run.
//
// Messages from a guest are levels, not edges: each states what is true of one (job, epoch), may
// repeat, and is asked for again (`query`) whenever a guest comes back. So are commands: each may
// be sent again, and is, until the guest says what it leads to.
//
// What the shell owes: the messages of one connection arrive in order; a connection that was
// replaced is read no more, on either side; `undelivered` only for a command no byte of which was
// ever handed to a connection.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "agentd/core/home_index.hpp"
#include "agentd/core/home_io.hpp"
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
    };
    Home(NodeName node, Limits limits);

    // Before anything else: a job read back from disk. `next_seq` follows from the largest id seen.
    void load(HomeJob job);
    // After the last load: a move that was not decided when the daemon ended is given up, the rest
    // gets its limits.
    void restarted(Nanos now, home::Outputs& out);

    // From tools. submit: the id is durable in the outputs before the caller answers.
    Result<JobId> submit(Submission s, Nanos now_unix, home::Outputs& out);
    // that the next submission gets, unless it is refused
    JobId next_id() const { return {node_, next_seq_}; }
    Status change(const JobId& id, const JobTerms& terms, Nanos now, home::Outputs& out);
    Status cancel(const JobId& id, Nanos now, home::Outputs& out);
    Status signal(const JobId& id, int32_t signal, home::Outputs& out);

    // From the market.
    void market_up(Nanos now, home::Outputs& out);  // a fresh connection: report every job
    void order(const Order& order, Nanos now, home::Outputs& out);
    void note(const JobNote& note, Nanos now, home::Outputs& out);
    void own_address(std::string address) {
        limits_.address = std::move(address), limits_.address_known = true;
    }
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
    void spliced(const JobId& id, const uint64_t output_end[2], uint64_t input_end,
                 home::Outputs& out);

    // Time limits; returns when it wants to be called again (never() if nothing waits).
    Nanos tick(Nanos now, home::Outputs& out);

    // Who hears of each step (kernel/base/trace.hpp); null: nobody. It outlives the machine.
    void tell_to(TraceListener* listener) { tracer_.tell_to(listener); }
    // Before each step: the time by which the steps of stories are told.
    void set_unix_time(Nanos unix_now) { unix_now_ = unix_now; }
    // What is held of one job right now: keys and values of an open JSON object
    // (tools/common/replies.md).
    void describe(const JobId& id, Nanos now, JsonWriter& j) const;
    const HomeJob* find(const JobId& id) const;
    // What it has cost by the price that the market told last; exact where nothing has run since.
    static Money cost(const HomeJob& job, Nanos now);
    static Nanos run_time(const HomeJob& job, Nanos now);  // with the present stretch
    // The job that this user submitted with this token (a request that is sent again); newest
    // first.
    const HomeJob* find_token(uint32_t uid, uint64_t token) const;
    const std::map<uint64_t, HomeJob>& jobs() const { return jobs_; }
    // When whatever of it was told to run on another node is sure to stand still, if nothing more
    // is heard from there; never() if that is not known or leads to nothing.
    Nanos lease_due(const HomeJob& job) const;
    // Guests that the home needs a connection to now.
    std::vector<NodeName> guests_needed() const;
    bool needs_guest(const NodeName& node) const { return !index_.of_guest(node).empty(); }
    // Of such a guest: where it is.
    std::optional<Peer> peer_of(const NodeName& node) const;

  private:
    // What is known of a job only while this process lives.
    struct Volatile {
        Nanos deadline = Nanos::never();  // of the present step
        // the owner of the node where this epoch runs wants it to leave
        Epoch expelled;
        Nanos expel_at = Nanos::never();  // freeze it then, unless an order has moved it
        uint32_t expel_tries = 0;
        Nanos frozen_since = Nanos::never();  // of a move: when the source froze it
        MoveForecast forecast;                // of that move, by its source
        // of a move: when the destination first said that it runs
        Nanos running_at = Nanos::never();
        // of a move: its parts
        Nanos sent_at = Nanos::never(), held_at = Nanos::never(), released_at = Nanos::never();
        Nanos unproven_since = Nanos::never();  // it ran on since then, if its node says that it
                                                // runs: this daemon was away
        // the newest order that came while a step was under way
        std::optional<Order> pending;
        std::vector<int32_t> signals;  // that came while it could not take them
        bool source_ready = false, destination_ready = false;
        bool source_stands = false;  // of a move: frozen for it, until this home says otherwise
        bool stopped = false;
        std::string cannot_move;  // where it runs, or stands, now
        bool immovable_told = false;
        std::string refused;            // it is being ended, as it must be able to move
        int32_t pid = 0, pid_told = 0;  // of `pid_epoch`
        Epoch pid_epoch;
        Money warned;             // the budget of which it was said that it ends soon
        bool day_warned = false;  // of the end of its user's day
        // it was frozen for its budget or its user's day, which may fail: not again before
        Nanos budget_again{INT64_MIN / 2};
        std::string spent;                  // which of them, for people
        Nanos cpu_told;                     // the CPU time that the market knows of
        Nanos save_at = Nanos::never();     // the next checkpoint is due
        Nanos save_limit = Nanos::never();  // of the one that is being made
        std::string save_trouble;           // why the last one failed
        // its lease is over, and nothing could be done: counted from that heartbeat
        Nanos lease_told = Nanos::never();
    };

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

    HomeJob* mutable_job(const JobId& id);
    Volatile& vol(const HomeJob& job) { return volatile_[job.id.seq]; }
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
    JobReport report_of(const HomeJob& job, Nanos now) const;
    Result<Ipv4> free_address() const;
    // A job that does not say how much memory it needs.
    void give_default_memory(JobTerms& terms) const {
        if (terms.memory_mb > 0 || limits_.memory_default_mb == 0) return;
        terms.memory_mb = limits_.memory_default_mb;
        terms.memory_by_default = true;
    }
    void persist(const HomeJob& job, home::Outputs& out, Durable when = Durable::now) const {
        out.push_back(home::Persist{job, when});
    }
    void report(const HomeJob& job, Nanos now, home::Outputs& out) const;
    void send(const Peer& peer, const JobId& id, Epoch epoch, GuestVerb verb,
              home::Outputs& out) const;
    void send_with_spec(const HomeJob& job, const Peer& peer, Epoch epoch, GuestVerb verb,
                        home::Outputs& out) const;

    void take(HomeJob& job, const Order& order, Nanos now, home::Outputs& out);
    void start(HomeJob& job, const Order& order, Nanos now, home::Outputs& out);
    void move(HomeJob& job, const Order& order, Nanos now, home::Outputs& out);
    void freeze(HomeJob& job, Nanos now, home::Outputs& out);
    // a step ended: report, then what waited for it
    void steady(HomeJob& job, Nanos now, home::Outputs& out);
    // home_story.cpp
    StoryStep step_of(StoryStep::What what, const NodeName& node = {}, std::string why = {},
                      Money price = {}) const;
    StoryStep moved_step(const HomeJob& job, const NodeName& from, Nanos pause, Nanos now);
    void fail_order(HomeJob& job, const NodeName& node, const std::string& why, home::Outputs& out);
    void end_by_cancel(HomeJob& job, Nanos now, home::Outputs& out);

    void ship_when_ready(HomeJob& job, Nanos now, home::Outputs& out);
    void send_ship(const HomeJob& job, home::Outputs& out) const;
    void abort_move(HomeJob& job, NodeName blame, const std::string& why, Nanos now,
                    home::Outputs& out);
    void commit_move(HomeJob& job, Nanos now, home::Outputs& out);
    void source_is_off(HomeJob& job, Nanos now, home::Outputs& out);
    void arrived(HomeJob& job, Nanos now, home::Outputs& out);
    void roll_back(HomeJob& job, const std::string& why, bool source_dead, Nanos now,
                   home::Outputs& out);
    bool source_died(const HomeJob& job) {
        return job.step == MoveStep::release && !vol(job).source_stands;
    }
    void frozen_instead(HomeJob& job, int64_t image_bytes, Nanos now, home::Outputs& out);
    static void tell_started(const HomeJob& job, home::Outputs& out);
    void became_standing(HomeJob& job, const GuestEvent& event, Nanos now, home::Outputs& out);
    void go_on_in_place(HomeJob& job, Nanos now, home::Outputs& out);
    void note_movable(HomeJob& job, const GuestEvent& event, Nanos now, home::Outputs& out);
    void became_frozen(HomeJob& job, int64_t image_bytes, Nanos now, home::Outputs& out);
    void finish(HomeJob& job, int32_t wait_status, const std::string& why, Nanos now,
                home::Outputs& out);
    void ended(HomeJob& job, const GuestEvent& e, Nanos now, home::Outputs& out);
    void program_lacks(HomeJob& job, const GuestEvent& event, Nanos now, home::Outputs& out);
    void give_up(HomeJob& job, Nanos now, home::Outputs& out);
    void back_to_waiting(HomeJob& job, const std::string& why, Nanos now, home::Outputs& out);
    void lost(HomeJob& job, Nanos now, home::Outputs& out);
    void go_back(HomeJob& job, const std::string& why, Nanos now, home::Outputs& out);
    Nanos checkpoint_every(const HomeJob& job) const;
    void arm_checkpoint(const HomeJob& job, Nanos now);
    void begin_checkpoint(HomeJob& job, Nanos now, home::Outputs& out);
    void end_saving(HomeJob& job, home::Outputs& out);
    void saving_failed(HomeJob& job, const std::string& why, Nanos now, home::Outputs& out);
    void from_keeper(HomeJob& job, const GuestEvent& event, Nanos now, home::Outputs& out);
    void drop_checkpoint(HomeJob& job, home::Outputs& out);
    static bool same(const Peer& at, Epoch epoch, const Checkpoint& c) {
        return c.epoch.n > 0 && at.node == c.at.node && epoch == c.epoch;
    }
    void killed(HomeJob& job, const std::string& why, Nanos now, home::Outputs& out);
    struct Dues {
        Nanos budget = Nanos::never(), day = Nanos::never();
    };
    Dues money_dues(const HomeJob& job) const;
    Nanos money_due(const HomeJob& job) const {
        return std::min(money_dues(job).budget, money_dues(job).day);
    }
    void money_ends(HomeJob& job, Nanos now, home::Outputs& out);
    // home_lease.cpp
    void note_lease(HomeJob& job, const NodeName& node, const GuestEvent& event, Nanos now,
                    home::Outputs& out);
    Nanos heard_from(const NodeName& node) const;
    void lease_over(HomeJob& job, Nanos now, home::Outputs& out);
    Nanos stood_from(const HomeJob& job) const;
    void end_stretch(HomeJob& job, Nanos now) const;
    void node_gone(HomeJob& job, const std::string& why, Nanos now, home::Outputs& out);
    static int64_t seconds_until(const HomeJob& job, Money spent, Nanos now);
    void budget_ends(HomeJob& job, Nanos now, home::Outputs& out);
    void day_ends(HomeJob& job, Nanos now, home::Outputs& out);
    void take_day(HomeJob& job, const JobNote& note);
    static void tally_cpu(HomeJob& job, const GuestEvent& event);
    void start_clock(HomeJob& job, Nanos now) const;
    static void stop_clock(HomeJob& job, Nanos now);
    static void forget_stretch(HomeJob& job);
    static void fold_clock(HomeJob& job, Nanos now);
    void prove_clock(HomeJob& job, const GuestEvent& event, Nanos now);
    void add_place(HomeJob& job) const;
    void arm_expel(const HomeJob& job, Nanos now);
    void send_signals(const HomeJob& job, home::Outputs& out);
    static void add_orphan(HomeJob& job, const Peer& peer, Epoch epoch);

    void owner_starting(HomeJob& job, const GuestEvent& event, Nanos now, home::Outputs& out);
    void owner_running(HomeJob& job, const GuestEvent& event, Nanos now, home::Outputs& out);
    void owner_freezing(HomeJob& job, const GuestEvent& event, Nanos now, home::Outputs& out);
    void owner_frozen(HomeJob& job, const GuestEvent& event, Nanos now, home::Outputs& out);
    bool owner_standing(HomeJob& job, const GuestEvent& event, Nanos now, home::Outputs& out);
    void source_of_move(HomeJob& job, const GuestEvent& event, Nanos now, home::Outputs& out);
    void source_when_decided(HomeJob& job, const GuestEvent& event, Nanos now, home::Outputs& out);
    void candidate(HomeJob& job, const GuestEvent& event, Nanos now, home::Outputs& out);
    void stranger(HomeJob* job, const NodeName& node, const GuestEvent& event, home::Outputs& out);
    void overdue(HomeJob& job, Nanos now, home::Outputs& out);
    void trim_finished(home::Outputs& out);

    Tracer tracer_;
    Nanos unix_now_;
    NodeName node_;
    Limits limits_;
    uint64_t next_seq_ = 1;
    bool market_is_up_ = false;
    std::map<uint64_t, HomeJob> jobs_;
    std::map<uint64_t, Volatile> volatile_;
    HomeIndex index_;
    std::vector<uint64_t> finished_;  // settled, oldest first
    // when its last heartbeat was answered, or from when on it counts
    std::map<NodeName, Nanos> heard_;
    Nanos began_;                // this process
    std::set<NodeName> silent_;  // not heard from since a lease there was over
};

}  // namespace souk
