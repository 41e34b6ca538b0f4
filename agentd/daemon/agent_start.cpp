// SPDX-License-Identifier: GPL-2.0-or-later
// Agent: start. Directories and state, control groups, what the owner offers, and the sockets.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <set>

#include "agentd/daemon/agent.hpp"
#include "agentd/store/records.hpp"
#include "kernel/sys/host/log.hpp"
#include "kernel/sys/net/descriptors.hpp"
#include "kernel/sys/process/own_rights.hpp"

namespace souk {
namespace {

constexpr Nanos listen_patience = Nanos::from_s(2);

}  // namespace

// Long: the parts in the order in which they need each other.
Status Agent::begin(std::function<void()> on_ready) {
    on_ready_ = std::move(on_ready);
    TRY(open_directories());
    TRY(identity_.open(loop_, log_, config_, root_));
    TRY(open_share());
    // What measures is loaded, no thread was begun, and nothing was read that others wrote.
    if (const Status less = give_up_measuring(); !less)
        log_.notice("agentd may load programs into the kernel", {{"WHY", less.error()}});
    wire_peers();
    wire_market();
    TRY(wire_ledger());
    home_ = std::make_unique<HomeShell>(HomeShellParts{.loop = loop_,
                                                       .log = log_,
                                                       .trace = trace_,
                                                       .config = config_,
                                                       .root = root_,
                                                       .accounts = accounts_,
                                                       .tls = identity_.tls(),
                                                       .commits = *state_,
                                                       .peers = *peers_,
                                                       .market = *market_});
    guests_ = std::make_unique<GuestHost>(GuestHostParts{.loop = loop_,
                                                         .log = log_,
                                                         .root = root_,
                                                         .as_root = as_root_,
                                                         .trace = trace_,
                                                         .config = config_,
                                                         .tls = identity_.tls(),
                                                         .tickets = identity_.tickets(),
                                                         .commits = *state_,
                                                         .peers = *peers_,
                                                         .load = load_,
                                                         .share = share_.get(),
                                                         .own = *home_,
                                                         .listener = *this,
                                                         .accounts = accounts_});
    TRY(home_->open(*guests_));
    TRY(guests_->open());
    use_ = std::make_unique<UseReports>(loop_, *state_, *market_, *guests_, config_.home.boot);
    offer_ = std::make_unique<OwnerOffer>(OwnerOfferParts{.loop = loop_,
                                                          .log = log_,
                                                          .trace = trace_,
                                                          .config = config_,
                                                          .commits = *state_,
                                                          .market = *market_,
                                                          .guests = *guests_,
                                                          .listener = *this});
    presence_ = std::make_unique<OwnerPresence>(OwnerPresenceParts{.loop = loop_,
                                                                   .log = log_,
                                                                   .config = config_,
                                                                   .root = root_,
                                                                   .accounts = accounts_,
                                                                   .commits = *state_,
                                                                   .market = *market_,
                                                                   .load = load_,
                                                                   .share = share_.get(),
                                                                   .guests = *guests_,
                                                                   .offer = *offer_});
    shutdown_ = std::make_unique<ShutdownGuard>(loop_, log_, config_, *guests_, *presence_);
    TRY(offer_->open());
    TRY(presence_->load());
    learning_ =
        std::make_unique<PriceLearning>(loop_, log_, config_.node, *state_, *market_, *offer_);
    TRY(learning_->load());
    TRY(use_->load());
    TRY(guests_->recover());
    TRY(home_->recover());
    TRY(listen());
    TRY(open_metrics());
    offer_->arm();
    TRY(presence_->watch());
    presence_->find();
    evict_banned();
    learning_->learn_soon();
    shutdown_->watch();
    tick_load();
    renewal_->start();
    use_->start();
    market_->start();
    return {};
}

Status Agent::open_directories() {
    // souk-root has made what lies there.
    TRY_ASSIGN(state_, Commits::open(loop_, log_, config_.state));
    return {};
}

Status Agent::open_share() {
    TRY_ASSIGN(share_, NodeShare::open(log_, config_.cgroup, config_.cpu_weight, root_.end()));
    if (share_)
        TRY(load_.open(share_->cgroups(), config_.cgroup.substr(config_.cgroup.find('/') + 1),
                       OwnerPresence::load_options(config_, root_, config_.presence)));
    return root_.keep_packets(load_.packet_programs());
}

Status Agent::listen() {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    ::sigprocmask(SIG_BLOCK, &set, nullptr);
    children_ = Fd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!children_) return fail_errno("signalfd", errno);
    TRY_ASSIGN(child_watch_, loop_.watch(children_.get(), POLLIN, [this](short) {
        signalfd_siginfo info{};
        while (::read(children_.get(), &info, sizeof info) > 0) {
        }
        while (::waitpid(-1, nullptr, WNOHANG) > 0) {
        }  // the pidfds have told what matters
    }));

    const auto trouble = [this](const Error& e) {
        log_.limited("accept", Loop::now(), Level::warning, "cannot take connections",
                     {{"WHY", e}});
    };
    TRY_ASSIGN(const Address address, Address::resolve(config_.listen));
    auto tcp = listen_stream(address, 1024, 0600, listen_patience);
    if (!tcp) return wrap("listen on " + config_.listen, tcp.error());
    TRY_ASSIGN(peers_listener_,
               loop_.listen(
                   std::move(*tcp), [this](Fd s) { peers_->accepted(std::move(s)); }, trouble));
    TRY_ASSIGN(tools_watch_,
               loop_.watch(as_root_.tools.get(), POLLIN, [this](short) { tools_come(); }));
    return {};
}

// souk-root has taken each of them from the socket: who it is, the kernel tells both.
void Agent::tools_come() {
    char room[8];
    for (;;) {
        auto packet = receive_descriptors(as_root_.tools.get(), room);
        if (!packet || !*packet || (*packet)->bytes == 0) return;
        for (Fd& socket : (*packet)->descriptors) accept_tool(std::move(socket));
    }
}

}  // namespace souk
