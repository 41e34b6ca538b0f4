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
// The shell owes the following: the messages of one connection arrive in order; a connection that
// was replaced is read no more, on either side; `undelivered` comes only for a command of which no
// byte was ever handed to a connection.
//
// Home takes each input, and its parts act on it, each in the header of its name:
//
//   HomeSteps          puts the steps of the others in order, and owns the machines of gangs
//   HomeMachines       all of these, which know single jobs, and do not know each other:
//     HomeRecords      the jobs' records, by id, by due time and by guest; ids, addresses, orphans
//     HomeOrders       what an order or a note of the market means; the order that waits
//     HomeRuns         a job at its owner: start, freeze, what its node says of it
//     HomeMoves        the steps of a move or thaw, and the way back
//     HomeCheckpoints  when one is due, how it is made, which is the last whole one
//     HomeEvacuations  images that come home because their node's owner wants them gone
//     HomeClaims       bounds for what a node says of a job
//     HomeClock        how long it has run, and what that costs
//     HomeBudget       when its money ends
//     HomeLeases       until when it may run without this home
//     HomeExpels       when it is frozen for the owner of its node
//     HomeWakes        how many frozen jobs wake at one time, and whose turn it is
//     HomeSignals      signals that wait until it can take them
//     HomeEnds         how long a cancelled job may take to end
//     HomeTimeLimits   when it has run as long as its user lets it
//     HomeDelays       jobs that wait for a time, and whether a failed one is run again
//     HomeGroups       jobs that wait for others of this home
//     HomeGangs        jobs of several components, and their rules
//     HomeReports      how it is, for the market
//   GangStart          a gang is started, cancelled and ended as one
//   GangFreeze         and frozen at one cut
//   GangCheckpoints    and saved at one cut
//   GangReturn         and goes back as one
//   EndConfirmations   ends of components that may come of another one's loss
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agentd/core/home_clock.hpp"
#include "agentd/core/home_io.hpp"
#include "agentd/core/home_limits.hpp"
#include "agentd/core/home_records.hpp"
#include "kernel/base/time.hpp"
#include "kernel/base/trace.hpp"
#include "market/core/messages.hpp"

namespace souk {

class JsonWriter;

class Home {
  public:
    using Limits = HomeLimits;
    Home(const NodeName& node, Limits limits);
    ~Home();
    Home(Home&&) noexcept;
    Home& operator=(Home&&) noexcept;

    // Takes a job that was read back from disk, before anything else. `next_seq` follows from the
    // largest id seen.
    void load(HomeJob job);
    // The record of the job with this number cannot be read. Its number is not used again, and
    // where it runs or lies it stays as it is: nothing is told or asked of it.
    void set_aside(uint64_t seq);
    // After the last load: a move that was not decided when the daemon ended is given up, and every
    // other operation gets its limits.
    void restarted(Nanos now, home::Outputs& out);

    // Inputs from tools. submit: the id is durable in the outputs before the caller answers.
    Result<JobId> submit(Submission s, Nanos now_unix, home::Outputs& out);
    // The id that the next submission gets, unless it is refused.
    JobId next_id() const;
    Status change(const JobId& id, const JobTerms& terms, Nanos now, home::Outputs& out);
    Status cancel(const JobId& id, Nanos now, home::Outputs& out);
    Status signal(const JobId& id, int32_t signal, home::Outputs& out);

    // Inputs from the market.
    void market_up(Nanos now, home::Outputs& out);  // a fresh connection: report every job
    // Reports that job again, if the market has to know it still.
    void report(const JobId& id, Nanos now, home::Outputs& out);
    void order(const Order& order, Nanos now, home::Outputs& out);
    void note(const JobNote& note, Nanos now, home::Outputs& out);
    void own_address(std::string address);
    // Takes the limits that may change while it runs: memory_default_mb, for jobs that come from
    // now on, and wake.
    void configured(const Limits& limits);
    // The free memory of this node now. Jobs that wait for it wake at the next tick.
    void free_memory(int64_t bytes);
    // The free bytes of the disk to which images come.
    void free_disk(int64_t bytes);
    // until market_up this node itself sees to it that no job outruns its budget
    void market_down();

    // Inputs from guests.
    // a fresh connection: ask what is there
    void guest_up(const NodeName& node, Nanos now, home::Outputs& out);
    void guest_event(const NodeName& node, const GuestEvent& event, Nanos now, home::Outputs& out);
    // The command never left this node (no connection could be made): the step goes back if it can.
    void undelivered(const NodeName& node, const GuestCommand& command, Nanos now,
                     home::Outputs& out);
    void expel(const NodeName& node, const Expel& expel, Nanos now, home::Outputs& out);
    void heartbeat(const NodeName& node, const Heartbeat& heartbeat, Nanos now, home::Outputs& out);

    // An operator's word: the node will not come back, or not with the jobs that it had. No job
    // that ran there may run any more.
    void node_lost(const NodeName& node, Nanos now, home::Outputs& out);
    // The job has gone back, and the shell says how long its streams are here, and how much of its
    // input it has been given in all. Its files are as they are to be; `files` tells the user of
    // it.
    void spliced(const JobId& id, const uint64_t output_end[2], uint64_t input_end,
                 const std::string& files, Nanos now, home::Outputs& out);
    // How much of its files was asked for from other nodes, in all; `waits`: why they are not
    // reached.
    void files_used(const JobId& id, const FilesUse& use, Nanos now, home::Outputs& out);

    // Does what is due; returns when it wants to be called again (never() if nothing waits).
    Nanos tick(Nanos now, home::Outputs& out);

    // Sets the listener that hears of each step (kernel/base/trace.hpp); null: none. It outlives
    // the machine.
    void tell_to(TraceListener* listener) { tracer_.tell_to(listener); }
    // Sets the time by which the steps of stories are told, before each input.
    void set_unix_time(Nanos unix_now) { unix_now_ = unix_now; }
    // Describes one job right now: keys and values of an open JSON object
    // (tools/common/replies.md).
    void describe(const JobId& id, Nanos now, JsonWriter& j) const;
    const HomeJob* find(const JobId& id) const;
    // The cost of the job by the price that the market told last; exact if it has not run since.
    static Money cost(const HomeJob& job, Nanos now) { return HomeClock::cost(job, now); }
    // How long the job has run, with the present stretch.
    static Nanos run_time(const HomeJob& job, Nanos now) { return HomeClock::run_time(job, now); }
    // The newest job that this user submitted with this token (a request that is sent again).
    const HomeJob* find_token(uint32_t uid, uint64_t token) const;
    const std::map<uint64_t, HomeJob>& jobs() const;
    // When every copy of the job that was told to run on another node is sure to stand still, if
    // nothing more is heard from there; never() if that is not known or leads to nothing.
    Nanos lease_due(const HomeJob& job) const;
    // Guests to which the home needs a connection now.
    std::vector<NodeName> guests_needed() const;
    bool needs_guest(const NodeName& node) const;
    // The address of such a guest.
    std::optional<Peer> peer_of(const NodeName& node) const;

  private:
    struct Parts;
    friend class TraceScene<Home, home::Outputs>;
    using Scene = TraceScene<Home, home::Outputs>;
    static TraceLine trace_of(const home::Output& output);
    void trace_state(const JobId& id, Epoch epoch);

    // One input, as its machines see it.
    HomeTurn turn(Nanos now, home::Outputs& out) const;
    // Gives its memory to a job that does not say how much it needs.
    void give_default_memory(JobTerms& terms) const;
    Status may_change(const HomeJob& job, const JobTerms& wanted) const;
    HomeJob record_of(Submission s, Nanos now_unix, const HomeTurn& turn) const;
    void ask(const HomeJob& job, const NodeName& node, const HomeTurn& turn) const;
    void carry_out(const Order& order, Nanos now, home::Outputs& out);
    void wake(Nanos now, home::Outputs& out);
    void evacuate(Nanos now, home::Outputs& out);

    Tracer tracer_;
    Nanos unix_now_;
    std::unique_ptr<Parts> parts_;
};

}  // namespace souk
