// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/daemon/config.hpp"

#include <fcntl.h>
#include <net/if.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <sstream>

#include "agentd/core/files_choice.hpp"
#include "agentd/daemon/config_owner.hpp"
#include "agentd/daemon/guest_users.hpp"
#include "kernel/base/node_address.hpp"
#include "kernel/base/number.hpp"
#include "kernel/base/text.hpp"
#include "kernel/sys/host/fd.hpp"
#include "kernel/sys/host/settings.hpp"
#include "kernel/sys/host/zone.hpp"
#include "kernel/sys/net/socket.hpp"
#include "kernel/sys/net/srv.hpp"
#include "kernel/sys/process/cgroup.hpp"
#include "kernel/sys/store/same_files.hpp"
#include "market/core/needs.hpp"
#include "market/core/types.hpp"

namespace souk {
namespace {

struct NetworkKeys {
    std::string network, bridge, gateway, addresses;
};

Status check_network(const NetworkKeys& k, Config& c) {
    if (k.network.empty() != k.bridge.empty())
        return fail("job_network and job_bridge: both or none");
    if (k.network.empty() && !(k.gateway.empty() && k.addresses.empty()))
        return fail("job_gateway and job_addresses need job_network");
    if (k.network.empty()) return {};
    JobNetwork n;
    if (k.bridge.size() >= IFNAMSIZ || k.bridge.find_first_of("/: \t") != std::string::npos ||
        k.bridge == "." || k.bridge == "..")
        return fail("job_bridge: '" + k.bridge +
                    "' cannot be the name of an interface (15 bytes at most)");
    n.bridge = k.bridge;
    auto range = parse_ipv4_range(k.network);
    if (!range) return wrap("job_network", range.error());
    n.range = *range;
    if (!k.gateway.empty()) {
        const auto gateway = parse_ipv4(k.gateway);
        if (!gateway) return wrap("job_gateway", gateway.error());
        if (!n.range.contains(*gateway))
            return fail("job_gateway: " + k.gateway + " is not in " + k.network);
        n.gateway = *gateway;
    }
    if (!k.addresses.empty()) {
        const auto addresses = parse_ipv4_range(k.addresses);
        if (!addresses) return wrap("job_addresses", addresses.error());
        if (!n.range.contains(*addresses))
            return fail("job_addresses: " + k.addresses + " is not in " + k.network);
        if (addresses->contains(n.gateway))
            return fail("job_addresses: " + k.addresses + " holds the gateway");
        c.home.addresses = *addresses;
    }
    c.network = n;
    return {};
}

// The first half of what the kernel calls this boot; 0: it does not say.
uint64_t boot_number() {
    auto text = read_file(AT_FDCWD, "/proc/sys/kernel/random/boot_id");
    if (!text) return 0;
    std::erase(*text, '-');
    return leading_number<uint64_t>(std::string_view(*text).substr(0, 16), 16).value_or(0);
}

// Half of what this node offers for each of its CPUs, so that such a job finds a place also on a
// small machine.
int64_t machine_memory_mb() {
    struct sysinfo info {};
    ::sysinfo(&info);
    return static_cast<int64_t>(info.totalram) * info.mem_unit >> 20;
}

int64_t default_memory_mb(const Config& c) {
    const int64_t memory_mb = c.memory_mb > 0 ? c.memory_mb : machine_memory_mb();
    const int64_t cpus = c.cpus > 0 ? c.cpus : std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN));
    return std::clamp<int64_t>(memory_mb / (2 * cpus), 16, 1'024);
}

// Long: key by key.
Status check(Config& c, const ReadFile& read) {
    if (c.node.empty()) {
        char host[256] = {};
        ::gethostname(host, sizeof host - 1);
        c.node = std::string(host).substr(0, std::string_view(host).find('.'));
    }
    if (!valid_node_name(c.node))
        return fail("node: '" + c.node +
                    "' is no node name (a letter, then letters, digits or -; 32 at most)");
    if (c.identity.empty()) c.identity = c.state + "/identity";
    if (c.market.empty()) {
        if (c.insecure) return fail("market: missing; set it to the market's host:port");
        const auto found = find_service(market_service);
        if (!found)
            return fail("market: missing; set it to the market's host:port (" +
                        found.error().message + ")");
        c.market = *found;
    }
    const auto everywhere = [](const std::string& address) {
        return address.starts_with("0.0.0.0:") || address.starts_with("[::]:") ||
               address.starts_with("*:");
    };
    if (everywhere(c.address))
        return fail(
            "address: " + c.address +
            " names no machine; give the one at which other machines reach this one, or leave "
            "`address` out: then they are told where the market sees it");
    if (c.address.empty()) {  // others take numbers only
        TRY_ASSIGN(const Address listen, Address::resolve(c.listen));
        c.address = listen.text();
    }
    if (!c.gateway.empty()) {
        const auto gateway = Address::resolve(c.gateway);
        if (!gateway) return wrap("gateway", gateway.error());
        c.gateway = gateway->text();
        c.address = NodeAddress{c.address, c.gateway}.text();
    }
    c.home.address = c.address;
    c.home.address_known = !everywhere(c.address);
    c.home.boot = boot_number();
    if (c.home.memory_default_mb < 0) c.home.memory_default_mb = default_memory_mb(c);
    constexpr int64_t part_kept_free = 20;
    if (c.owner_free_mb < 0) c.owner_free_mb = machine_memory_mb() / part_kept_free;
    if (const auto bad = c.run_keep.find_first_not_of(
            "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_/-. ");
        bad != std::string::npos || c.run_keep.find("..") != std::string::npos)
        return fail("run_keep: '" + c.run_keep +
                    "' are no names of directories below /run, parted by spaces");
    if (!c.near_group.empty() && !valid_node_name(c.near_group))
        return fail("near_group: '" + c.near_group + "' is no name as that of a node is");
    if ((c.near_round_trip_us > 0 || c.near_mbit_per_s > 0) && c.near_group.empty())
        return fail("near_round_trip_us, near_mbit_per_s: say near_group, too: near to whom?");
    if (auto dirs = directories_of(c.shared_files); !dirs)
        return wrap("shared_files", dirs.error());
    const size_t slash = c.cgroup.find('/');
    if (slash == std::string::npos || slash == 0 || slash + 1 == c.cgroup.size() ||
        !valid_cgroup_name(c.cgroup))
        return fail("cgroup: needs ROOT/NODE, each of letters, digits, '.', '_' or '-'");
    // The offer is judged as at the start.
    ProviderRecord offer;
    offer.reserve = c.price;
    if (c.speed > 0) offer.speed = c.speed;
    offer.cpus = std::max(c.cpus, 1);
    offer.memory_mb = std::max<int64_t>(c.memory_mb, 1);
    offer.frames = c.frames;
    offer.zone = c.frames_zone;
    offer.curve = c.price_curve;
    offer.share = c.share;
    if (auto known = known_zone(c.frames_zone); !known) return wrap("frames_zone", known.error());
    TRY(Provider::create(c.node, Hardware{}, offer));
    if (auto apart = TimeFrames::parse_apart(c.frames); !apart)
        c.frames_trouble = "frames: " + apart.error().message;
    TRY(load_user_map(c, "souk", read));
    return {};
}

Result<std::vector<std::string>> offered_paths(const std::string& words) {
    TRY_ASSIGN(auto paths, directories_of(words));
    for (const std::string& path : paths)
        if (!may_lie_over(path)) return fail("'" + path + "' cannot lie over a home's files");
    return paths;
}

// NAME=VALUE, parted by commas.
Result<std::map<std::string, std::string>> attributes_of(std::string_view text) {
    constexpr std::array reserved = {"node", "cpus",   "memory",    "speed",
                                     "arch", "kernel", "cpu.flags", "near"};
    constexpr size_t most = 64, value_max = 120;
    const auto trimmed = [](std::string_view t) {
        while (t.starts_with(' ')) t.remove_prefix(1);
        while (t.ends_with(' ')) t.remove_suffix(1);
        return std::string(t);
    };
    std::map<std::string, std::string> all;
    while (!text.empty()) {
        const std::string_view item = text.substr(0, text.find(','));
        text.remove_prefix(std::min(item.size() + 1, text.size()));
        if (trimmed(item).empty()) continue;
        const size_t sign = item.find('=');
        const std::string name = trimmed(item.substr(0, sign));
        if (!market::valid_attribute_name(name))
            return fail("'" + name +
                        "' is no name of an attribute: letters, digits, '-', '_', and dots between "
                        "words");
        if (std::ranges::find(reserved, name) != reserved.end())
            return fail("'" + name + "' is found by the node itself");
        const std::string value = sign == item.npos ? "yes" : trimmed(item.substr(sign + 1));
        TRY(check_label(value, value_max));
        all[name] = value;
        if (all.size() > most) return fail("more than " + std::to_string(most) + " attributes");
    }
    return all;
}

std::vector<std::string> words_of(std::string_view text) {
    std::vector<std::string> all;
    while (!text.empty()) {
        const std::string_view word = text.substr(0, text.find(' '));
        text.remove_prefix(std::min(word.size() + 1, text.size()));
        if (!word.empty()) all.emplace_back(word);
    }
    return all;
}

Result<std::vector<NodeResource>> resources_of(ResourceTable counts, const ResourceTable& reserves,
                                               const ResourceTable& devices) {
    for (const auto& [name, files] : devices)
        counts.try_emplace(name, std::to_string(words_of(files).size()));
    TRY_ASSIGN(const std::vector<ResourceOffer> offers, resource_offers(counts, reserves));
    std::vector<NodeResource> all;
    std::map<std::string, std::string> listed;
    for (const ResourceOffer& offer : offers) {
        NodeResource one{offer, {}};
        if (const auto known = devices.find(offer.name); known != devices.end())
            one.files = words_of(known->second);
        one.offer.device = !one.files.empty();
        for (const std::string& file : one.files) {
            const std::filesystem::path path(file);
            if (!file.starts_with("/dev/") || file != path.lexically_normal().native() ||
                file.ends_with('/'))
                return fail(offer.name + ": '" + file +
                            "' is no file below /dev, without '//', '.' and '..'");
            if (const auto [at, is_new] = listed.emplace(file, offer.name); !is_new)
                return fail(offer.name + ": " + file + " is listed twice, under " + at->second +
                            " before: each device has one name");
        }
        if (one.offer.device && offer.count > std::ssize(one.files))
            return fail(offer.name + ": there are " + std::to_string(offer.count) + " of it, and " +
                        std::to_string(one.files.size()) + " devices");
        if (one.offer.device && offer.count > static_cast<int64_t>(guest_devices_max))
            return fail(offer.name + ": more than " + std::to_string(guest_devices_max) +
                        " devices");
        all.push_back(std::move(one));
    }
    return all;
}

Result<std::vector<std::string>> programs_of(std::string_view text) {
    constexpr size_t most = 32;
    std::vector<std::string> all;
    while (!text.empty()) {
        const std::string_view word = text.substr(0, text.find(' '));
        text.remove_prefix(std::min(word.size() + 1, text.size()));
        if (word.empty()) continue;
        if (!market::valid_attribute_name("program." + std::string(word)))
            return fail("'" + std::string(word) + "' is no name of a program without a directory");
        all.emplace_back(word);
        if (all.size() > most) return fail("more than " + std::to_string(most) + " programs");
    }
    return all;
}

Result<std::vector<std::string>> hidden_directories(const std::string& words) {
    constexpr size_t most = 64;
    TRY_ASSIGN(auto paths, directories_of(words));
    if (paths.size() > most) return fail("more than " + std::to_string(most) + " directories");
    for (const std::string& path : paths)
        if (path.find_first_not_of('/') == path.npos) return fail("a job cannot do without '/'");
    return paths;
}

// The settings are written into this.
struct Reading {
    Config config;
    NetworkKeys network;
    OwnerKeys owner;
    std::string filter = "limit-users", tickets = "required", wake = "fit", files = "local",
                tmp = "home", local_paths, hidden, attributes, programs;
    ResourceTable resources, resource_reserves, resource_devices;

    Reading() { config.home.memory_default_mb = -1; }
    settings::Settings settings();
    void add_place(settings::Settings& all);
    void add_jobs(settings::Settings& all);
    void add_files(settings::Settings& all);
    void add_network(settings::Settings& all);
    void add_offer(settings::Settings& all);
};

using namespace settings;

// Long: a table.
void Reading::add_place(Settings& all) {
    Config& c = config;
    const std::vector<std::string> rules = {"required", "accepted"};
    const Settings some = {
        {"node", text(c.node), "The name of this node in the market; no other has it.", "\"n1\"",
         "this host's name, up to the first dot"},
        {"listen", listener(c.listen), "Where other nodes connect to this one.",
         "\"0.0.0.0:7071\""},
        {"metrics", address(c.metrics),
         "Where Prometheus gets this node's figures (http, /metrics); nothing asks who it is, so "
         "give an address that only its machine reaches.",
         "\"127.0.0.1:7078\"", "nowhere"},
        {"status_file", text(c.status_file),
         "A file that says how this node is, for scripts, as lines NAME=VALUE "
         "(docs/metrics.md); it is replaced whole. Give a path below /run/souk, where the unit "
         "may write.",
         "\"/run/souk/agentd.status\"", "none"},
        {"status_file_s", seconds(c.status_every, 1, 3'600), "How often that file is written.",
         "\"10s\""},
        {"address", address(c.address), "What other nodes are told to connect to.",
         "\"192.0.2.7:7071\"", "`listen`; if that is everywhere, where the market sees this node"},
        {"gateway", listener(c.gateway),
         "This node's gateway: a node of its site with `relay = true`, by which others reach this "
         "one, such as behind NAT (docs/sites.md). Its name is looked up when the daemon starts.",
         "\"192.0.2.1:7071\"", "none: all others reach this node"},
        {"relay", boolean(c.relay),
         "This node is a gateway: it relays connections to nodes of its site that name it.",
         "true"},
        {"relay_out", boolean(c.relay_out),
         "It also connects to gateways of other sites, for its nodes that cannot (docs/sites.md).",
         "true"},
        {"market", peer(c.market),
         "The market. Without this key DNS is asked when the daemon starts, but not with insecure "
         "= true.",
         "\"market.example.org:7070\"",
         "as the SRV record `_souk._tcp` of this machine's domain says"},
        {"socket", socket_path(c.socket), "Where srun, pvdctl and marketctl on this node connect.",
         "\"/run/souk/agentd.sock\""},
        {"state", text(c.state), "The directory of what must outlive the daemon: records, images.",
         "\"/var/lib/souk/agentd\""},
        {"user", text(c.user),
         "Who agentd is when it has begun: an account of this machine, a number, or root. Where it "
         "cannot be that user it stays root, and says why.",
         "\"root\""},
        {"identity", text(c.identity),
         "The directory of this node's key and certificate (docs/certificates.md).",
         "\"/etc/souk/identity\"", "the directory `identity` in `state`"},
        {"insecure", boolean(c.insecure),
         "Talk without certificates: whoever reaches the port of this node is root on it. For a "
         "network that nobody else reaches.",
         "true"},
        {"insecure_until", moment(c.insecure_until),
         "Talk without certificates until then, while a market gets them, and with them from then "
         "on: agentd begins anew at that time, and jobs go on (docs/certificates.md).",
         "2026-11-30T12:00:00Z", "never"},
        {"guest_uid_min", number(c.guest_uid_min, 0, UINT32_MAX),
         "A job of another node is taken only with a user and a group from this number on; root "
         "and the system's own are nobody's but this machine's. Not asked with insecure = true.",
         "10000"},
        {"root_jobs", boolean(c.root_jobs),
         "Take jobs that root submits on this machine. They run here alone, and whoever gets "
         "agentd into his hands can then be root. Not asked with guest_uid_min = 0 or insecure = "
         "true, "
         "where root has jobs.",
         "true"},
        {"tickets", one_of(tickets, rules),
         "Whether the home of a job must show what the market has signed to start it here, to "
         "bring "
         "it here or to take it from here: always (required), or not yet, while a market or homes "
         "of "
         "the version before are being replaced (accepted). Not asked with insecure = true.",
         "\"accepted\""},
        {"user_map", text(c.user_map),
         "A file that says who the users of other homes are here, a line for each: REALM/USER = "
         "ACCOUNT (docs/security.md).",
         "\"/etc/souk/users.map\"",
         "none: the market's own users have the same numbers and names here; those of other sites "
         "are "
         "whom the market's operator says, if he has a user_map, else nobody (`* = -`: nobody)"},
        {"guest_groups", text(c.guest_groups),
         "The groups that jobs may be in besides their user's own: names, parted by blanks; *: "
         "each from guest_uid_min on but those that give rights over the machine (docker, sudo, "
         "disk, shadow and such).",
         "\"* render\""},
        {"owners", text(c.owners),
         "Who may do on this machine what its owner may (pvdctl), besides root: names of users, "
         "and "
         "of groups behind an @, parted by blanks.",
         "\"ann @lab-admins\"", "root alone"},
        {"cgroup", text(c.cgroup), "The control group of all jobs here, as ROOT/NODE.",
         "\"souk/node\""},
        {"cpu_weight", number(c.cpu_weight, 1, 10'000),
         "The share of the processors of all jobs together, against the rest of the machine's 100.",
         "20"},
        {"bpf", boolean(c.bpf),
         "Count what guests and the owner use at the kernel's tracepoints, by BPF. false: from "
         "/proc and the control groups, as where the kernel has no BTF; that tells less, and the "
         "owner's use later.",
         "false"},
        {"criu", text(c.criu),
         "The prefix of the CRIU that moves and freezes jobs; \"/\": the system's.",
         "\"/opt/souk/criu\"",
         "the system's if it works on this kernel, else the one that came with Souk"},
    };
    all.insert(all.end(), some.begin(), some.end());
}

// Long: one table.
void Reading::add_jobs(Settings& all) {
    Config& c = config;
    const std::vector<std::string> wakes = {"all", "fit", "one"};
    const std::vector<std::string> filters = {"limit-users", "limit-all", "all-allowed"};
    const Settings some = {
        {"pids_max", number(c.pids_max, 0, 1 << 22),
         "How many processes and threads a job may have; 0: any number.", "10000"},
        {"swap_mb", number(c.swap_mb, -1, 1 << 30),
         "How much swap a job may have beside its memory, in MB; -1: as much as there is.", "0"},
        {"disk_mb_per_s", number(c.disk_mb_per_s, 0, 1 << 20),
         "How much a job may read of each disk, and write to it, in MB a second; 0: any number.",
         "50"},
        {"rtprio_max", number(c.rtprio_max, 0, 99),
         "The most that a job's limit of real-time priority may be, unless it is root's, whatever "
         "its user has at home; as the next three.",
         "10"},
        {"nice_max", number(c.nice_max, 0, 40),
         "The same for RLIMIT_NICE: 20 lets a job be as important as other programs.", "20"},
        {"nofile_max", number(c.nofile_max, 64, 1 << 30), "The same for open files.", "65536"},
        {"memlock_mb_max", megabytes(c.memlock_mb_max, 0, int64_t{1} << 40),
         "The same for memory that is locked.", "\"1G\""},
        {"core_mb_max", megabytes(c.core_mb_max, 0, int64_t{1} << 40),
         "The same for core files. 0: none is written, and none is given to a program that "
         "collects them.",
         "64"},
        {"system_calls", one_of(filter, filters),
         "Whose jobs are kept from calls that programs do not need and attackers do (keyrings, "
         "BPF, "
         "perf, mounts, new user namespaces, io_uring): of all but root (limit-users), of root too "
         "(limit-all), or nobody's (all-allowed).",
         "\"limit-all\""},
        {"job_io_uring", boolean(c.job_io_uring),
         "Such jobs may use io_uring. A job that does cannot move while it is open.", "true"},
        {"deleted_mb", megabytes(c.deleted_mb, 1, 4'095),
         "The longest file that a job has deleted and still has open, and that moves with it.",
         "256"},
        {"private_tmp", boolean(c.private_tmp), "Each job has a /tmp of its own here.", "true"},
        {"run_keep", text(c.run_keep),
         "Names below /run that jobs see, parted by blanks, besides those that find hosts by name; "
         "with souk a job can submit jobs.",
         "\"munge souk\""},
        {"hidden", text(hidden),
         "Directories of this machine, parted by blanks, that are empty for jobs of other homes, "
         "whatever rights their users have. Jobs that are submitted on this node see them.",
         "\"/home /srv/private\"", "none"},
        {"ram_mb", megabytes(c.ram_mb, 1, int64_t{1} << 30),
         "How much memory images on their way may take here.", "\"4G\"",
         "half of the machine's memory"},
        {"output_mb", megabytes(c.output_mb, 1, int64_t{1} << 30),
         "How much of a job's output is kept here while no terminal takes it; then the job waits.",
         "\"256M\""},
        {"user_output_mb", megabytes(c.user_output_mb, 1, int64_t{1} << 40),
         "How much output of all jobs of one user is kept here; then they wait, and that user has "
         "no new jobs here. Root has no such bound.",
         "\"2G\""},
        {"disk_reserve_mb", megabytes(c.disk_reserve_mb, 0, int64_t{1} << 40),
         "How much of the disk of the state agentd keeps free of jobs' output and images.",
         "\"2G\"", "a twentieth of the disk, at most 1 GB"},
        {"user_images_mb", megabytes(c.user_images_mb, 1, int64_t{1} << 40),
         "How much of the disk of the state images of one user's jobs take: of those that are "
         "frozen here, and checkpoints. When they have that much, no more of that user's are made "
         "or taken here, and the job stays where it is. Root has no such bound.",
         "\"100G\"", "half of the disk"},
        {"user_connections", number(c.user_connections, 1, 1 << 20),
         "How many connections to this node's socket one user may hold. Root has no such bound.",
         "256", "a quarter of all that agentd takes"},
        {"user_answers_mb", megabytes(c.user_answers_mb, 1, int64_t{1} << 20),
         "How much may be held here for tools of one user: what they have not read yet, and what "
         "they have sent in part. A tool that does not go on is cut off then.",
         "16"},
        {"awake_for_moves", boolean(c.awake_for_moves),
         "Keep idle processors awake for some milliseconds of a move: it takes less time, and a "
         "little more power.",
         "false"},
        {"check_ahead", boolean(c.check_precopy),
         "Compare memory that was sent ahead of a move with the frozen job's before it is used; "
         "moves take longer. For tests.",
         "true"},
        {"memory_default_mb", number(c.home.memory_default_mb, 0, int64_t{1} << 40),
         "The memory of a job that does not say (srun -m), in MB; 0: no limit.", "512",
         "half of what is offered for each CPU, from 16 to 1024"},
        {"checkpoint_every_s", seconds(c.home.checkpoint_every, 0, 31'536'000),
         "How often a job is written down that does not say (srun --checkpoint-every); 0: never.",
         "\"10m\""},
        {"lease_s", seconds(c.home.lease, 0, 31'536'000),
         "How long a job of this home runs on a node that the home does not hear from; 0: without "
         "an end. After that it stands still there, and may go on from its checkpoint.",
         "\"20m\""},
        {"cancel_grace_s", seconds(c.home.grace, 0, 3'600),
         "A cancel asks a job that does not say (srun --grace) to end, by SIGTERM, and ends it "
         "when so much time has passed; 0: at once.",
         "\"1m\""},
        {"wake", one_of(wake, wakes),
         "How many frozen jobs of this home wake at one time. all: as many as the market orders. "
         "fit: of those whose images lie on this node, only as many as fit its free memory "
         "together; a larger one wakes alone. one: one job, and the next when it has arrived where "
         "it is to run.",
         "\"one\""},
        {"budget_warn_permille", number(c.home.warn_permille, 0, 1'000),
         "A job's terminal is told when no more than this of its budget is left, in thousandths.",
         "100"},
        {"budget_warn_s", seconds(c.home.warn_span, 0, 86'400),
         "Or when the budget lasts no longer than this at the present price.", "\"5m\""},
    };
    all.insert(all.end(), some.begin(), some.end());
}

void Reading::add_files(Settings& all) {
    const std::vector<std::string> wishes = {"local", "home", "auto"},
                                   tmps = {"home", "node", "private"};
    const Settings some = {
        {"contents_mb", megabytes(config.contents_mb, 0, int64_t{1} << 30),
         "How much of the disk may hold programs and libraries of other homes (docs/files.md), so "
         "that they come once, not with each job. 0: none.",
         "\"4G\""},
        {"files", one_of(files, wishes),
         "Whose files jobs of this home see that do not say (srun --files, docs/files.md): those "
         "of "
         "the node where they run (local), this node's (home), or each node's own where they are "
         "the "
         "same (auto).",
         "\"auto\""},
        {"shared_files", text(config.shared_files),
         "Directories that this node and others have of the same file server, parted by blanks. A "
         "job of --files=auto that is submitted in one of them sees each node's own files, and "
         "goes "
         "only to nodes that have these, which is checked.",
         "\"/home /data\"", "none"},
        {"files_tmp", one_of(tmp, tmps),
         "The /tmp of a job of this home that sees its home's files: the home's (home), that of "
         "the "
         "node where it runs (node; with a file open there the job does not move), or one of its "
         "own, in memory, that goes along (private).",
         "\"private\""},
        {"local_paths", text(local_paths),
         "Directories of this node, parted by blanks, that a job of another home may see here in "
         "place of its home's, if it asks (srun --local-path): scratch space, or data that several "
         "nodes have.",
         "\"/scratch /data\"", "none"},
    };
    all.insert(all.end(), some.begin(), some.end());
}

void Reading::add_network(Settings& all) {
    const Settings some = {
        {"job_network", text(network.network),
         "The network of jobs with an address of their own (srun --net=own). Without it none comes "
         "here.",
         "\"10.77.0.0/16\""},
        {"job_bridge", text(network.bridge), "The bridge of this machine that reaches job_network.",
         "\"br-jobs\""},
        {"job_gateway", text(network.gateway), "The way out of job_network, for such jobs.",
         "\"10.77.0.1\""},
        {"job_addresses", text(network.addresses),
         "What this node gives to jobs that are submitted here: a part of job_network from which "
         "no other node gives.",
         "\"10.77.3.0/24\""},
    };
    all.insert(all.end(), some.begin(), some.end());
}

void Reading::add_offer(Settings& all) {
    Config& c = config;
    const Settings some = {
        {"price", money(c.price),
         "The least that the owner takes per CPU-hour (pvdctl set price holds over it, as for the "
         "other keys of the offer).",
         "\"0.5\""},
        {"speed", number(c.speed, 1, provider_speed_max),
         "How fast this machine is: 100 is the reference of agentd --calibrate.", "120",
         "as measured at the first start"},
        {"cpus", number(c.cpus, 1, 65'536), "How many CPUs are offered.", "4", "all"},
        {"memory_mb", megabytes(c.memory_mb, 1, int64_t{1} << 40), "How much memory is offered.",
         "\"16G\"", "all"},
        {"near_group", text(c.near_group),
         "Nodes that say the same name here are near each other, on one switch for example: srun "
         "--near puts all components of a job on nodes of one such group.",
         "\"rack-3\""},
        {"attributes", text(attributes),
         "What this node is besides what it finds itself, for jobs that ask for it (srun --needs): "
         "NAME=VALUE, parted by commas; a name alone is one with the value yes.",
         "\"rack=12, licence.matlab, scratch=2T\"", "none"},
        {"programs", text(programs),
         "Programs, parted by blanks, for which the node looks in /usr/local/bin, /usr/bin, /bin "
         "and /usr/sbin: each that is there is an attribute program.NAME.",
         "\"gcc python3 R\"", "none"},
        {"resources", table(resources),
         "Named resources of this node: so many of each may jobs have at once that ask for them "
         "(srun --resource). A name that the market has itself is the market's: what a node "
         "offers by it is given to nobody (pvdctl status).",
         "{ gpu = 2, scratch = 4 }", "those of resource_devices"},
        {"resource_devices", table(resource_devices),
         "Those that are devices: their files, parted by blanks. A job is told which it has "
         "($SOUK_RESOURCE_NAME: the files, and $CUDA_VISIBLE_DEVICES: the numbers of all of "
         "/dev/nvidiaN), and stays on this node. When this list is changed, whoever has one keeps "
         "it.",
         "{ gpu = \"/dev/nvidia0 /dev/nvidia1\" }", "none"},
        {"resource_reserves", table(resource_reserves),
         "The least that a job pays for each one of them per hour, beside the price of its CPUs, "
         "of which it is part.",
         "{ gpu = \"1.50\" }", "0 for each"},
        {"near_round_trip_us", number(c.near_round_trip_us, 0, market::near_most),
         "The longest round trip from this node to any other of its group, for srun --near=500us; "
         "0: not known, and then it takes no component with such a bound.",
         "100"},
        {"near_mbit_per_s", number(c.near_mbit_per_s, 0, market::near_most),
         "The least bandwidth from this node to any other of its group, for srun --near=10G; 0: "
         "likewise.",
         "10000"},
        {"frames", text(c.frames),
         "When the node is on the market by itself, in local time: \"always\", or frames such as "
         "\"daily 20:00-08:00\".",
         "\"mon-thu 18:00-08:00; fri 18:00-24:00; sat,sun 00:00-24:00\""},
        {"frames_zone", text(c.frames_zone), "The time zone of frames and price_curve.",
         "\"Europe/Berlin\"", "this machine's"},
        {"frames_warning_s", seconds(c.frames_warning, 0, 86'400),
         "So long before a frame ends, the users of guests are told. 0: they are not.", "\"10m\""},
        {"price_curve", text(c.price_curve),
         "Prices that hold in place of `price` at some hours of the week.",
         "\"mon-fri 8:00-18:00 = 40; daily 22:00-6:00 = 5\""},
        {"share", text(c.share),
         "What guests get at most, all together, while the owner is here or at some hours of the "
         "week: parts of this machine's CPUs and memory, or as many. Where several hold, "
         "the least (docs/owner.md).",
         "\"here = 0.5 cpus, 50% memory; mon-fri 8:00-18:00 = 75%\"", "all that is offered"},
        {"on_market", boolean(c.on_market), "Whether it is offered at all.", "false"},
    };
    all.insert(all.end(), some.begin(), some.end());
}

Settings Reading::settings() {
    Settings all;
    add_place(all);
    add_offer(all);
    owner.add(config, all);
    add_jobs(all);
    add_files(all);
    add_network(all);
    return all;
}

}  // namespace

Result<Config> load_config(const std::string& path, ConfigText* effective, const ReadFile& read) {
    Reading reading;
    const Settings settings = reading.settings();
    Sources sources;
    std::string file;
    if (read) {
        TRY_ASSIGN(file, read(path));
    }
    TRY(settings::load(path, settings, sources, read ? &file : nullptr));
    Config& c = reading.config;
    if (auto good = check(c, read); !good) return wrap(path, good.error());
    if (auto good = reading.owner.take(c); !good) return wrap(path, good.error());
    using Filter = Config::Filter;
    c.filter = reading.filter == "limit-all"     ? Filter::all
               : reading.filter == "all-allowed" ? Filter::none
                                                 : Filter::users;
    c.home.wake = reading.wake == "all"   ? WakeRule::all
                  : reading.wake == "one" ? WakeRule::one
                                          : WakeRule::fit;
    c.files = *files_wish(reading.files);
    c.files_tmp = reading.tmp == "node"      ? FilesTmp::node
                  : reading.tmp == "private" ? FilesTmp::own
                                             : FilesTmp::home;
    auto offered = offered_paths(reading.local_paths);
    if (!offered) return wrap(path + ": local_paths", offered.error());
    c.local_paths = std::move(*offered);
    auto attributes = attributes_of(reading.attributes);
    if (!attributes) return wrap(path + ": attributes", attributes.error());
    c.attributes = std::move(*attributes);
    auto programs = programs_of(reading.programs);
    if (!programs) return wrap(path + ": programs", programs.error());
    c.programs = std::move(*programs);
    auto resources =
        resources_of(reading.resources, reading.resource_reserves, reading.resource_devices);
    if (!resources) return wrap(path + ": resources", resources.error());
    c.resources = std::move(*resources);
    auto hidden = hidden_directories(reading.hidden);
    if (!hidden) return wrap(path + ": hidden", hidden.error());
    c.hidden = std::move(*hidden);
    c.tickets = reading.tickets == "accepted" ? TicketRule::accepted : TicketRule::required;
    if (auto good = check_network(reading.network, c); !good) return wrap(path, good.error());
    if (effective) *effective = settings::effective(settings, sources, path);
    return c;
}

std::string config_reference() {
    Reading reading;
    return reference_json(reading.settings());
}

}  // namespace souk
