// SPDX-License-Identifier: GPL-2.0-or-later
#include "bpf/load.hpp"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <malloc.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "bpf/load.h"
#include "bpf/load.skel.h"
#include "kernel/sys/loop/backoff.hpp"

namespace souk {
namespace {

// The initial cgroup namespace (PROC_CGROUP_INIT_INO). In another one, depths of paths are not
// levels of the kernel.
constexpr ino_t init_cgroup_namespace = 0xEFFFFFFB;

bool in_init_cgroup_namespace() {
    struct stat status {};
    return ::stat("/proc/self/ns/cgroup", &status) == 0 && status.st_ino == init_cgroup_namespace;
}

int level_of(const std::string& path) {
    return 1 + static_cast<int>(std::count(path.begin(), path.end(), '/'));
}

// Reads a value that another CPU writes.
template <class T>
T look(const T& value) {
    return __atomic_load_n(&value, __ATOMIC_ACQUIRE);
}

int quiet(libbpf_print_level, const char*, va_list) { return 0; }

// Called by take_notices.
int noticed(void* on_notice, void* data, size_t bytes) {
    load_notice n{};
    if (bytes < sizeof n) return 0;
    std::memcpy(&n, data, sizeof n);
    (*static_cast<std::function<void(const LoadNotice&)>*>(on_notice))(
        {n.kind == LOAD_NOTICE_WAIT,
         static_cast<pid_t>(n.pid),
         {n.kind == LOAD_NOTICE_NETWORK ? 0 : static_cast<int64_t>(n.ns)},
         n.kind == LOAD_NOTICE_PROGRAM,
         n.kind == LOAD_NOTICE_NETWORK ? n.ns : 0});
    return 0;
}

}  // namespace

// Loads the programs for this node, with or without those that count packets.
Status LoadProbe::load_object(load_bpf& skeleton, const Cgroup& node, Levels levels,
                              const Options& options) {
    const int cpus = libbpf_num_possible_cpus();
    if (cpus <= 0) return fail_errno("count CPUs", -cpus);
    cpu_count_ = static_cast<size_t>(cpus);
    skeleton.rodata->node_id = node.id();
    skeleton.rodata->node_level = levels.node;
    skeleton.rodata->job_level = levels.job;
    skeleton.rodata->daemon_tgid = options.daemon;
    const Own own = group_of(options.daemon);
    skeleton.rodata->daemon_level = own.level;
    skeleton.rodata->daemon_id = own.id;
    daemon_in_root_ = own.root;
    for (bpf_program* const program :
         {skeleton.progs.on_received, skeleton.progs.on_sent, skeleton.progs.on_owner_received,
          skeleton.progs.on_owner_sent})
        bpf_program__set_autoload(program, why_no_network_.empty());
    if (const int error = bpf_map__set_max_entries(skeleton.maps.cpus, static_cast<uint32_t>(cpus));
        error != 0)
        return fail_errno("size the load map", -error);
    if (const int error = load_bpf__load(&skeleton); error != 0)
        return fail_errno("load the load programs", -error);
    return {};
}

// Counts the packets of the node's group with all below it, beside programs that others have
// attached there.
Status LoadProbe::attach_network(load_bpf& skeleton, const Cgroup& node) {
    for (bpf_program* const program : {skeleton.progs.on_received, skeleton.progs.on_sent}) {
        const std::unique_ptr<bpf_link, int (*)(bpf_link*)> link(
            bpf_program__attach_cgroup(program, node.entry().v2), bpf_link__destroy);
        if (!link) return fail_errno("count the packets of cgroup " + node.name(), errno);
        TRY_ASSIGN(Fd kept, duplicate(bpf_link__fd(link.get())));
        links_.push_back(std::move(kept));
    }
    return {};
}

// Everything of libbpf goes again once the programs run; what stays open are the links, one map,
// one mapping, and the ring of notices. Programs that are not loaded for packets are no reason to
// go without the others.
Status LoadProbe::load(const Cgroup& node, Levels levels, const Options& options) {
    using Skeleton = std::unique_ptr<load_bpf, void (*)(load_bpf*)>;
    libbpf_set_print(quiet);
    why_no_network_ = options.count_network ? "" : "switched off";
    Skeleton skeleton(load_bpf__open(), load_bpf__destroy);
    if (!skeleton) return fail_errno("open the load programs", errno);
    Status loaded = load_object(*skeleton, node, levels, options);
    if (!loaded && why_no_network_.empty()) {
        why_no_network_ = loaded.error().message;
        skeleton.reset(load_bpf__open());
        if (!skeleton) return fail_errno("open the load programs", errno);
        loaded = load_object(*skeleton, node, levels, options);
    }
    TRY(loaded);

    // The kernel lays array elements out at multiples of 8 bytes and maps whole pages.
    static_assert(sizeof(load_cpu) % 8 == 0);
    static_assert(std::tuple_size_v<decltype(LoadSample::waits)> == LOAD_WAITS);
    const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
    const size_t bytes = (sizeof(load_cpu) * cpu_count_ + page - 1) / page * page;
    void* const mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                                bpf_map__fd(skeleton->maps.cpus), 0);
    if (mapped == MAP_FAILED) return fail_errno("map the load counters", errno);
    cpus_ = static_cast<load_cpu*>(mapped);
    bytes_ = bytes;
    for (size_t i = 0; i < cpu_count_; ++i) cpus_[i].slot = LOAD_NONE;

    TRY_ASSIGN(look_, duplicate(bpf_program__fd(skeleton->progs.on_look)));
    notice(options.notice_run, options.notice_wait);
    on_notice_ = std::make_unique<std::function<void(const LoadNotice&)>>();
    ring_ = {
        ring_buffer__new(bpf_map__fd(skeleton->maps.notices), noticed, on_notice_.get(), nullptr),
        ring_buffer__free};
    if (!ring_) return fail_errno("map the load notices", errno);

    if (const int error = load_bpf__attach(skeleton.get()); error != 0)
        return fail_errno("attach the load programs", -error);
    TRY_ASSIGN(slots_, duplicate(bpf_map__fd(skeleton->maps.slots)));
    TRY_ASSIGN(names_, duplicate(bpf_map__fd(skeleton->maps.names)));
    TRY_ASSIGN(wakes_, duplicate(bpf_map__fd(skeleton->maps.wakers)));
    for (const bpf_link* link : {skeleton->links.on_switch, skeleton->links.on_fork,
                                 skeleton->links.on_exec, skeleton->links.on_exit}) {
        TRY_ASSIGN(Fd kept, duplicate(bpf_link__fd(link)));
        links_.push_back(std::move(kept));
    }
    if (!why_no_network_.empty()) return {};
    TRY_ASSIGN(on_owner_received_, duplicate(bpf_program__fd(skeleton->progs.on_owner_received)));
    TRY_ASSIGN(on_owner_sent_, duplicate(bpf_program__fd(skeleton->progs.on_owner_sent)));
    (void)notice_network(options.notice_bytes);  // who asks again is told
    if (const Status counts = attach_network(*skeleton, node); !counts)
        why_no_network_ = counts.error().message;
    return {};
}

Result<LoadProbe> LoadProbe::open(const Cgroups& cgroups, const std::string& node, int job_depth,
                                  const Options& options) {
    LoadProbe probe;
    probe.cgroups_ = &cgroups;
    probe.open_event_ = options.open_event;
    probe.see_packets_ = options.see_packets;
    TRY_ASSIGN(Cgroup group, cgroups.create(node));
    if (!options.allow_bpf) {
        probe.why_not_bpf_ = "switched off";
    } else if (group.id() == 0) {
        probe.why_not_bpf_ = "no cgroup v2 is mounted";
    } else if (!in_init_cgroup_namespace()) {
        probe.why_not_bpf_ = "this is not the initial cgroup namespace";
    } else {
        const int node_level = 1 + level_of(node);  // the root directory is level 1
        const Status loaded = probe.load(group, {node_level, node_level + job_depth}, options);
        ::malloc_trim(0);  // the kernel's BTF was read into some megabytes of heap
        if (loaded) return probe;
        probe.close();
        probe.why_not_bpf_ = loaded.error().message;
    }
    probe.why_no_network_ = probe.why_not_bpf_;
    TRY_ASSIGN(const Nanos start, group.cpu_time());
    probe.followed_.emplace("", GroupLoad(std::move(group), start));
    return probe;
}

void LoadProbe::close() {
    links_.clear();
    clocks_.clear();
    look_.reset();
    owner_packets_.clear();
    on_owner_received_.reset();
    on_owner_sent_.reset();
    slots_.reset();
    names_.reset();
    wakers_.reset();
    wakes_.reset();
    ring_.reset();
    if (cpus_ != nullptr) ::munmap(std::exchange(cpus_, nullptr), bytes_);
}

LoadProbe::LoadProbe(LoadProbe&& other) noexcept { *this = std::move(other); }

LoadProbe& LoadProbe::operator=(LoadProbe&& other) noexcept {
    if (this == &other) return *this;
    close();
    cgroups_ = other.cgroups_;
    why_not_bpf_ = std::move(other.why_not_bpf_);
    why_no_network_ = std::move(other.why_no_network_);
    cpus_ = std::exchange(other.cpus_, nullptr);
    cpu_count_ = other.cpu_count_;
    bytes_ = other.bytes_;
    ring_ = std::move(other.ring_);
    on_notice_ = std::move(other.on_notice_);
    slots_ = std::move(other.slots_);
    names_ = std::move(other.names_);
    wakes_ = std::move(other.wakes_);
    open_event_ = other.open_event_;
    see_packets_ = other.see_packets_;
    wakers_ = std::exchange(other.wakers_, std::nullopt);
    links_ = std::move(other.links_);
    clocks_ = std::move(other.clocks_);
    look_ = std::move(other.look_);
    look_every_ = other.look_every_;
    on_owner_received_ = std::move(other.on_owner_received_);
    on_owner_sent_ = std::move(other.on_owner_sent_);
    owner_packets_ = std::move(other.owner_packets_);
    daemon_in_root_ = other.daemon_in_root_;
    why_no_look_ = std::move(other.why_no_look_);
    jobs_ = std::move(other.jobs_);
    last_of_node_ = other.last_of_node_;
    last_of_owner_ = other.last_of_owner_;
    last_of_system_ = other.last_of_system_;
    followed_ = std::move(other.followed_);
    return *this;
}

LoadProbe::~LoadProbe() { close(); }

Status LoadProbe::add(const std::string& job, bool lived, uint64_t id, Nanos used) {
    if (jobs_.contains(job) || followed_.contains(job)) return fail_errno("follow " + job, EEXIST);
    std::optional<Cgroup> group;
    if (cpus_ == nullptr || lived || id == 0) {
        TRY_ASSIGN(group, cgroups_->create(job));
        id = group->id();
    }
    if (cpus_ == nullptr) {
        if (!lived) {
            TRY_ASSIGN(used, group->cpu_time());
        }
        followed_.emplace(job, GroupLoad(std::move(*group), used));
        return {};
    }
    std::vector<bool> taken(LOAD_SLOTS);
    taken[0] = true;
    for (const auto& [name, other] : jobs_) taken[other.slot] = true;
    const auto free =
        static_cast<uint32_t>(std::find(taken.begin(), taken.end(), false) - taken.begin());
    if (free == LOAD_SLOTS) return fail_errno("follow " + job, ENOSPC);
    for (size_t i = 0; i < cpu_count_; ++i) cpus_[i].counters[free] = {};
    Job added{id, free, {}, {}};
    if (lived) {
        TRY_ASSIGN(const Nanos all, group->cpu_time());
        added.before = std::max(Nanos{}, all - used);
    }
    if (const int error = bpf_map_update_elem(slots_.get(), &added.id, &added.slot, BPF_ANY);
        error != 0)
        return fail_errno("follow " + job, -error);
    slots_changed();
    jobs_.emplace(job, added);
    return {};
}

// After this no CPU goes by what it has looked up before.
void LoadProbe::slots_changed() {
    for (size_t i = 0; i < cpu_count_; ++i)
        __atomic_fetch_add(&cpus_[i].changes, 1, __ATOMIC_RELEASE);
}

Status LoadProbe::remove(const std::string& job) {
    if (!job.empty()) followed_.erase(job);
    const auto it = jobs_.find(job);
    if (it == jobs_.end()) return {};
    const uint64_t id = it->second.id;
    jobs_.erase(it);
    const int error = bpf_map_delete_elem(slots_.get(), &id);
    slots_changed();
    if (error != 0 && error != -ENOENT) return fail_errno("forget " + job, -error);
    return {};
}

// A sum over the CPUs, with what the task that runs now has run since it was switched in. A CPU
// that is in the middle of a switch is looked at again; if it stays there (a virtual CPU that does
// not run) its running span is left out, and `last` keeps the figures from falling.
LoadSample LoadProbe::sum(uint32_t slot, LoadSample& last) const {
    LoadSample total{};
    for (size_t i = 0; i < cpu_count_; ++i) {
        const load_cpu& cpu = cpus_[i];
        const load_counter& counter = cpu.counters[slot];
        int64_t running_ns = 0;
        uint64_t run_ns = 0, wait_ns = 0, off_ns = 0;
        for (int attempt = 0; attempt < 64; ++attempt) {
            const uint32_t writing = look(cpu.writing);
            const uint64_t since = look(cpu.since_ns);
            const uint32_t now_slot = look(cpu.slot);
            run_ns = look(counter.run_ns);
            wait_ns = look(counter.wait_ns);
            off_ns = look(counter.off_ns);
            const bool ours = slot == 0 ? now_slot < LOAD_SLOTS : now_slot == slot;
            running_ns =
                ours ? std::max<int64_t>(0, monotonic_now().ns - static_cast<int64_t>(since)) : 0;
            if (writing % 2 == 0 && look(cpu.writing) == writing) break;
            running_ns = 0;
        }
        total.run.ns += static_cast<int64_t>(run_ns) + running_ns;
        total.wait.ns += static_cast<int64_t>(wait_ns);
        total.off_cpu.ns += static_cast<int64_t>(off_ns);
        total.gave_up += look(counter.gave_up);
        total.preempted += look(counter.preempted);
        total.births += look(counter.births);
        total.deaths += look(counter.deaths);
        total.major_faults += look(counter.major_faults);
        total.read_bytes += look(counter.read_bytes);
        total.write_bytes += look(counter.write_bytes);
        total.received_bytes += look(counter.received_bytes);
        total.sent_bytes += look(counter.sent_bytes);
        for (size_t w = 0; w < LOAD_WAITS; ++w) total.waits[w] += look(counter.waits[w]);
    }
    total.run = std::max(last.run, total.run);
    total.wait = std::max(last.wait, total.wait);
    total.off_cpu = std::max(last.off_cpu, total.off_cpu);
    return last = total;
}

Result<LoadSample> LoadProbe::read_proc(GroupLoad& followed) {
    TRY_ASSIGN(const GroupLoad::Sample now, followed.read());
    LoadSample sample;
    sample.run = now.run;
    sample.wait = now.wait;
    return sample;
}

Result<LoadSample> LoadProbe::read(const std::string& job) {
    if (const auto it = jobs_.find(job); it != jobs_.end()) {
        LoadSample sample = sum(it->second.slot, it->second.last);
        sample.run += it->second.before;
        return sample;
    }
    if (const auto it = followed_.find(job); it != followed_.end() && !job.empty())
        return read_proc(it->second);
    return fail_errno("load of " + job, ENOENT);
}

Result<LoadSample> LoadProbe::read_node() {
    if (cpus_ != nullptr) return sum(0, last_of_node_);
    return read_proc(followed_.at(""));
}

Result<LoadSample> LoadProbe::read_owner() {
    if (cpus_ != nullptr) return sum(LOAD_OWNER, last_of_owner_);
    TRY_ASSIGN(const Nanos all, machine_run());
    TRY_ASSIGN(const LoadSample node, read_node());
    const Nanos system = read_system().run;
    last_of_owner_.run = std::max(last_of_owner_.run, all - node.run - system);
    return last_of_owner_;
}

LoadSample LoadProbe::read_system() {
    if (cpus_ != nullptr) return sum(LOAD_SYSTEM, last_of_system_);
    last_of_system_.run = std::max(last_of_system_.run, system_run());
    return last_of_system_;
}

uint64_t LoadProbe::unseen() const {
    uint64_t total = 0;
    for (size_t i = 0; cpus_ != nullptr && i < cpu_count_; ++i) total += look(cpus_[i].unseen);
    return total;
}

Nanos LoadSample::wait_quantile(const LoadSample& before, int permille) const {
    uint64_t all = 0;
    for (size_t i = 0; i < waits.size(); ++i) all += waits[i] - before.waits[i];
    const uint64_t longer = all * static_cast<uint64_t>(1000 - permille) / 1000;
    uint64_t above = 0;
    for (size_t i = waits.size(); i-- > 0;) {
        above += waits[i] - before.waits[i];
        if (above > longer) return {int64_t{1024} << i};
    }
    return {};
}

// A task that runs on is noticed by the next look after it has run so long. Both spans together
// stay within 50 ms, with the time that agentd takes to hear of it.
void LoadProbe::notice(Nanos run, Nanos wait) {
    constexpr Nanos within = Nanos::from_ms(45), least = Nanos::from_ms(5),
                    most = Nanos::from_ms(25);
    const Nanos every = run.ns > 0 ? std::clamp(within - run, least, most) : Nanos{};
    if (every != look_every_ || (every.ns > 0 && clocks_.empty())) {
        const Status looks = arm_clocks(every);
        why_no_look_ = looks ? "" : looks.error().message;
    }
    for (size_t i = 0; cpus_ != nullptr && i < cpu_count_; ++i) {
        __atomic_store_n(&cpus_[i].notice_run_ns, static_cast<uint64_t>(run.ns), __ATOMIC_RELAXED);
        __atomic_store_n(&cpus_[i].notice_wait_ns, static_cast<uint64_t>(wait.ns),
                         __ATOMIC_RELAXED);
    }
}

// A CPU that is off now has no clock.
Status LoadProbe::arm_clocks(Nanos every) {
    clocks_.clear();
    look_every_ = {};
    if (!look_ || every.ns == 0) return {};
    for (size_t i = 0; i < cpu_count_; ++i) {
        auto clock = open_event_(i, every);
        if (!clock && clock.error().code == ENODEV) continue;
        if (clock && (::ioctl(clock->get(), PERF_EVENT_IOC_SET_BPF, look_.get()) != 0 ||
                      ::ioctl(clock->get(), PERF_EVENT_IOC_ENABLE, 0) != 0))
            clock = fail_errno("set it", errno);
        if (!clock) {
            clocks_.clear();
            return wrap("look at the task that runs", clock.error());
        }
        clocks_.push_back(std::move(*clock));
    }
    look_every_ = every;
    return {};
}

Status LoadProbe::notice_programs(const std::set<std::string>& programs) {
    if (cpus_ == nullptr) return {};
    if (programs.size() > LOAD_NAMES)
        return fail("at most " + std::to_string(LOAD_NAMES) + " programs are noticed");
    char key[LOAD_NAME];
    while (bpf_map_get_next_key(names_.get(), nullptr, key) == 0)
        bpf_map_delete_elem(names_.get(), key);
    for (const std::string& program : programs) {
        std::memset(key, 0, sizeof key);
        program.copy(key, sizeof key - 1);
        const uint32_t one = 1;
        if (const int error = bpf_map_update_elem(names_.get(), key, &one, BPF_ANY); error != 0)
            return fail_errno("notice program " + program, -error);
    }
    return {};
}

Status LoadProbe::give_way(bool on) {
    if (cpus_ == nullptr)
        return on ? Status(fail("the kernel's switches are not seen: " + why_not_bpf_)) : Status{};
    if (on && !wakers_) {
        TRY_ASSIGN(wakers_, CpuWakers::start(wakes_.get(), cpu_count_, open_event_));
    }
    for (size_t i = 0; i < cpu_count_; ++i)
        __atomic_store_n(&cpus_[i].give_way, on ? 1 : 0, __ATOMIC_RELAXED);
    return {};
}

uint64_t LoadProbe::gave_way() const {
    uint64_t total = 0;
    for (size_t i = 0; cpus_ != nullptr && i < cpu_count_; ++i)
        total += __atomic_load_n(&cpus_[i].gave_way, __ATOMIC_RELAXED);
    return total;
}

int LoadProbe::notices_fd() const { return ring_ ? ring_buffer__epoll_fd(ring_.get()) : -1; }

void LoadProbe::take_notices(const std::function<void(const LoadNotice&)>& each) {
    if (!ring_) return;
    *on_notice_ = each;
    ring_buffer__consume(ring_.get());
}

// The id of a group is the inode of its directory.
LoadProbe::Own LoadProbe::group_of(pid_t daemon) const {
    Own own;
    const auto text = read_file(AT_FDCWD, "/proc/" + std::to_string(daemon) + "/cgroup");
    const size_t at = !text                      ? std::string::npos
                      : text->starts_with("0::") ? 0
                                                 : text->rfind("\n0::");
    if (at == std::string::npos) return own;
    const size_t begin = text->find("::", at) + 2, end = text->find('\n', begin);
    const std::string path = text->substr(begin, end - begin);
    own.root = path == "/";
    struct stat status {};
    if (own.root || ::stat((cgroups_->layout().v2 + path).c_str(), &status) != 0) return own;
    own.level = static_cast<int>(std::count(path.begin(), path.end(), '/'));
    own.id = status.st_ino;
    return own;
}

// Attached at the root only meanwhile: each packet of the machine costs a little.
Status LoadProbe::notice_network(uint64_t bytes) {
    if (bytes == 0) owner_packets_.clear();
    for (size_t i = 0; cpus_ != nullptr && i < cpu_count_; ++i)
        __atomic_store_n(&cpus_[i].notice_bytes, bytes, __ATOMIC_RELAXED);
    if (bytes == 0 || !owner_packets_.empty()) return {};
    if (!on_owner_sent_) return fail("packets are not counted: " + why_no_network_);
    if (daemon_in_root_)
        return fail("agentd has no control group of its own, so that its packets are as his");
    TRY_ASSIGN(owner_packets_, see_packets_
                                   ? see_packets_()
                                   : see_packets(cgroups_->layout().v2, on_owner_received_.get(),
                                                 on_owner_sent_.get()));
    return {};
}

}  // namespace souk
