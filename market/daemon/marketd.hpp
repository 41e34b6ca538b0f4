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
// It composes objects that each own their part, in the headers of their names: Connections,
// MarketRecords, MarketTrust, LedgerKeeper, ReportDesk, OperatorWaits, NodeQuestions, Sites,
// SiteAccounts, OperatorPrograms, SubmitDesk, ArrivalDesk, OfferDesk, LoanDesk, WebDesk,
// MarketFigures.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernel/sys/host/log.hpp"
#include "kernel/sys/host/log_trace.hpp"
#include "kernel/sys/host/status_file.hpp"
#include "kernel/sys/loop/loop.hpp"
#include "kernel/sys/net/metrics_page.hpp"
#include "market/core/market.hpp"
#include "market/core/transfer_pace.hpp"
#include "market/daemon/arrival_desk.hpp"
#include "market/daemon/config.hpp"
#include "market/daemon/connections.hpp"
#include "market/daemon/decision_shell.hpp"
#include "market/daemon/decision_times.hpp"
#include "market/daemon/ledger_keeper.hpp"
#include "market/daemon/loan_desk.hpp"
#include "market/daemon/market_figures.hpp"
#include "market/daemon/market_records.hpp"
#include "market/daemon/market_trust.hpp"
#include "market/daemon/news_desk.hpp"
#include "market/daemon/node_questions.hpp"
#include "market/daemon/offer_desk.hpp"
#include "market/daemon/operator_programs.hpp"
#include "market/daemon/operator_waits.hpp"
#include "market/daemon/report_desk.hpp"
#include "market/daemon/site_accounts.hpp"
#include "market/daemon/sites.hpp"
#include "market/daemon/solver_program.hpp"
#include "market/daemon/step_taker.hpp"
#include "market/daemon/submit_desk.hpp"
#include "market/daemon/web_desk.hpp"
#include "market/wire/plan_reply.hpp"
#include "market/wire/quote_desk.hpp"

namespace souk {

class Marketd final : private StepTaker, private Connections::Listener, private SiteListener {
  public:
    // Reads the records, then listens. Errors: the state directory or an address is in use or
    // unusable, a record that cannot be read.
    static Result<std::unique_ptr<Marketd>> open(Loop& loop, Log& log, const MarketConfig& config);

    // The last step, and the connections' last words; afterwards nothing is accepted.
    void drain();
    uint16_t port() const { return connections_.port(); }

  private:
    Marketd(Loop& loop, Log& log, const MarketConfig& config, StateDb db);
    Status load();
    // A market whose decisions cannot be logged goes on.
    void open_decision_log();

    Status frame(uint64_t number, Connection& c, const wire::Frame& frame) override;
    void agent_ended(const Connection& c, const Error& error) override;
    void site_ended(uint64_t number, const Connection& c, const Error& error) override {
        sites_.ended(number, c, error);
    }
    void site_up(const std::string& site) override {
        loans_.site_up(site);
        accounts_.site_up(site);
        news_.site_up(site);
    }
    void site_down(const std::string& site) override { loans_.site_down(site); }
    void peer_known(const SitePeer& peer) override { accounts_.peer_known(peer); }
    void peer_gone(const std::string& site) override { accounts_.peer_gone(site); }
    void describe_peer(const std::string& site, bool money, JsonWriter& j) override {
        accounts_.describe(site, money, j);
    }
    bool knows_node(const std::string& name) const override { return market_.find_node(name); }
    Result<bool> knows_account(uint32_t uid) const override {
        if (market_.users().contains(uid) ||
            market_.ledger().accounts().contains(market::Holder::user(uid)))
            return true;
        return records_.sites().has_book(uid);
    }
    Money held_by_nodes(const std::string& site) const override {
        return market_.credit().held_by_nodes(site);
    }
    Status greet(uint64_t number, Connection& c, const wire::Frame& frame);
    Status greet_agent(uint64_t number, Connection& c, const wire::Hello& hello);
    Status from_agent(uint64_t number, Connection& c, const wire::Frame& frame);
    void tell_differences();
    Status question(uint64_t number, const Connection& c, const wire::Frame& frame);
    Status from_site(uint64_t number, const Connection& c, const wire::Frame& f);
    Status answer_at_once(uint64_t number, const Connection& c, const wire::CtlRequest& request);

    void wake() override;
    void set_clock();
    void step() override;
    void quote(const QuoteDesk::Asked& asked);
    void flush();
    void release();
    void solver_answered(Result<std::vector<market::Solver::Assignment>> allocation);

    Loop& loop_;
    Log& log_;
    const MarketConfig& config_;
    Warnings warnings_;
    ReplyQueue replies_;
    LogTrace trace_{log_};
    DecisionTimes decisions_;
    std::unique_ptr<DecisionShell> decision_log_;  // null: there is none
    market::Market market_;
    std::unique_ptr<SolverProgram> program_;  // null: the market's own solver decides
    MarketRecords records_;
    MarketTrust trust_;
    Connections connections_;
    LedgerKeeper ledger_;
    ReportDesk reports_;
    OperatorWaits waits_;
    NodeQuestions questions_;
    Sites sites_;
    SiteAccounts accounts_;
    NewsDesk news_;
    OperatorPrograms programs_;
    SubmitDesk submits_;
    ArrivalDesk arrivals_;
    OfferDesk offers_;
    LoanDesk loans_;
    WebDesk web_;
    PlanDesk plans_;
    market::TransferPace transfers_;
    QuoteDesk quotes_;  // answered when a step is decided
    MarketFigures figures_;
    std::unique_ptr<MetricsPage> metrics_page_;
    std::unique_ptr<StatusFile> status_file_;
    std::vector<market::Send> held_;  // decided, and not yet durable
    bool step_due_ = false, release_waits_ = false;
    Nanos rests_until_ = Nanos{};
    Nanos input_at_ = Nanos::never();  // when the first thing came that is not decided on yet
    Timer timer_, rest_, retry_;
};

}  // namespace souk
