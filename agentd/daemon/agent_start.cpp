// SPDX-License-Identifier: GPL-2.0-or-later
// Agent: start. Directories, control groups, what the owner offers, and finding again what the
// daemon before left.
#include <fcntl.h>
#include <linux/capability.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "agentd/daemon/agent.hpp"
#include "agentd/daemon/tool_session.hpp"
#include "kernel/base/number.hpp"
#include "kernel/sys/host/log.hpp"
#include "kernel/sys/host/probe.hpp"

namespace souk {
namespace {

constexpr uint32_t tmpfs_magic = 0x01021994;
constexpr int64_t capsules_mb = 128;  // for the few pages that each of guests_max keeps
constexpr Nanos load_period = Nanos::from_s(1);
// a market that is started again takes less
constexpr Nanos outage_worth_telling = Nanos::from_s(1);
constexpr uint64_t trim_ticks = 30, look_ticks = 60;
constexpr Nanos group_limit = Nanos::from_s(2), listen_patience = Nanos::from_s(2);

// As it says itself ("Version: 4.2.1").
Result<std::string> criu_version(const CriuTool& tool) {
    std::string command;
    for (const std::string& word : tool.command) command += "'" + word + "' ";
    FILE* out = ::popen((command + "--version 2>&1").c_str(), "re");
    if (!out) return fail_errno("run " + command, errno);
    char line[256] = {};
    const bool got = std::fgets(line, sizeof line, out) != nullptr;
    ::pclose(out);
    const std::string_view text = line;
    if (!got || !text.starts_with("Version: "))
        return fail("CRIU does not tell its version: " + std::string(text));
    const size_t end = text.find_first_of("\r\n ", 9);
    return std::string(text.substr(9, end == std::string_view::npos ? end : end - 9));
}

Status make_dir(const std::string& path) {
    std::error_code error;
    std::filesystem::create_directories(path, error);
    if (error) return fail("create " + path + ": " + error.message());
    if (::chmod(path.c_str(), 0700) != 0) return fail_errno("chmod " + path, errno);
    return {};
}

// Unless it lies on one already.
Status make_tmpfs(const std::string& dir, int64_t size_mb, const char* more) {
    struct statfs fs {};
    if (::statfs(dir.c_str(), &fs) != 0) return fail_errno("stat " + dir, errno);
    if (static_cast<uint32_t>(fs.f_type) == tmpfs_magic) return {};
    const std::string options = "mode=0700,size=" + std::to_string(size_mb) + "m" + more;
    if (::mount("souk", dir.c_str(), "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, options.c_str()) !=
        0)
        return fail_errno("mount a tmpfs on " + dir, errno);
    return {};
}

int64_t memory_total_mb() {
    struct sysinfo info {};
    ::sysinfo(&info);
    return static_cast<int64_t>(info.totalram) * info.mem_unit >> 20;
}

int64_t memory_free_mb() {
    const auto text = read_file(AT_FDCWD, "/proc/meminfo");
    const size_t at = text ? text->find("MemAvailable:") : std::string::npos;
    return at == std::string::npos ? 0 : std::atoll(text->c_str() + at + 13) / 1024;
}

}  // namespace

Status Agent::begin(std::function<void()> on_ready) {
    on_ready_ = std::move(on_ready);
    TRY(open_directories());
    auto criu = config_.criu.empty() ? find_criu() : find_criu(config_.criu);
    if (!criu) return tl::unexpected(criu.error());
    criu_ = std::move(*criu);
    TRY_ASSIGN(const std::string version, criu_version(criu_));
    TRY_ASSIGN(site_.machine, this_machine(version));
    TRY(open_cgroups());
    home_.tell_to(trace_.listener());
    guest_.tell_to(trace_.listener());
    if (!have_capability(CAP_SYS_RESOURCE)) {
        site_.restriction =
            "agentd lacks CAP_SYS_RESOURCE: jobs of other users than root cannot be moved, frozen "
            "or checkpointed on this node";
        log_.warning("some jobs cannot move", {{"WHY", site_.restriction}});
    }

    const std::string own = std::filesystem::read_symlink("/proc/self/exe").parent_path();
    site_.loop = &loop_;
    site_.log = &log_;
    site_.init_path = own + "/souk-init";
    site_.criu = &criu_;
    if (config_.awake_for_moves) site_.awake = &awake_;
    site_.network = config_.network;
    if (auto possible = make_pages_possible(); !possible)
        log_.warning("jobs move with all their memory in the image", {{"WHY", possible.error()}});
    else
        site_.pages_possible = true;
    const Need marks = examine_soft_dirty();
    site_.ahead_possible = marks.met;
    site_.check_ahead = config_.check_ahead;
    log_.info(marks.met ? "memory is sent ahead of moves" : "memory is not sent ahead of moves",
              {{"WHY", marks.found}});
    site_.ahead_dropped = [this](const GuestKey& key) { ahead_->close(key); };
    site_.want_pages = [this](const GuestKey& key, bool restored, uint64_t put,
                              const std::vector<PageRange>& wishes) {
        wire::PagesState state{put, restored, {}};
        for (const PageRange& w : wishes) {
            if (state.wishes.size() == wire::page_wishes_max)
                transfers_->want(key, std::exchange(state, {put, restored, {}}));
            state.wishes.push_back(w);
        }
        transfers_->want(key, state);
    };
    site_.pages_whole = [this](const GuestKey& key) { transfers_->whole(key); };
    site_.pages_refused = [this](const GuestKey& key, const std::string& why) {
        transfers_->refuse(key, why);
    };
    site_.event = [this](const GuestKey& key, const CellEvent& e) { cell_event(key, e); };
    site_.output = [this](const GuestKey& key, uint32_t s, uint64_t o, std::string_view b) {
        return cell_output(key, s, o, b);
    };
    site_.input_taken = [this](const GuestKey& key, uint64_t offset) {
        const wire::StdioInputAck ack{key.id, key.epoch, offset};
        if (key.id.home != config_.node) return (void)peers_->to_home(key.id.home, ack);
        after_commit([this, ack] { stdio_input_ack(config_.node, ack); });
    };
    site_.cgroup_changed = [this](const std::string& group, bool added) {
        if (!load_) return;
        if (auto done = added ? load_->add(group, !tools_listener_) : load_->remove(group); !done)
            log_.limited("load", Loop::now(), Level::warning, "its load is not measured",
                         {{"group", group}, {"WHY", done.error()}});
    };

    TRY_ASSIGN(Fd spools, open_at(AT_FDCWD, config_.state + "/home", O_RDONLY | O_DIRECTORY));
    terminals_ = std::make_unique<Terminals>(
        loop_, std::move(spools), static_cast<uint64_t>(config_.output_mb) << 20, outlet());
    Peers::Handlers peers;
    peers.guest_up = [this](const NodeName& node) {
        home_step([&](Home& h, home::Outputs& out) { h.guest_up(node, Loop::now(), out); });
    };
    peers.undelivered = [this](const NodeName& node, const GuestCommand& c) {
        home_step([&](Home& h, home::Outputs& out) { h.undelivered(node, c, Loop::now(), out); });
    };
    peers.from_guest = [this](const NodeName& node, const wire::Frame& f) {
        return from_guest(node, f);
    };
    peers.guest_needed = [this](const NodeName& node) { return home_.needs_guest(node); };
    peers.guest_drained = [this](const NodeName& node) {  // what did not fit was lost
        for (const auto& [seq, job] : home_.jobs())
            if (job.phase == JobPhase::running && job.at.node == node) terminals_->resync(job);
    };
    peers.home_up = [this](const NodeName& node) { home_up(node); };
    peers.home_down = [this](const NodeName& node) {
        guest_step([&](Guest& g, guest::Outputs&) { g.home_down(node); });
    };
    peers.from_home = [this](const NodeName& node, const wire::Frame& f) {
        return from_home(node, f);
    };
    peers.home_drained = [this](const NodeName& node) {
        for (const auto& [key, c] : cells_)
            if (key.id.home == node) c->resync();
    };
    peers.from_image = [this](uint64_t number, const NodeName& node, const wire::Frame& f) {
        return AheadLinks::takes(f) ? ahead_->frame(number, node, f)
                                    : transfers_->frame(number, node, f);
    };
    peers.image_closed = [this](uint64_t number) {
        transfers_->closed(number);
        ahead_->closed(number);
    };
    peers_ = std::make_unique<Peers>(loop_, log_, config_.node, config_.address, std::move(peers));

    Transfers::Handlers transfers;
    transfers.expects = [this](const GuestKey& key) { return guest_.expects_image(key); };
    transfers.image_dir = [this](const GuestKey& key) -> Result<Fd> {
        Cell* c = cell(key);
        return c ? c->image() : fail("no capsule waits for it");
    };
    transfers.received = [this](const GuestKey& key, const Manifest& m, MoveForm form) -> Status {
        Cell* c = cell(key);
        if (!c || m.job != key.id) return fail("the image is of job " + m.job.text());
        if (c->job().kept) {  // need not run here
            c->keep(m,
                    [this, key, form, bytes = static_cast<int64_t>(m.bytes())](const Status& kept) {
                        guest_step([&](Guest& g, guest::Outputs& out) {
                            if (kept)
                                g.image_received(key, bytes, form, out);
                            else if (g.expects_image(key))
                                g.image_failed(key, "keep its image: " + kept.error().message, out);
                        });
                    });
            return {};
        }
        TRY(can_take(site_.machine, m.machine));
        TRY(c->seal(m));
        if (form != MoveForm::stop_and_copy && !site_.pages_possible)
            return fail("this node cannot take memory past an image");
        c->expect_pages(form);
        guest_step([&](Guest& g, guest::Outputs& out) {
            g.image_received(key, static_cast<int64_t>(m.bytes()), form, out);
        });
        return {};
    };
    transfers.pages = [this](const GuestKey& key, const PageRange& range,
                             std::string_view bytes) -> Status {
        Cell* c = cell(key);
        return c ? c->put_pages(range, bytes) : Status{};
    };
    transfers.failed = [this](const GuestKey& key, const std::string& why) {
        guest_step([&](Guest& g, guest::Outputs& out) {
            if (g.expects_image(key))
                g.image_failed(key, why, out);
            else
                g.pages_lost(key, why, out);
        });
    };
    transfers.want = [this](uint64_t number, const wire::PagesState& state) {
        peers_->want_pages(number, state);
    };
    transfers.receive_raw = [this](uint64_t number, std::function<void(ByteView)> on_bytes) {
        peers_->receive_raw(number, std::move(on_bytes));
    };
    transfers.answer = [this](uint64_t number, const wire::ImageResult& r) {
        peers_->answer_image(number, r);
    };
    transfers_ = std::make_unique<Transfers>(loop_, BulkIdentity{config_.node, config_.address},
                                             std::move(transfers));
    open_ahead();

    MarketLink::Handlers market;
    market.question = [this](wire::CtlRequest r) {
        r.uid = UINT32_MAX;  // nobody's: what is root's alone is asked for here
        return view_request(r);
    };
    market.up = [this](const std::string& seen_at) {
        learn_address(seen_at);
        provider_step([](Provider& p, provider::Outputs& out) { p.market_up(out); });
        home_step([](Home& h, home::Outputs& out) { h.market_up(Loop::now(), out); });
        compare_ledger();
        outage_timer_.cancel();
        if (std::exchange(outage_told_, false)) tell_waiting();
    };
    market.down = [this] {
        home_step([](Home& h, home::Outputs&) { h.market_down(); });
        outage_timer_ = loop_.after(outage_worth_telling, [this] {
            outage_told_ = true;
            tell_waiting();
        });
    };
    market.tried = [this] {
        if (const auto told = std::exchange(on_ready_, nullptr)) told();
    };
    market.message = [this](const FromMarket& m) { from_market(m); };
    market_ = std::make_unique<MarketLink>(loop_, log_, config_.node, config_.address,
                                           config_.market, std::move(market));

    if (cgroups_) {
        TRY_ASSIGN(LoadProbe load,
                   LoadProbe::open(*cgroups_, config_.cgroup.substr(config_.cgroup.find('/') + 1)));
        load_ = std::make_unique<LoadProbe>(std::move(load));
        if (!load_->why_not_bpf().empty())
            log_.notice("load is read from /proc", {{"WHY", load_->why_not_bpf()}});
    }
    TRY(open_provider());
    TRY(recover_guests());
    TRY(recover_home());
    TRY(listen());
    arm_provider();
    tick_load();
    market_->start();
    return {};
}

Status Agent::open_directories() {
    site_.guests = config_.state + "/guests";
    const std::string images = config_.state + "/images", ram = config_.state + "/ram";
    for (const std::string& dir :
         {config_.state, config_.state + "/home", site_.guests, images, ram})
        TRY(make_dir(dir));
    const std::string reserve = config_.state + "/ballast";
    const auto open = [&]() -> Status {
        TRY_ASSIGN(StateDb db, StateDb::open(config_.state, {}));
        state_ = std::make_unique<JournalDb>(std::move(db), reserve);
        return {};
    };
    Status opened = open();
    const bool gave = !opened && opened.error().code == ENOSPC && JournalDb::give_up(reserve);
    if (gave) opened = open();
    if (!opened) return opened;
    if (state_->db().log_missing()) log_.warning(StateDb::log_missing_text(state_->db().path()));
    TRY_ASSIGN(const auto seen, state_->get("seen", config_.market));
    if (seen) seen_ = parse_receipt_mark(*seen).value_or(ReceiptMark{});
    tell_disk({.committed = {}, .gave_room = gave, .calls = {}}, false);
    state_->journal().take_room(Loop::now());
    loop_.defer([this] { flush(); });  // sets the journal's timer
    const int64_t size_mb = config_.ram_mb > 0 ? config_.ram_mb : memory_total_mb() / 2;
    // Big pages make writing and reading an image more than twice as fast; kernels without them
    // refuse the option.
    if (auto made = make_tmpfs(ram, size_mb, ",huge=within_size"); !made)
        TRY(make_tmpfs(ram, size_mb, ""));
    // What tells of a capsule is of no use after a reboot, and some files for each job that starts
    // and ends are the slowest that a disk's file system can be asked for. An older daemon's
    // capsules have theirs on the disk.
    TRY_ASSIGN(const auto older, list_dir(AT_FDCWD, site_.guests));
    if (older.empty()) TRY(make_tmpfs(site_.guests, capsules_mb, ""));
    TRY_ASSIGN(site_.images, open_at(AT_FDCWD, images, O_RDONLY | O_DIRECTORY));
    TRY_ASSIGN(site_.ram, open_at(AT_FDCWD, ram, O_RDONLY | O_DIRECTORY));
    return {};
}

Status Agent::open_cgroups() {
    const size_t slash = config_.cgroup.find('/');
    const std::string root = config_.cgroup.substr(0, slash),
                      node = config_.cgroup.substr(slash + 1);
    auto groups = Cgroups::open(root);
    if (!groups) {
        log_.warning("no control groups: a job is not held while its daemon is away during a dump",
                     {{"WHY", groups.error()}});
        return {};
    }
    cgroups_ = std::make_unique<Cgroups>(std::move(*groups));
    if (!cgroups_->layout().v2.empty()) guest_ = Guest(guests_max, true, config_.policy);
    site_.cgroups = cgroups_.get();
    site_.cgroup_parent = node + "/jobs";
    // The node's share: every capsule is born in it; this daemon and its dumps stay outside, so
    // that a busy job cannot hold them up.
    auto share = cgroups_->create(node, CgroupUse{.cpu = true});
    if (!share) share = cgroups_->create(node);
    if (!share) return tl::unexpected(share.error());
    if (auto set = share->set_cpu_weight(config_.cpu_weight); !set) {
        log_.warning("no CPU share", {{"WHY", set.error()}});
    }
    share_ = std::move(*share);
    // What limits a job, where this machine has a controller for it (souk doctor).
    const auto try_limit = [&](bool CgroupUse::*controller, const char* name) {
        CgroupUse use;
        use.*controller = true;
        const auto jobs = cgroups_->create(site_.cgroup_parent, use);
        if (!jobs)
            log_.warning("jobs are not limited", {{"controller", name}, {"WHY", jobs.error()}});
        site_.limits.*controller = jobs && jobs->has(name);
    };
    try_limit(&CgroupUse::memory, "memory");
    try_limit(&CgroupUse::pids, "pids");
    try_limit(&CgroupUse::cpu, "cpu");
    site_.cpus = hardware().cpus;
    if (site_.limits.memory)
        if (auto jobs = cgroups_->create(site_.cgroup_parent, CgroupUse{.memory = true}))
            jobs_group_ = std::move(*jobs);
    site_.pids_max = config_.pids_max;
    for (const int tasks : share_->entry().v1_tasks)
        if (tasks >= 0) site_.v1_tasks.push_back(tasks);
    return {};
}

Hardware Agent::hardware() const {
    Hardware m;
    m.cpus = static_cast<int32_t>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)));
    m.memory_mb = std::max<int64_t>(1, memory_total_mb());
    m.machine = site_.machine;
    m.restriction = site_.restriction;
    return m;
}

Status Agent::open_provider() {
    ProviderRecord record;
    std::optional<ProviderRecord> kept;
    record.reserve = config_.price;
    record.speed = config_.speed;
    const Hardware m = hardware();
    record.cpus = config_.cpus > 0 ? config_.cpus : m.cpus;
    record.memory_mb = config_.memory_mb > 0 ? config_.memory_mb : m.memory_mb;
    record.frames = config_.frames;
    record.on_market = config_.on_market;
    TRY_ASSIGN(const auto stored, state_->db().load("provider"));
    for (const auto& row : stored) {
        TRY_ASSIGN(kept, wire::unpack<ProviderRecord>(row.value));
    }
    TRY_ASSIGN(Provider provider, Provider::create(config_.node, m, record, kept));
    provider_ = std::make_unique<Provider>(std::move(provider));
    provider_->tell_to(trace_.listener());
    for (const Provider::Override& o : provider_->overrides())
        log_.notice("what pvdctl set holds, not the configuration",
                    {{"name", o.name}, {"value", o.value}, {"configuration", o.file}});
    provider_step([](Provider& p, provider::Outputs& out) { p.started(wall_now(), out); });
    return {};
}

// An agent that listens on every address is told by its market where that sees it. Kept, as
// checkpoints need it also when the market is away.
void Agent::learn_address(const std::string& seen_at) {
    if (config_.home.address_known || seen_at.empty()) return;
    home_.own_address(seen_at);
    const auto known = state_->get("address", "own");
    if (!known || *known != seen_at) put("address", "own", seen_at, Durable::later);
}

Status Agent::recover_home() {
    if (!config_.home.address_known) {
        TRY_ASSIGN(const auto address, state_->get("address", "own"));
        if (address) home_.own_address(*address);  // as it was told last
    }
    TRY_ASSIGN(const auto stored, state_->db().load("home"));
    for (const auto& row : stored) {
        auto job = wire::unpack<HomeJob>(row.value);
        if (!job) return wrap("state of job " + row.key, job.error());
        home_.load(std::move(*job));
    }
    home_step([](Home& h, home::Outputs& out) { h.restarted(Loop::now(), out); });
    for (const NodeName& node : home_.guests_needed()) {
        const auto peer = home_.peer_of(node);
        if (node != config_.node && peer) peers_->need(*peer);
    }
    // This node as its own guest is always there.
    home_step([&](Home& h, home::Outputs& out) { h.guest_up(config_.node, Loop::now(), out); });
    for (const auto& [seq, job] : home_.jobs()) {
        if (job.phase == JobPhase::finished)
            finish_terminals(job.id);
        else
            terminals_->splice(job);
    }
    return {};
}

Status Agent::recover_guests() {
    TRY_ASSIGN(const auto stored, state_->db().load("guest"));
    std::set<std::string> known;
    for (const auto& row : stored) {
        auto job = wire::unpack<GuestJob>(row.value);
        if (!job) return wrap("state of guest " + row.key, job.error());
        known.insert(job->key.text());
        auto& c = cells_[job->key] = std::make_unique<Cell>(site_, *job);
        const Guest::Found found = c->adopt();
        log_.info("found", {{"JOB", job->key.id.text()},
                            {"EPOCH", job->key.epoch.n},
                            {"capsule", found.capsule_alive ? "alive" : "gone"},
                            {"job", found.exited           ? "exited"
                                    : found.job_alive      ? "alive"
                                    : found.image_complete ? "frozen"
                                                           : "gone"}});
        guest_step([&](Guest& g, guest::Outputs& out) { g.recovered(*job, found, out); });
    }
    // What was made before its record was, or removed after it: nobody knows it.
    for (const char* base : {"/guests", "/images", "/ram"}) {
        TRY_ASSIGN(const auto names, list_dir(AT_FDCWD, config_.state + base));
        for (std::string name : names) {
            if (name.ends_with(".part")) name.resize(name.size() - 5);
            if (known.contains(name)) continue;
            const size_t dot = name.rfind('.');
            const auto id = dot == std::string::npos ? Result<JobId>(fail(""))
                                                     : parse_job_id(name.substr(0, dot));
            if (!id) {
                std::error_code ignored;
                std::filesystem::remove_all(config_.state + base + "/" + name, ignored);
                continue;
            }
            GuestJob stray;
            const auto epoch = leading_number<uint64_t>(std::string_view(name).substr(dot + 1));
            stray.key = {*id, Epoch{epoch.value_or(0)}};
            // what it may have is not known: it is looked for in every hierarchy of a limit
            stray.memory_mb = 1;
            auto& c = cells_[stray.key] = std::make_unique<Cell>(site_, stray);
            (void)c->adopt();
            guest_.stray(stray.key);
            c->remove();
            known.insert(name);
        }
    }
    if (!cgroups_) return {};
    // Groups of capsules that ended while nobody looked.
    const auto groups = cgroups_->list(site_.cgroup_parent);
    for (const std::string& name : groups ? *groups : std::vector<std::string>{}) {
        const bool in_use = std::any_of(cells_.begin(), cells_.end(), [&](const auto& c) {
            return c.first.text() == name && c.second->has_capsule();
        });
        if (in_use) continue;
        if (auto removed = cgroups_->remove(site_.cgroup_parent + "/" + name, group_limit);
            !removed)
            log_.warning("cannot remove a control group", {{"WHY", removed.error()}});
    }
    return {};
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
    TRY_ASSIGN(const Address path, Address::parse("unix:" + config_.socket));
    // Every user may submit; who calls is the kernel's word.
    auto local = listen_stream(path, 1024, 0666, listen_patience);
    if (!local) return wrap("listen on " + config_.socket, local.error());
    TRY_ASSIGN(tools_listener_,
               loop_.listen(
                   std::move(*local), [this](Fd s) { accept_tool(std::move(s)); }, trouble));
    return {};
}

void Agent::tick_load() {
    LoadReading reading;
    reading.free_mb = memory_free_mb();
    reading.source = load_ ? load_->source() : "none";
    if (const auto sample = load_ ? load_->read_node() : Result<LoadSample>(fail("")); sample) {
        const Nanos now = Loop::now();
        const int64_t span = (now - load_at_).ns * provider_->record().cpus;
        const auto permille = [&](Nanos part, Nanos before) {
            return span > 0 ? static_cast<int32_t>(std::clamp<int64_t>(
                                  (part - before).ns * 1000 / span, 0, 1'000'000))
                            : 0;
        };
        reading.load_permille = permille(sample->run, load_sample_.run);
        reading.wait_permille = permille(sample->wait, load_sample_.wait);
        load_sample_ = *sample;
        load_at_ = now;
    }
    provider_step(
        [&](Provider& p, provider::Outputs& out) { p.set_load(reading, Loop::now(), out); });
    apply_bounds();  // what could not be yet
    // Each job when it is new, and then once a minute, a few of them now.
    size_t n = 0;
    for (const auto& [key, c] : cells_)
        if (n++ % look_ticks == load_ticks_ % look_ticks || !c->looked() || c->looks_often())
            c->look();
    if (++load_ticks_ % trim_ticks == 0) ::malloc_trim(0);  // what a burst of jobs has left
    load_timer_ = loop_.after(load_period, [this] { tick_load(); });
}

}  // namespace souk
