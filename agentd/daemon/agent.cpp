// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/daemon/agent.hpp"

#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "kernel/sys/host/clock.hpp"
#include "kernel/sys/process/own_rights.hpp"

namespace souk {
namespace {

constexpr Nanos listen_patience = Nanos::from_s(2);
constexpr Nanos load_period = Nanos::from_s(1);
constexpr Nanos group_kept = Nanos::from_s(10);
constexpr uint64_t trim_ticks = 30;

// Keys that a running agentd takes from a new configuration.
constexpr ReloadedKey<Config> reloaded_keys[] = {
    {"attributes", take_member<&Config::attributes>},
    {"awake_for_moves", take_member<&Config::awake_for_moves>},
    {"check_ahead", take_member<&Config::check_precopy>},
    {"cpu_weight", take_member<&Config::cpu_weight>},
    {"cpus", take_member<&Config::cpus>},
    {"disk_mb_per_s", take_member<&Config::disk_mb_per_s>},
    {"empty_s", take_member<&Config::promise, &OwnerPromise::empty>},
    {"files", take_member<&Config::files>},
    {"files_tmp", take_member<&Config::files_tmp>},
    {"frames", take_member<&Config::frames>},
    {"frames_warning_s", take_member<&Config::frames_warning>},
    {"frames_zone", take_member<&Config::frames_zone>},
    {"free_cpu_ms", take_member<&Config::promise, &OwnerPromise::free_cpu>},
    {"free_memory_s", take_member<&Config::promise, &OwnerPromise::free_memory>},
    {"leave_mb_per_s", take_member<&Config::leave_mb_per_s>},
    {"local_paths", take_member<&Config::local_paths>},
    {"memory_default_mb", take_member<&Config::home, &Home::Limits::memory_default_mb>},
    {"memory_mb", take_member<&Config::memory_mb>},
    {"near_group", take_member<&Config::near_group>},
    {"near_mbit_per_s", take_member<&Config::near_mbit_per_s>},
    {"near_round_trip_us", take_member<&Config::near_round_trip_us>},
    {"on_market", take_member<&Config::on_market>},
    {"owner_away_s", take_member<&Config::presence, &OwnerUsePolicy::away>},
    {"owner_cpu_percent", take_member<&Config::owner_cpu_percent>},
    {"owner_free_mb", take_member<&Config::owner_free_mb>},
    {"owner_input", take_member<&Config::owner_signs>},
    {"owner_leave_s", take_member<&Config::presence, &OwnerUsePolicy::leave>},
    {"owner_network_mb_per_s", take_member<&Config::owner_network_mb_per_s>},
    {"owner_pressure_ms", take_member<&Config::owner_signs>},
    {"owner_programs", take_member<&Config::owner_signs>},
    {"owner_return", take_member<&Config::presence, &OwnerUsePolicy::on_return>},
    {"owner_sessions", take_member<&Config::owner_signs>},
    {"owner_stop_s", take_member<&Config::presence, &OwnerUsePolicy::stop>},
    {"owner_wait_ms", take_member<&Config::owner_wait>},
    {"owners", take_member<&Config::owners>},
    {"pids_max", take_member<&Config::pids_max>},
    {"price", take_member<&Config::price>},
    {"price_curve", take_member<&Config::price_curve>},
    {"programs", take_member<&Config::programs>},
    {"resource_devices", take_member<&Config::resources>},
    {"resource_reserves", take_member<&Config::resources>},
    {"resources", take_member<&Config::resources>},
    {"share", take_member<&Config::share>},
    {"shared_files", take_member<&Config::shared_files>},
    {"speed", take_member<&Config::speed>},
    {"swap_mb", take_member<&Config::swap_mb>},
    {"wake", take_member<&Config::home, &Home::Limits::wake>},
};
}  // namespace

Agent::Agent(Loop& loop, Log& log, Config config, AsRoot as_root, root::Helper& root)
    : loop_(loop),
      log_(log),
      config_(std::move(config)),
      as_root_(std::move(as_root)),
      root_(root) {}

Agent::~Agent() = default;

// -------------------------------------------------------------------------------------------------
// start

Status Agent::begin(std::function<void()> on_ready) {
    on_ready_ = std::move(on_ready);
    // souk-root has made the directories that lie there.
    TRY_ASSIGN(commits_, Commits::open(loop_, log_, config_.state));
    TRY(identity_.open(loop_, log_, config_, root_));
    TRY(open_share());
    auto shut_in = ShutIn::open();
    // The programs that measure are in the kernel now. No thread runs beside this one, and nothing
    // that others wrote has been read.
    if (const Status less = give_up_measuring(); !less)
        log_.notice("agentd may load programs into the kernel", {{"WHY", less.error()}});
    keep_shut_in(std::move(shut_in));
    gateways_ =
        std::make_unique<GatewayLinks>(loop_, log_, identity_.tls(), config_.node, config_.gateway,
                                       [this](Fd socket) { peers_->brought(std::move(socket)); });
    ways_ = std::make_unique<Ways>(loop_, gateways_.get());
    peers_ = std::make_unique<Peers>(loop_, log_, identity_.tls(), *ways_, config_.node,
                                     config_.address);
    if (config_.relay) {
        gateway_ = std::make_unique<Gateway>(loop_, log_, *peers_, *gateways_,
                                             GatewayDesk::Bounds{.onward = config_.relay_out});
        peers_->relay_by(*gateway_);
    }
    MarketListener& listener = *this;
    market_ = std::make_unique<MarketLink>(loop_, log_, identity_.tls(), config_.node,
                                           config_.address, config_.market, listener);
    renewal_ =
        std::make_unique<CertificateRenewal>(loop_, log_, config_, identity_, *market_, *peers_);
    TRY(make_ledger());
    make_home_and_guests();
    make_owner();
    make_views();
    peers_->serve(*home_, *guests_, *tools_);
    return start();
}

// A kernel before 5.19 lets no one without rights read what it has loaded.
void Agent::keep_shut_in(Result<ShutIn> opened) {
    Status works;
    if (!opened)
        works = tl::unexpected(opened.error());
    else if (const auto now = opened->processes(); !now)
        works = tl::unexpected(now.error());
    else
        shut_in_ = std::move(*opened);
    if (!works)
        log_.info("only a dump finds who has shut himself in with Landlock",
                  {{"WHY", works.error()}});
}

Status Agent::open_share() {
    TRY_ASSIGN(share_, NodeShare::open(log_, config_.cgroup, config_.cpu_weight, root_.end()));
    if (share_)
        TRY(load_.open(share_->cgroups(), config_.cgroup.substr(config_.cgroup.find('/') + 1),
                       OwnerPresence::load_options(config_, root_, config_.presence)));
    return root_.keep_packets(load_.packet_programs());
}

// Reads what the daemon before left, the owner's word first: a guest that is found again may have
// to leave.
Status Agent::start() {
    TRY(home_->open(*guests_));
    TRY(guests_->open());
    TRY(offer_->open());
    TRY(presence_->load());
    TRY(learning_->load());
    TRY(use_->load());
    TRY(guests_->recover());
    TRY(home_->recover());
    TRY(reap_children());
    TRY(listen());
    TRY(tools_->open());
    TRY(figures_->open());
    offer_->arm();
    TRY(presence_->watch());
    presence_->find();
    rules_->evict_banned();
    learning_->learn_soon();
    shutdown_->watch();
    tick_load();
    renewal_->start();
    use_->start();
    gateways_->start();
    market_->start();
    return {};
}

// Nobody waits for these processes otherwise: their pidfds tell what matters.
Status Agent::reap_children() {
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
        }
    }));
    return {};
}

Status Agent::listen() {
    const auto trouble = [this](const Error& e) {
        log_.limited("accept", Loop::now(), Level::warning, "cannot take connections",
                     {{"WHY", e}});
    };
    TRY_ASSIGN(const Address address, Address::resolve(config_.listen));
    auto tcp = listen_stream(address, 1024, 0600, listen_patience);
    if (!tcp) return wrap("listen on " + config_.listen, tcp.error());
    TRY_ASSIGN(peers_listener_, loop_.listen(
                                    std::move(*tcp),
                                    [this](Fd s) {
                                        if (gateway_) return gateway_->accepted(std::move(s));
                                        peers_->accepted(std::move(s));
                                    },
                                    trouble));
    return {};
}

// -------------------------------------------------------------------------------------------------
// the parts

Status Agent::make_ledger() {
    TRY_ASSIGN(const auto known, commits_->db().get("seen", config_.market));
    LedgerMark::Hooks ledger;
    ledger.ask = [this](const wire::CtlRequest& request, auto answer) {
        market_->ask(request, std::move(answer));
    };
    ledger.keep = [this](const std::string& text) {
        commits_->put("seen", config_.market, text, Durable::later);
    };
    const ReceiptMark mark =
        known ? parse_receipt_mark(*known).value_or(ReceiptMark{}) : ReceiptMark{};
    ledger_ = std::make_unique<LedgerMark>(loop_, mark, std::move(ledger));
    return {};
}

void Agent::make_home_and_guests() {
    home_ = std::make_unique<HomeShell>(HomeShellParts{.loop = loop_,
                                                       .log = log_,
                                                       .trace = trace_,
                                                       .config = config_,
                                                       .root = root_,
                                                       .accounts = accounts_,
                                                       .tls = identity_.tls(),
                                                       .commits = *commits_,
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
                                                         .commits = *commits_,
                                                         .peers = *peers_,
                                                         .load = load_,
                                                         .shut_in = shut_in_ ? &*shut_in_ : nullptr,
                                                         .share = share_.get(),
                                                         .own = *home_,
                                                         .listener = *this,
                                                         .accounts = accounts_});
    use_ = std::make_unique<UseReports>(loop_, *commits_, *market_, *guests_, config_.home.boot);
}

void Agent::make_owner() {
    offer_ = std::make_unique<OwnerOffer>(OwnerOfferParts{.loop = loop_,
                                                          .log = log_,
                                                          .trace = trace_,
                                                          .config = config_,
                                                          .commits = *commits_,
                                                          .market = *market_,
                                                          .guests = *guests_,
                                                          .listener = *this});
    learning_ =
        std::make_unique<PriceLearning>(loop_, log_, config_.node, *commits_, *market_, *offer_);
    presence_ = std::make_unique<OwnerPresence>(OwnerPresenceParts{.loop = loop_,
                                                                   .log = log_,
                                                                   .config = config_,
                                                                   .root = root_,
                                                                   .accounts = accounts_,
                                                                   .commits = *commits_,
                                                                   .market = *market_,
                                                                   .load = load_,
                                                                   .share = share_.get(),
                                                                   .guests = *guests_,
                                                                   .offer = *offer_});
    shutdown_ = std::make_unique<ShutdownGuard>(loop_, log_, config_, *guests_, *presence_);
    rules_ = std::make_unique<OwnerRules>(OwnerRulesParts{.loop = loop_,
                                                          .log = log_,
                                                          .config = config_,
                                                          .as_root = as_root_,
                                                          .market = *market_,
                                                          .renewal = *renewal_,
                                                          .ledger = *ledger_,
                                                          .load = load_,
                                                          .share = share_.get(),
                                                          .guests = *guests_,
                                                          .offer = *offer_,
                                                          .learning = *learning_,
                                                          .presence = *presence_});
}

void Agent::make_views() {
    figures_ = std::make_unique<NodeFigures>(NodeFiguresParts{.loop = loop_,
                                                              .log = log_,
                                                              .config = config_,
                                                              .root = root_,
                                                              .market = *market_,
                                                              .load = load_,
                                                              .home = *home_,
                                                              .guests = *guests_,
                                                              .offer = *offer_,
                                                              .presence = *presence_,
                                                              .gateways = *gateways_,
                                                              .gateway = gateway_.get()});
    views_ = std::make_unique<NodeViews>(config_, *market_, *home_, *guests_, *offer_, *figures_);
    tools_ = std::make_unique<ToolServer>(ToolServerParts{.loop = loop_,
                                                          .log = log_,
                                                          .config = config_,
                                                          .accounts = accounts_,
                                                          .socket = as_root_.tools.get(),
                                                          .peers = *peers_,
                                                          .market = *market_,
                                                          .home = *home_,
                                                          .rules = *rules_,
                                                          .views = *views_});
}

// -------------------------------------------------------------------------------------------------
// the parts tell each other

void Agent::market_up(const std::string& own_address) {
    offer_->step([](Provider& p, provider::Outputs& out) { p.market_up(out); });
    home_->market_up(own_address);
    ledger_->compare();
    use_->tell(true);
}

void Agent::market_drained() { home_->market_drained(); }

void Agent::market_tried() {
    if (const auto told = std::exchange(on_ready_, nullptr)) told();
}

void Agent::from_market(const FromMarket& message) {
    if (const auto* note = std::get_if<ProviderNote>(&message)) {
        offer_->noted(*note);
        return guests_->set_of_market(note->of_market);
    }
    home_->from_market(message);
    if (std::holds_alternative<JobNote>(message)) ledger_->compare_soon();
}

void Agent::guests_stepped() {
    rules_->guests_stepped();
    presence_->guests_stepped();
    shutdown_->guests_stepped();
}

// -------------------------------------------------------------------------------------------------
// while it runs

// Each second it reads how busy this node and its guests are, and tells whoever decides by it.
void Agent::tick_load() {
    const LoadReading reading = load_.read(offer_->provider().record().cpus);
    offer_->step(
        [&](Provider& p, provider::Outputs& out) { p.set_load(reading, Loop::now(), out); });
    home_->free_memory(reading.free_mb);
    presence_->see_load(reading, load_ticks_);
    guests_->look(load_ticks_);
    use_->tell_sends();
    if (share_) share_->capsules().drop_kept(monotonic_now(), group_kept);
    if (++load_ticks_ % trim_ticks == 0) ::malloc_trim(0);  // a burst of jobs has left free memory
    load_timer_ = loop_.after(load_period, [this] { tick_load(); });
}

// The offer is made anew, as at a start. What pvdctl has set still holds over the configuration.
Result<ConfigChange> Agent::reload(const Config& now, ConfigText& text, const ConfigText& read) {
    TRY_ASSIGN(Provider provider, offer_->made_of(now));
    // The file of users may have changed too. souk-root knows its path from the start.
    TRY(guests_->users().reload(config_));
    const ConfigChange change =
        take_keys(std::span<const ReloadedKey<Config>>(reloaded_keys), config_, now, text, read);
    guests_->take_resources();
    home_->step([&](Home& h, home::Outputs&) { h.configured(config_.home); });
    guests_->configured();
    offer_->replace(std::move(provider));
    offer_->step([this](Provider& p, provider::Outputs& out) {
        p.set_here(presence_->is_here(), out);
        p.set_resting(presence_->why_paused(), out);
        p.set_leaving(presence_->why_leaving(), out);
        p.started(offer_->wall_now(), out);
        p.market_up(out);
    });
    offer_->arm();
    presence_->configured();
    return change;
}

}  // namespace souk
