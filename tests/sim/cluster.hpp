// SPDX-License-Identifier: GPL-2.0-or-later
// Cluster: a deterministic simulator of the node agents. Several real Home, Guest and Provider
// machines run in one process on virtual time; around each is a shell that does what the daemon's
// shell does (persist, then send, then do), over a fake network, disk, CRIU and a toy market. One
// seed decides everything.
//
//   network  one connection from a home to each guest node: ordered within, delayed, broken at any
//            moment with what is in flight in part lost, noticed late by its ends; a newer
//            connection ends the older one at the guest
//   machines die with all that runs on them and what lies in their memory; they come back late, or
//            (one that is no home of jobs) never, and an operator may say that they are lost
//   disk     the daemons' own Journal (kernel/base/journal.hpp) over a simulated disk: a crash may
//            fall before and after each commit, and before each message or effect that it lets go;
//            the disk may be full for some time
//   effects  take time, fail in each phase, end half-done with the daemon; PID 1 or a job may end
//   market   orders at random (run anywhere, suspend, now and then abort), lost with its
//            connection; the real one keeps the books (book.hpp). With --booked there is no toy:
//            the real one gives the orders, and jobs ask for places for later, for limits of
//            their run time and for promised deadlines (booked.cpp, booked_watch.hpp)
//   owners   come and go, lend a share, and were promised when all is theirs again (promise.hpp);
//            what leaves while they are there goes at the rate of the seed (leave_watch.hpp); in
//            half of the runs all take their nodes back at the end: images go to their homes
//   hostile  a home shows tickets again, for other epochs, on other nodes, for other jobs
//   liars    as many nodes as are asked for say to homes, guests and the market what they like
//            (lies.cpp)
//
// Then everything is healed, and within bounded virtual time each job must have ended and nothing
// may be left over: no capsule, image, record or orphan. The invariants of world.hpp hold at every
// step, and more are checked here: an epoch names one (node, verb) for ever, what a home reports as
// a job's end is what the world saw.
//
// mutation.hpp has the deliberate bugs, each of which must be found.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <set>

#include "agentd/core/home.hpp"
#include "agentd/core/leave_pace.hpp"
#include "agentd/core/owner_returns.hpp"
#include "agentd/core/owner_use.hpp"
#include "agentd/core/provider.hpp"
#include "kernel/base/journal.hpp"
#include "kernel/base/rate_limit.hpp"
#include "kernel/base/rng.hpp"
#include "tests/sim/book.hpp"
#include "tests/sim/booked_watch.hpp"
#include "tests/sim/disk.hpp"
#include "tests/sim/leave_watch.hpp"
#include "tests/sim/mutation.hpp"
#include "tests/sim/promise.hpp"
#include "tests/sim/world.hpp"

namespace souk::sim {

// The part that fails in the one fault of Cluster::run_one_fault.
enum class Victim : uint8_t {
    source_agentd,
    destination_agentd,
    home_agentd,
    source_criu,
    destination_criu,
    source_link,       // between home and source
    destination_link,  // between home and destination
    transfer,          // what goes from the source to the destination
    source_pid1,
    destination_pid1,
    count_
};
const char* victim_name(Victim v);

// A step of a move in which that happens. `filling`: the destination runs, and not all of its
// memory has come.
enum class Moment : uint8_t { prepare, transfer, kill_old, release, filling, count_ };
const char* moment_name(Moment m);

// Selects the faults of a run by their number, to find the few with which it fails.
struct Faults {
    uint64_t max = UINT64_MAX;  // none from this one on
    std::set<uint64_t> without;
};
struct ClusterSize {  // 0: as the seed has it, a handful
    int64_t nodes = 0, jobs = 0;
    int64_t components = 0;  // of each job; 0: it is a job of its own
    int64_t liars = 0;       // so many of the nodes lie
    bool booked = false;     // the real market gives the orders
};

class Cluster {
  public:
    Cluster(uint64_t seed, Mutation mutation, bool trace, ClusterSize size = {},
            Faults faults = {});
    // Runs to the end or to the first violation, which it returns; empty: all is well.
    std::string run();
    // One job moves from n2 to n3, its home is n1, and in that step one thing fails, once: a daemon
    // or a link for 50 ms or for longer than any patience. Where the job is when all is quiet
    // again: 'S' runs at the source, 'D' at the destination, 'F' is frozen at the source (and then
    // thaws), 'E' has ended with its PID 1; '-': the step was over. Else what is wrong is in
    // `failure`.
    char run_one_fault(Moment moment, Victim victim, MoveForm form, bool fenced,
                       std::string& failure);
    const std::deque<std::string>& trace() const { return trace_; }

    struct Counts {
        uint64_t faults = 0;
        uint64_t checkpoints = 0, resumes = 0, deaths = 0, stands = 0;
        uint64_t released = 0, sets = 0, cut = 0, thawed = 0;  // components, with their gangs
        uint64_t returns = 0, pauses = 0, missed = 0;          // of owners
        uint64_t memory_wanted = 0;                            // by owners, of guests that stand
        // pieces that left while an owner was there: at his rate; faster, to be in time
        uint64_t paced = 0, hurried = 0;
        uint64_t in_time = 0, explained = 0;  // see LeaveWatch::Counts
        uint64_t evacuated = 0;               // images that came home
        uint64_t lies = 0;
        uint64_t limited = 0;  // jobs that were ended by their limits or with their places
        BookedWatch::Counts booked;
        uint64_t events = 0, crashes = 0, breaks = 0, moves = 0, freezes = 0, thaws = 0,
                 failed_moves = 0, jobs = 0, ended = 0, cancelled = 0, lost = 0;
    };
    Counts counts() const {
        Counts all = counts_;
        all.in_time = leave_watch_.counts().in_time;
        all.explained = leave_watch_.counts().explained;
        all.booked = booked_.counts();
        return all;
    }
    Nanos now() const { return now_; }

  private:
    using Call = std::function<void()>;
    struct Link {  // from a home to a guest node
        // as the home sees it
        enum class State : uint8_t { down, connecting, up } state = State::down;
        uint64_t gen = 0;                      // the newest connection
        uint64_t home_gen = 0, guest_gen = 0;  // the one that each end holds as current
        bool broken = false;                   // physically; the ends may not know yet
        Nanos cut_guest, cut_home;             // what arrives later is lost
        Nanos last_guest, last_home;           // arrival of the newest message, for order
        std::deque<GuestCommand> queue;
    };
    // Bytes that leave a node at a limited rate, and the call to make when all of them have left.
    struct Leave {
        uint64_t life = 0, token = 0, bytes = 0;  // 0: nothing holds it back
        std::function<bool()> is_taken;
        Call whole;
    };
    struct Send {
        uint64_t token = 0, left = 0;
        RateShare share;
    };
    // The steps of a node's machines, in the story of the run.
    struct NodeTrace final : TraceListener {
        Cluster& cluster;
        const NodeName node;
        NodeTrace(Cluster& c, NodeName name) : cluster(c), node(std::move(name)) {}
        void tell(const TraceLine& line) override { cluster.say(node, " ", souk::text(line)); }
    };
    struct Node {
        NodeName name;
        std::unique_ptr<NodeTrace> trace;
        bool up = false;
        uint64_t life = 0;
        std::unique_ptr<Home> home;
        std::unique_ptr<Guest> guest;
        std::optional<Provider> provider;
        std::map<NodeName, Link> links;  // to guest nodes
        Disk disk;
        Nanos full_until;                  // the disk
        std::unique_ptr<Journal> journal;  // of this life of the daemon
        bool flush_set = false;
        Nanos journal_at = Nanos::never();
        // jobs that go back in the step that is under way, each with its source; and those of them
        // whose records are not durable yet
        std::map<JobId, World::At> goes_back, back_when_durable;
        std::map<GuestKey, uint64_t> work;  // effects of an older number are called off
        std::map<GuestKey, uint64_t> dropped_checkpoints;  // how many, sent or not
        Nanos tick_at = Nanos::never();
        bool market_up = false;
        uint64_t market_gen = 0;
        Nanos last_from_market, last_to_market;
        bool dead = false;      // its machine, not only its daemon
        bool for_good = false;  // it never comes back
        int64_t clock_ppm = 0;  // how much faster its clock goes
        Nanos guest_tick_at = Nanos::never();
        uint64_t mark_found = 0;  // of tickets, on disk, as this life began
        // The time until which the owner is here, whatever any daemon knows.
        Nanos owner_until;
        // The limits that the kernel holds guests to. They stay in force while the daemon is down.
        bool lowered = false;
        int64_t milli_bound = 0;  // of a CPU, of all guests
        // The share that the daemon has told the owner is in force, in the numbers that he chose.
        // The share is in doubt while his order is not on disk; then none counts as in force.
        int32_t cpus_said = 0;  // 0: in doubt
        ShareSaid share_said;
        bool share_in_doubt = false, shared_ever = false;
        // These fields belong to this life of the daemon: its opinion of whether the owner is here.
        std::optional<OwnerUse> use;
        OwnerReturns returns;
        OwnerUse::Rung rung = OwnerUse::Rung::none;
        std::string rank_trouble;
        std::set<GuestKey> paused;  // told to stand for him
        Nanos use_at = Nanos::never(), return_at = Nanos::never(), frame_at = Nanos::never();
        LeavePace pace;
        RateLimit leave_rate;
        std::map<GuestKey, Send> sends;
        Nanos pace_at;  // it looks again
        // check_owners looks at it when anything here may have changed, and at that time.
        bool changed = false;
        Nanos check_at = Nanos::never();
    };
    struct MarketJob {
        JobReport report;
        uint64_t sent_seq = 0;
        bool settled = false;
    };

    // cluster.cpp: time, faults, the toy market, the checks at the end
    void after(Nanos delay, Call call);
    Nanos ms(int64_t lo, int64_t hi) { return Nanos::from_us(rng_.between(lo * 1000, hi * 1000)); }
    Nanos owner_ms(int64_t lo, int64_t hi) {
        return Nanos::from_us(owners_.between(lo * 1000, hi * 1000));
    }
    bool happens() {
        return counts_.faults++ < allowed_.max && !allowed_.without.contains(counts_.faults - 1);
    }
    bool fault(double p) { return faults_ && rng_.chance(p) && happens(); }
    // Draws how long an effect takes. With faults it is sometimes much longer.
    Nanos takes(const NodeName& name, int64_t lo_ms, int64_t hi_ms, int64_t slow_ms) {
        if (!fault(slow_chance_)) return ms(lo_ms, hi_ms);
        const Nanos span = ms(1'000, slow_ms);
        leave_watch_.trouble(name, now_ + span);
        return span;
    }
    // Draws whether an effect of CRIU or of a capsule on that node fails.
    bool fails(const NodeName& name) {
        if (criu_dies_on_ != name) {
            const bool is = fault(fail_chance_);
            if (is) leave_watch_.trouble(name, now_);
            return is;
        }
        criu_dies_on_.clear();
        return true;
    }
    template <class... Parts>
    void say(const Parts&... parts) {
        if (!tracing_) return;
        std::string line = std::to_string(now_.ns / 1000) + " us ";
        ((line += text(parts)), ...);
        trace_.push_back(std::move(line));
        if (trace_.size() > trace_max) trace_.pop_front();
    }
    static std::string text(const char* s) { return s; }
    static std::string text(const std::string& s) { return s; }
    static std::string text(const GuestKey& k) { return k.text(); }
    static std::string text(uint64_t n) { return std::to_string(n); }
    bool run_until(Nanos end);
    void submit_job();
    void submit_gang(Node& n, Submission s);
    void check_gang(const HomeJob& job);
    void check_cut(const HomeJob& job);
    void check_set(const HomeJob& job);
    bool order_gang(const JobId& id);
    void check_released(const GuestKey& key, bool stands);
    void random_fault();
    void random_owner();
    void machine_dies(Node& n);
    bool nobody_has(const std::vector<NodeName>& lacking) const;
    void operator_says_lost(const NodeName& name);
    void goes_back(const HomeJob& job);
    void gone_back(Node& n, const JobId& id);
    void random_user();
    void market_orders();
    void market_heal();
    void lift_budgets(Node& n);
    void market_send(const JobId& id, Order::Kind kind, bool stand = false);
    void home_takes(Node& n, const Order& order);
    void market_hears(const JobReport& report);
    void connect_market(Node& n);
    void disconnect_market(Node& n);
    void book_step();
    void market_restarts();
    void check_charges();
    void check_charge(const JobId& id, const MarketJob& job);
    std::string what_is_left();
    bool all_finished();

    // booked.cpp: the real market gives the orders
    void open_book();
    void ask_for_place(Submission& s);
    void submit_quiet_jobs();
    void wants_end(Node& n);
    void owner_lends_all(Node& n);
    void connect_book(Node& n);
    void market_leaves(Node& n, const ToMarket& message);
    void offer_changes(Node& n, const ProviderReport& offer);
    void market_says(const NodeName& name, const FromMarket& message);
    void order_comes(Node& n, const Order& order);
    void ends_by_limit(const HomeJob& job);
    void see_places();
    void look_at_place(const JobId& id);
    std::string excuse(const JobId& id, const market::Contract& place);
    Nanos calm_since() const;
    void judge_promises();

    // hostile.cpp: tickets, and who misuses them
    void give_ticket(Order& order);
    void give_ticket(Order& order, const NodeName& source);
    Warrant warrant_of(const GuestCommand& command) const;
    void overhear(const Node& guest, const GuestCommand& command, const guest::Outputs& out);
    void hostile_home();
    static bool is_remembered(const Node& guest, uint64_t life, uint64_t number);

    // lies.cpp
    bool is_liar(const NodeName& name) const;
    int64_t lied_number(int64_t usual_max);
    NodeName lied_node();
    void alter(GuestEvent& event);
    void lie();
    void lie_to_home(Node& n);
    void lie_to_guest(Node& n);
    void lie_to_market(Node& n);

    // owner.cpp: who owns the nodes, and what a daemon's shell does for them
    void owners_come_and_go();
    void owner_wants_memory(Node& n);
    void owner_comes(const NodeName& name, Nanos stays);
    void owner_signs(const NodeName& name);
    void owner_says(Node& n);
    void owner_shares(Node& n);
    std::string check_share(const Node& n, bool late, Nanos& again);
    void owners_are_gone();
    void boot_owner(Node& n);
    void find_presence(Node& n);
    void owner_used(Node& n);
    void see_presence(Node& n);
    void have_rung(Node& n);
    void rank_guests(Node& n);
    void bound_guests(Node& n);
    void see_return(Node& n);
    void keep(Node& n, const OwnerReturns::News& news);
    OwnerReturns::Guests guests_now(const Node& n) const;
    void pause(Node& n, const GuestKey& key, bool on);
    void run_or_pause(const World::At& at);
    void arm_provider(Node& n);
    void check_owners();
    void check_owner(Node& n);

    // leaving.cpp: how fast guests leave
    void choose_rate();
    LeavePace::Left to_leave(const Node& n) const;
    void pace_leaving(Node& n);
    void leaves(const NodeName& name, const GuestKey& key, Leave leave);
    void send_on(const NodeName& name, const GuestKey& key, const std::shared_ptr<Leave>& leave);
    uint64_t held_back(const guest::Do& d) const {  // how much of it is
        return d.no_hurry ? static_cast<uint64_t>(world_.truths.at(d.key.id).memory_mb) << 20 : 0;
    }
    void piece_left(const Node& n, const GuestKey& key, uint64_t bytes);

    // evacuations.cpp: frozen jobs that wake, and images that go home
    void check_wakes(const Node& n);
    void check_evacuations(const Node& n);
    void note_evacuated(const Node& n, const HomeJob& job);
    void drop_too_early(Node& n, const GuestCommand& command);
    bool owners_take_all_back();

    // fault_table.cpp: one move, one fault
    bool at_moment(Moment moment, const JobId& id) const;
    void strike(Victim victim, const JobId& id);
    void order_to(const JobId& id, const NodeName& node);

    // node.cpp: the shell of a daemon
    Node& node(const NodeName& name);
    void boot(Node& n);
    void crash(Node& n);
    Guest::Found found(Node& n, const GuestJob& job);
    void home_step(Node& n, const std::function<void(Home&, home::Outputs&)>& step);
    void guest_step(Node& n, const std::function<void(Guest&, guest::Outputs&)>& step);
    void provider_step(Node& n, const std::function<void(Provider&, provider::Outputs&)>& step);
    // Comes and goes: from nothing to five images.
    int64_t free_memory() const { return now_.ns / 1'000'000'000 % 11 << 20; }
    // The disk is full as rarely as memory. Then images stay where they are.
    int64_t free_disk() const {
        return faults_ && now_.ns / 1'000'000'000 % 13 < 2 ? 0 : int64_t{1} << 30;
    }
    // A deliberate bug changes the record on its way.
    void persist_home(Node& n, home::Output& o);
    void persist_guest(Node& n, guest::Output& o);
    void say_home(Node& n, const home::Output& o);
    void command_leaves(Node& n, const Peer& peer, const GuestCommand& command);
    void say_guest(Node& n, const guest::ToHome& m);
    // journal.cpp: what a step persists, and what it lets go
    void open_journal(Node& n);
    void let_go(Node& n, Call call);
    void arm(Node& n);
    void flush(Node& n);
    void became_durable(Node& n, const RecordName& name, const std::string& value);
    static std::map<GuestKey, GuestJob> guest_records(const Node& n);
    static std::vector<HomeJob> home_records(const Node& n);
    static std::optional<HomeJob> home_record(const Node& n, const JobId& id);
    void check_end(const HomeJob& job);
    void check_checkpoint(const Node& n, const HomeJob& job);
    void schedule_tick(Node& n);
    // Leases: a node's own clock, and when that shows a time.
    Nanos local(const Node& n) const { return now_ + Nanos{now_.ns / 1'000'000 * n.clock_ppm}; }
    void at_local(const NodeName& name, Nanos at, Call call);
    void schedule_guest_tick(Node& n, Nanos next);
    void deadline(const NodeName& name, const GuestKey& key, Nanos until);
    void keep_lease(Node& n, const guest::Do& d);
    void thaw(const World::At& at);
    void criu_dies_with(const Node& n);
    bool past_lease(const World::At& at);
    void born_stopped(const World::At& at);
    void stop_past_lease(const World::At& at);
    void leases_are_over(Node& n);
    void partition(const NodeName& a, const NodeName& b);
    WallTime wall() const;

    // network.cpp
    Link& link(const NodeName& home, const NodeName& guest) { return link(node(home), guest); }
    static Link& link(Node& home, const NodeName& guest) { return home.links[guest]; }
    void to_guest(Node& home, const Peer& peer, const GuestCommand& command);
    using ToGuest = std::variant<GuestCommand, Heartbeat>;
    void to_home(Node& guest, const NodeName& home, const guest::HomeWord& message);
    void transmit(Node& home, const NodeName& guest, const ToGuest& message);
    void connect(const NodeName& home, const NodeName& guest);
    void connected(const NodeName& home, const NodeName& guest, uint64_t gen);
    void break_link(const NodeName& home, const NodeName& guest);
    void guest_notices(const NodeName& home, const NodeName& guest, Nanos delay);
    void keep_connected(Node& home);
    void check_epoch(const GuestCommand& command, const NodeName& guest);

    // effects.cpp
    void effect(Node& n, const guest::Do& d);
    void stage(const NodeName& name, const GuestKey& key, uint64_t token, Nanos delay, Call call);
    void tell_guest(const NodeName& name, const GuestKey& key, uint64_t token, guest::Event event);
    void do_stand(const NodeName& name, const GuestKey& key, uint64_t token);
    void do_start(const NodeName& name, const GuestKey& key, uint64_t token);
    void do_hold(const NodeName& name, const GuestKey& key, uint64_t t);
    void do_dump(const NodeName& name, const guest::Do& d, uint64_t token,
                 const guest::DumpHeld& held);
    void do_send_checkpoint(const NodeName& name, const guest::Do& d, uint64_t token);
    void do_ship(const NodeName& name, const guest::Do& d, uint64_t token);
    bool pages_come(const Image& image);
    void pages_ended(const Image& image, bool came);
    void do_restore(const NodeName& name, const GuestKey& key, uint64_t token, Image image);
    void do_release(const NodeName& name, const GuestKey& key, uint64_t token);
    void do_kill(const NodeName& name, const GuestKey& key, uint64_t token);
    void schedule_exit(const NodeName& name, const GuestKey& key);
    void job_exits(const NodeName& name, const GuestKey& key, int32_t status);
    void tell_exit(const NodeName& name, const GuestKey& key, int32_t status);
    void kill_pid1(const NodeName& name, const GuestKey& key);

    static constexpr size_t trace_max = 150000;
    const Mutation mutation_;
    const bool tracing_;
    const ClusterSize size_;
    const Faults allowed_;
    Rng rng_;
    Nanos now_;
    uint64_t next_event_ = 0;
    struct Event {
        int64_t at = 0;
        uint64_t number = 0;
        Call call;
        // A heap has the greatest first.
        bool operator<(const Event& other) const {
            return std::pair(at, number) > std::pair(other.at, other.number);
        }
    };
    std::vector<Event> events_;  // a heap, the next one first
    bool faults_ = true;
    double crash_chance_ = 0, break_chance_ = 0, fail_chance_ = 0, slow_chance_ = 0;
    double death_chance_ = 0;
    bool disks_fill_ = false;
    double undumpable_ = 0;  // of jobs
    OwnerPolicy policy_;
    OwnerUsePolicy presence_;
    OwnerPromise promise_;
    PromiseWatch promises_;
    LeaveWatch leave_watch_;
    uint64_t seed_of_rate_ = 0, leave_rate_ = 0;  // bytes a second, of all nodes; 0: none
    bool ranks_fail_ = false;
    NodeName provider_only_;  // no home of jobs: it may die for good
    bool queue_while_down_ = true;
    // run_one_fault uses these: the form of its moves, how long the broken part stays away, links
    // that cannot be made, the next failure, and a function that looks at each step.
    std::optional<MoveForm> form_;
    // a dumped job is held by its control group, and its home is told so
    std::optional<bool> fenced_;
    std::optional<Nanos> outage_;
    std::set<std::pair<NodeName, NodeName>> cut_;
    NodeName criu_dies_on_;
    bool transfer_breaks_ = false;
    std::function<void()> watch_;
    Home::Limits limits_;
    World world_;
    Book book_;
    BookedWatch booked_;
    std::vector<std::pair<JobId, Nanos>> to_look_at_;  // places that were stored in this step
    bool calm_ = false;  // nothing fails in this run, but owners come and go
    Rng bookings_;
    std::unique_ptr<NodeTrace> book_trace_;
    Nanos book_at_ = Nanos::never(), book_full_until_;
    std::map<NodeName, Node> nodes_;
    std::vector<Node*> changed_;       // those that check_owners has to look at
    Nanos check_at_ = Nanos::never();  // the first Node::check_at
    std::vector<NodeName> names_;
    std::map<JobId, MarketJob> market_;
    std::vector<const JobId*> market_order_;  // its keys
    std::map<JobId, std::map<uint64_t, std::pair<NodeName, GuestVerb>>> epochs_;
    uint64_t order_seq_ = 0;
    std::map<uint64_t, Ticket> tickets_;  // by their number, which is what orders carry
    struct Overheard {                    // a command whose ticket was taken
        NodeName guest;
        uint64_t life = 0;
        GuestCommand command;
    };
    std::vector<Overheard> overheard_;
    std::set<NodeName> liars_;
    Rng hostile_, owners_, wishes_, lies_;
    std::deque<std::string> trace_;
    Counts counts_;
};

}  // namespace souk::sim
