// SPDX-License-Identifier: GPL-2.0-or-later
// Marketd: the shell of the market's machine (market/core/market.hpp). It owns the connections, the
// records on disk and the time; the machine decides. All that came in during one iteration of the
// loop is decided in one step at its end: solve, commit, send. The journal
// (kernel/base/journal.hpp) says when that may leave: a commit that fails holds everything back
// until one succeeds.
//
// Who may connect. TCP: agents (a hello with the node's name; the welcome names the market). Unix
// socket: marketctl, whose user the kernel names; the socket is open to everybody, what each may do
// is the machine's business. An agent has a certificate of its name. It passes on the questions of
// its own local users and vouches for their uid. A second connection for the same node: with the
// same key (or, without certificates, from the same host) it is that agent, restarted or
// reconnected, and replaces the first; else it is refused for as long as the first one lives (a
// silent one is given up after three keepalives), so that nobody takes a node over by its name.
//
// Whatever does not speak the protocol is told so in one line and closed; the log says it a few
// times a minute.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernel/sys/host/accounts.hpp"
#include "kernel/sys/host/log.hpp"
#include "kernel/sys/host/log_trace.hpp"
#include "kernel/sys/host/status_file.hpp"
#include "kernel/sys/loop/loop.hpp"
#include "kernel/sys/net/metrics_page.hpp"
#include "kernel/sys/net/strangers.hpp"
#include "kernel/sys/net/user_share.hpp"
#include "kernel/sys/store/journal_db.hpp"
#include "kernel/sys/store/statecopy.hpp"
#include "kernel/trust/ticket_key.hpp"
#include "kernel/wire/channel.hpp"
#include "kernel/wire/tls.hpp"
#include "market/core/market.hpp"
#include "market/core/web_sessions.hpp"
#include "market/daemon/config.hpp"
#include "market/daemon/decision_shell.hpp"
#include "market/daemon/decision_times.hpp"
#include "market/daemon/enrolment.hpp"
#include "market/daemon/replies.hpp"
#include "market/daemon/solver_program.hpp"
#include "market/store/finished.hpp"
#include "market/store/receipts.hpp"
#include "market/store/usage.hpp"

namespace souk {

// A question that waits is answered at least so often with "ask again": nobody need take a long
// silence for an end.
inline constexpr Nanos answer_within = Nanos::from_s(5);

class Marketd {
  public:
    // Reads the records, then listens. Errors: the state directory or an address is in use or
    // unusable, a record that cannot be read.
    static Result<std::unique_ptr<Marketd>> open(Loop& loop, Log& log, const MarketConfig& config);

    // The last step, and the connections' last words; afterwards nothing is accepted.
    void drain();
    uint16_t port() const { return port_; }

  private:
    enum class Kind : uint8_t { greeting, agent, tool, joiner };
    struct Connection {
        std::unique_ptr<wire::Channel> channel;
        Kind kind = Kind::greeting;
        bool local = false;
        uint32_t uid = 0;        // local: whose it is
        UserShare::Place place;  // local: among the connections of that user
        std::string host;        // TCP: where it comes from
        NodeName node;           // agent
        bool answers = false;    // agent: it can be asked
        bool tickets = false;    // agent: it knows ticket_keys
    };
    struct Reply {
        uint64_t connection;
        wire::CtlReply reply;
    };

    Marketd(Loop& loop, Log& log, const MarketConfig& config, StateDb db);
    Status load();
    market::MetaRecord meta_again() const;
    void load_lost_accounts();
    void say_aside();
    Status listen();
    // marketd_trust.cpp
    Status open_trust();
    Status is_certified(const Connection& c, const NodeName& node) const;
    Status greet_joiner(Connection& c, const wire::Hello& hello);
    Status greet_operator(Connection& c);
    Status certify(uint64_t number, const Connection& c, const wire::Frame& frame);
    Status trust_question(uint64_t number, const Connection& c, const wire::CtlRequest& request);
    void audit(const Connection& c, const wire::CtlRequest& request, bool by_page);
    // marketd_web.cpp
    Result<std::string> web_answer(const market::WebSessions::Speaker& who,
                                   const wire::CtlRequest& request);
    bool answer_web(uint64_t number, const Connection& c, wire::CtlRequest& request);
    uint32_t speaks_for(const Connection& c, const wire::CtlRequest& request) const;
    void revoked();
    bool takes_insecure() const;
    void watch_insecure();
    void tell_insecure();
    std::vector<NodeName> uncertified() const;
    void renew_own();
    void give_ticket(Order& order);
    void turn_ticket_keys();
    void tell_ticket_keys(uint64_t number);
    void tell_ticket_keys();
    void accept(Fd socket, bool local);

    void frame(uint64_t number, const wire::Frame& frame);
    bool take_stranger(uint64_t number, const std::string& host);
    void end_strangers();
    Status greet(uint64_t number, Connection& connection, const wire::Frame& frame);
    Status greet_agent(uint64_t number, Connection& connection, const wire::Hello& hello);
    Status from_agent(uint64_t number, Connection& connection, const wire::Frame& frame);
    static bool has_role(const Connection& c, wire::FrameType type);
    std::string why_no_job(const Connection& c, uint32_t uid) const;
    bool may_vouch(uint64_t number, const Connection& c, const JobReport& report);
    void tell_differences();
    Status question(uint64_t number, const Connection& connection, const wire::Frame& frame);
    void closed(uint64_t number, const Error& error);
    void drop(uint64_t number, const Cause& why);
    template <class T>
    void send(uint64_t number, const T& message);

    // marketd_step.cpp
    static Nanos calendar();  // what to add to the loop's time for Unix time
    void wake();              // a step at the end of this iteration, or when the market has rested
    void step();
    void store(const std::vector<market::StoreOp>& ops);
    void flush();
    void release();
    void solver_answered(Result<std::vector<market::Solver::Assignment>> allocation);

    MarketFace face() const;
    // marketd_metrics.cpp
    std::vector<Metric> metrics() const;
    std::vector<StatusLine> status_lines() const;
    void verify_ledger(uint64_t connection, const wire::CtlRequest& request);
    void walk_on();
    Result<LedgerSummary> walk_ended() const;
    Result<bool> walk_finished();
    Status await_order(uint64_t connection, const wire::CtlRequest& request);
    void answer_waiters();
    // marketd_relay.cpp
    Result<NodeName> node_to_ask(const wire::CtlRequest& request, const JobId& id) const;
    Status ask_node(uint64_t connection, const wire::CtlRequest& request);
    Status node_answers(const NodeName& node, const wire::Frame& frame);
    void end_relay(uint64_t number, wire::CtlReply reply);
    void relays_lost(const NodeName& node);
    void begin_backup(uint64_t connection, const Connection& c, const wire::CtlRequest& request);
    void copy_on();
    void end_backup(Result<std::string> json);
    wire::CtlReply promise_missed(const Connection& c, const wire::CtlRequest& request);
    wire::CtlReply compare_ledger(const Connection& c, const wire::CtlRequest& request);
    void warn(std::string text);
    // marketd_decisions.cpp
    void open_decision_log();
    wire::CtlReply decisions(const wire::CtlRequest& request) const;
    Status recall(const JobId& id);
    void trim_finished();
    template <class Record>
    void sum_up(const Record& record);
    void trim_usage();

    Loop& loop_;
    Log& log_;
    const MarketConfig& config_;
    JournalDb state_;
    std::unique_ptr<wire::Tls> tls_;  // null: insecure
    std::unique_ptr<Enrolment> enrolment_;
    std::optional<trust::TicketRing> ticket_ring_;
    // the calendar (Unix time less Loop::now()) that agents were told last
    Nanos told_calendar_;
    std::optional<ReceiptBook> book_;
    std::optional<FinishedJobs> finished_;
    std::optional<UsageBook> usage_;
    std::unique_ptr<MetricsPage> metrics_page_;
    std::unique_ptr<StatusFile> status_file_;
    LogTrace trace_{log_};
    std::unique_ptr<DecisionShell> decision_log_;  // null: there is none
    market::Market market_;
    std::unique_ptr<SolverProgram> program_;
    UserShare tools_share_;
    std::map<uint64_t, Connection> connections_;
    Strangers strangers_;
    Timer strangers_timer_;
    std::map<NodeName, uint64_t> agents_;
    uint64_t next_number_ = 1;
    std::vector<market::Send> held_;  // decided, and not yet durable
    std::vector<Reply> replies_;
    struct QuoteAsked {
        uint64_t connection;
        NodeName home;
        wire::CtlRequest request;
    };
    std::vector<QuoteAsked> quotes_;   // answered when this iteration's step is decided
    std::optional<ReceiptWalk> walk_;  // of those who ask whether the ledger is what it was
    std::vector<Reply> walkers_;
    struct Waiter {  // for what becomes of an order by hand
        uint64_t connection = 0, request = 0;
        JobId job;
        NodeName node;
        bool freezes = false;
        uint64_t failures = 0, migrations = 0;
        Nanos deadline, answer_at;
        Nanos limit;
    };
    Cause moved_on(const Waiter& w, const Cause& over) const;
    std::vector<Waiter> waiters_;
    struct Relay {  // a question that a home node is to answer
        uint64_t connection = 0, request = 0;
        NodeName node;
        Timer limit;
    };
    std::map<uint64_t, Relay> relays_;
    uint64_t next_relay_ = 1;
    struct Backup {  // under way
        std::string file;
        StateCopy copy;
        uint64_t connection = 0, request = 0;  // who waits for it
        Fd synced;
        Sync sync;
        Timer step, answer;
    };
    std::optional<Backup> backup_;
    market::WebSessions web_sessions_;
    SystemAccounts accounts_;
    std::vector<std::string> warnings_;  // of this process's life, for people
    bool step_due_ = false, release_waits_ = false;
    Nanos rests_until_ = Nanos{};
    Nanos input_at_ = Nanos::never();  // when the first thing came that is not decided on yet
    DecisionTimes decisions_;
    uint16_t port_ = 0;
    Listener agents_listener_, tools_listener_;
    Timer timer_, rest_, retry_, walk_timer_, trim_timer_, usage_timer_, wait_timer_, renew_timer_,
        insecure_timer_;
    // nodes without a certificate: when their list was told last
    Nanos told_insecure_ = Nanos::never();
    // finished jobs below that number, and from that on, are still to be walked over
    uint64_t walked_to_ = 0, walked_from_ = 0;
};

}  // namespace souk
