// SPDX-License-Identifier: GPL-2.0-or-later
// Agent: start. Directories and state, control groups, what this machine can, what the owner
// offers, and the sockets.
#include <fcntl.h>
#include <linux/capability.h>
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

#include <cerrno>
#include <filesystem>

#include "agentd/daemon/agent.hpp"
#include "agentd/store/records.hpp"
#include "checkpoint/page_sink.hpp"
#include "kernel/sys/host/log.hpp"
#include "kernel/sys/host/probe.hpp"

namespace souk {
namespace {

constexpr uint32_t tmpfs_magic = 0x01021994;
constexpr int64_t capsules_mb = 128;  // for the few pages that each of guests_max keeps
constexpr Nanos listen_patience = Nanos::from_s(2);

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

}  // namespace

Status Agent::begin(std::function<void()> on_ready) {
    on_ready_ = std::move(on_ready);
    TRY(Capsule::prepare());
    TRY(open_directories());
    TRY(open_trust());
    TRY(open_criu());
    TRY(open_share());
    home_.tell_to(trace_.listener());
    guest_.tell_to(trace_.listener());
    examine_node();
    wire_cells();
    TRY_ASSIGN(Fd spools, open_at(AT_FDCWD, config_.state + "/home", O_RDONLY | O_DIRECTORY));
    terminals_ = std::make_unique<Terminals>(
        loop_, std::move(spools), static_cast<uint64_t>(config_.output_mb) << 20, outlet());
    wire_peers();
    wire_transfers();
    open_precopy();
    TRY(wire_ledger());
    wire_market();
    TRY(open_provider());
    TRY(recover_guests());
    TRY(recover_home());
    TRY(listen());
    arm_provider();
    tick_load();
    tick_certificate();
    market_->start();
    return {};
}

Status Agent::open_criu() {
    auto criu = config_.criu.empty() ? find_criu() : find_criu(config_.criu);
    if (!criu) return tl::unexpected(criu.error());
    criu_ = std::move(*criu);
    TRY_ASSIGN(const std::string version, criu_version(criu_));
    TRY_ASSIGN(site_.machine, this_machine(version));
    return {};
}

// What jobs may do here and what they cannot: each lack is said once.
void Agent::examine_node() {
    if (!have_capability(CAP_SYS_RESOURCE)) {
        site_.restriction =
            "agentd lacks CAP_SYS_RESOURCE: jobs of other users than root cannot be moved, frozen "
            "or checkpointed on this node";
        log_.warning("some jobs cannot move", {{"WHY", site_.restriction}});
    }
    const std::string own = std::filesystem::read_symlink("/proc/self/exe").parent_path();
    site_.init_path = own + "/souk-init";
    if (config_.awake_for_moves) site_.awake = &awake_;
    site_.network = config_.network;
    if (auto possible = make_pages_possible(); !possible)
        log_.warning("jobs move with all their memory in the image", {{"WHY", possible.error()}});
    else
        site_.pages_possible = true;
    const Need marks = examine_soft_dirty();
    site_.precopy_possible = marks.met;
    site_.check_precopy = config_.check_precopy;
    log_.info(marks.met ? "memory is sent ahead of moves" : "memory is not sent ahead of moves",
              {{"WHY", marks.found}});
}

Status Agent::open_directories() {
    site_.guests = config_.state + "/guests";
    const std::string images = config_.state + "/images", ram = config_.state + "/ram";
    for (const std::string& dir :
         {config_.state, config_.state + "/home", site_.guests, images, ram})
        TRY(make_dir(dir));
    TRY_ASSIGN(state_, Commits::open(loop_, log_, config_.state));
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

Status Agent::open_share() {
    TRY_ASSIGN(share_, NodeShare::open(log_, config_.cgroup, config_.cpu_weight));
    if (!share_) return {};
    const Cgroups& cgroups = share_->cgroups();
    if (!cgroups.layout().v2.empty()) guest_ = Guest(guests_max, true, config_.policy);
    site_.groups = &share_->capsules();
    site_.limits = share_->limits();
    site_.v1_tasks = share_->v1_tasks();
    site_.cpus = hardware().cpus;
    site_.pids_max = config_.pids_max;
    return load_.open(cgroups, config_.cgroup.substr(config_.cgroup.find('/') + 1));
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
    TRY_ASSIGN(const auto stored, state_->db().db().load("provider"));
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
    const auto known = state_->db().get("address", "own");
    if (!known || *known != seen_at) state_->put("address", "own", seen_at, Durable::later);
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

}  // namespace souk
