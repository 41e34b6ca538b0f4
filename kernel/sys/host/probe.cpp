// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/host/probe.hpp"

#include <liburing.h>
#include <linux/capability.h>
#include <linux/sched.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "kernel/base/json.hpp"
#include "kernel/base/number.hpp"
#include "kernel/sys/host/cpu_awake.hpp"
#include "kernel/sys/host/fd.hpp"
#include "kernel/sys/process/cgroup.hpp"

namespace souk {
namespace {

Need judged(std::string name, std::string use, bool required, bool met, std::string found,
            std::string mend) {
    return {std::move(name),  std::move(use),
            required,         met,
            std::move(found), met ? std::string() : std::move(mend)};
}

std::string errno_text(int code) { return std::strerror(code); }

Need processes() {
    const long pidfd = ::syscall(SYS_pidfd_open, ::getpid(), 0);
    if (pidfd >= 0) ::close(static_cast<int>(pidfd));
    // No arguments at all: EINVAL from a kernel that has the call.
    const bool clone3 = ::syscall(SYS_clone3, nullptr, 0) < 0 && errno != ENOSYS;
    return judged("pidfd and clone3", "starting and watching processes", true, pidfd >= 0 && clone3,
                  pidfd < 0 ? "no pidfd_open"
                  : clone3  ? "both"
                            : "no clone3",
                  "boot a kernel 6.0 or newer; in a container allow clone3 and pidfd_open in its "
                  "seccomp profile");
}

Need namespaces() {
    std::string missing;
    for (const char* const name : {"pid", "mnt", "ipc", "uts", "net"})
        if (::access((std::string("/proc/self/ns/") + name).c_str(), F_OK) != 0)
            missing += std::string(" ") + name;
    return judged("namespaces", "capsules", true, missing.empty(),
                  missing.empty() ? "pid, mnt, ipc, uts, net" : "missing:" + missing,
                  "boot a kernel with CONFIG_NAMESPACES");
}

void rights(std::vector<Need>& needs) {
    const auto need = [&](int number, const char* name, const char* use, bool required) {
        const bool have = have_capability(number);
        needs.push_back(judged(name, use, required, have, have ? "effective" : "not effective",
                               ::geteuid() == 0
                                   ? "give this root the capability (container or unit settings)"
                                   : "run as root"));
    };
    need(CAP_SYS_ADMIN, "CAP_SYS_ADMIN", "capsules, CRIU", true);
    need(CAP_SYS_PTRACE, "CAP_SYS_PTRACE", "CRIU", true);
    need(CAP_NET_ADMIN, "CAP_NET_ADMIN", "networks of capsules and nodes", true);
    need(CAP_SYS_RESOURCE, "CAP_SYS_RESOURCE", "freezing jobs of users other than root", false);
}

void cgroups(std::vector<Need>& needs) {
    const auto opened = Cgroups::open();
    const CgroupLayout layout = opened ? opened->layout() : CgroupLayout{};
    const std::string tracker = !layout.v2.empty()              ? layout.v2
                                : layout.v1.contains("freezer") ? layout.v1.at("freezer")
                                                                : "";
    const bool writable = !tracker.empty() && ::access(tracker.c_str(), W_OK) == 0;
    needs.push_back(judged(
        "cgroups", "jobs' processes: freeze, kill, account", true, writable,
        tracker.empty() ? "no v2 and no v1 freezer is mounted"
        : !writable     ? tracker + " cannot be written"
                        : (layout.v2.empty() ? "v1 freezer at " : "v2 at ") + tracker,
        tracker.empty() ? "mount -t cgroup2 cgroup2 /sys/fs/cgroup"
                        : "run as root, with cgroups writable: mount -o remount,rw " + tracker));
    for (const auto& [controller, use] :
         {std::pair{"cpu", "the share of a node's jobs"}, std::pair{"memory", "srun -m as a limit"},
          std::pair{"pids", "a limit to a job's processes"}}) {
        const bool v2 = layout.in_v2(controller), v1 = layout.v1.contains(controller);
        needs.push_back(judged(std::string(controller) + " controller", use, false, v1 || v2,
                               v2   ? "v2"
                               : v1 ? "v1 at " + layout.v1.at(controller)
                                    : "none",
                               std::string("boot without cgroup_disable=") + controller));
    }
}

Need last_pid() {
    const bool writable = ::access("/proc/sys/kernel/ns_last_pid", W_OK) == 0;
    return judged("ns_last_pid", "restoring processes with their own numbers", true, writable,
                  writable ? "writable" : "/proc/sys/kernel/ns_last_pid cannot be written",
                  ::geteuid() == 0
                      ? "boot a kernel with CONFIG_CHECKPOINT_RESTORE, /proc/sys writable"
                      : "run as root");
}

Need wake_latency() {
    const bool writable = ::access(CpuAwake::device, W_OK) == 0;
    return judged(
        "CPU latency", "short pauses of moves", false, writable,
        writable ? CpuAwake::device : std::string(CpuAwake::device) + " cannot be written",
        ::geteuid() == 0 ? "boot a kernel with CONFIG_CPU_IDLE; in a container allow the device"
                         : "run as root");
}

Need btf() {
    const bool have = ::access("/sys/kernel/btf/vmlinux", R_OK) == 0;
    const bool right = have_capability(CAP_SYS_ADMIN) ||
                       (have_capability(CAP_BPF) && have_capability(CAP_PERFMON));
    return judged("BTF", "load figures from the scheduler (else from /proc)", false, have && right,
                  !have   ? "no /sys/kernel/btf/vmlinux"
                  : right ? "/sys/kernel/btf/vmlinux"
                          : "no right to load BPF programs",
                  have ? "run as root" : "boot a kernel with CONFIG_DEBUG_INFO_BTF");
}

std::string padded(std::string text, size_t width) {
    text.resize(std::max(width, text.size()), ' ');
    return text + "  ";
}

}  // namespace

bool have_capability(int capability) {
    const auto status = read_file(AT_FDCWD, "/proc/self/status");
    if (!status) return false;
    constexpr std::string_view key = "CapEff:\t";
    const size_t at = status->find(key);
    if (at == std::string::npos) return false;
    const uint64_t mask =
        leading_number<uint64_t>(std::string_view(*status).substr(at + key.size()), 16).value_or(0);
    return (mask >> capability & 1) != 0;
}

Need examine_io_uring() {
    const auto no = [](const std::string& found, const char* mend) {
        return judged("io_uring", "the daemons' event loop", true, false, found, mend);
    };
    struct io_uring ring {};
    if (const int error = io_uring_queue_init(4, &ring, 0); error < 0)
        return no("io_uring_setup: " + errno_text(-error),
                  error == -EPERM ? "sysctl -w kernel.io_uring_disabled=0"
                                  : "boot a kernel with CONFIG_IO_URING, 6.0 or newer");
    // Multishot receive came with zero-copy send (6.0), which the probe can name; provided buffer
    // rings are tried.
    io_uring_probe* const probe = io_uring_get_probe_ring(&ring);
    const bool multishot = probe != nullptr && io_uring_opcode_supported(probe, IORING_OP_SEND_ZC);
    io_uring_free_probe(probe);
    void* const page =
        ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    io_uring_buf_reg buffers{};
    buffers.ring_addr = reinterpret_cast<uint64_t>(page);
    buffers.ring_entries = 4;
    const int error = page == MAP_FAILED ? -ENOMEM : io_uring_register_buf_ring(&ring, &buffers, 0);
    io_uring_queue_exit(&ring);
    if (page != MAP_FAILED) ::munmap(page, 4096);
    if (error < 0 || !multishot)
        return no(
            error < 0 ? "no provided buffer rings: " + errno_text(-error) : "no multishot receive",
            "boot a kernel 6.0 or newer");
    return judged("io_uring", "the daemons' event loop", true, true,
                  "multishot receive, provided buffer rings", "");
}

Need examine_pipe_size() {
    const auto text = read_file(AT_FDCWD, pipe_size_path);
    const int64_t bytes = text ? leading_number<int64_t>(*text).value_or(0) : 0;
    return judged("fs.pipe-max-size", "moving memory lazily", false, bytes >= pipe_bytes_needed,
                  std::to_string(bytes),
                  "sysctl -w fs.pipe-max-size=" + std::to_string(pipe_bytes_needed));
}

Need examine_userfaultfd() {
    const auto judge = [](bool met, const std::string& found, const char* mend) {
        return judged("userfaultfd", "moving memory lazily", false, met, found, mend);
    };
    const Fd fd(static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK)));
    if (!fd)
        return judge(false, errno_text(errno),
                     errno == EPERM ? "run as root" : "boot a kernel with CONFIG_USERFAULTFD");
    uffdio_api api{};
    api.api = UFFD_API;
    api.features = UFFD_FEATURE_EVENT_FORK | UFFD_FEATURE_EVENT_REMAP | UFFD_FEATURE_EVENT_REMOVE |
                   UFFD_FEATURE_EVENT_UNMAP;
    if (::ioctl(fd.get(), UFFDIO_API, &api) != 0)
        return judge(false, "without events of memory maps: " + errno_text(errno),
                     "run as root, on a kernel 4.11 or newer");
    return judge(true, "usable", "");
}

// Tried on a page of this process: written to, its mark cleared, and written to again. It must also
// be told which page of the machine's that is, which the kernel hides from who may not know.
Need examine_soft_dirty() {
    constexpr uint64_t frame = (uint64_t{1} << 55) - 1;
    const auto judge = [](const char* trouble, const char* mend) {
        return judged("soft-dirty", "sending memory ahead of a move", false, !trouble,
                      trouble ? trouble : "tracked", mend);
    };
    const char* const boot = "boot a kernel with CONFIG_MEM_SOFT_DIRTY";
    const auto pagemap = open_at(AT_FDCWD, "/proc/self/pagemap", O_RDONLY);
    void* const page =
        ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!pagemap || page == MAP_FAILED)
        return judge("/proc/self/pagemap cannot be read", "run as root");
    const auto entry = [&]() -> uint64_t {
        uint64_t e = 0;
        const auto at = static_cast<off_t>(reinterpret_cast<uintptr_t>(page) / 4096 * sizeof e);
        return ::pread(pagemap->get(), &e, sizeof e, at) == sizeof e ? e : 0;
    };
    const auto marked = [&] { return (entry() >> 55 & 1) != 0; };
    auto* const byte = static_cast<volatile char*>(page);
    *byte = 1;
    const bool set = marked(), named = (entry() & frame) != 0;
    const bool cleared = write_file(AT_FDCWD, "/proc/self/clear_refs", "4") && !marked();
    *byte = 2;
    const bool again = marked();
    ::munmap(page, 4096);
    if (!set || !cleared || !again) return judge("not tracked", boot);
    return judge(named ? nullptr : "tracked, but pages are not named",
                 "run as root of the machine");
}

std::vector<Need> examine_kernel() {
    std::vector<Need> needs;
    rights(needs);
    needs.push_back(examine_io_uring());
    needs.push_back(processes());
    needs.push_back(namespaces());
    cgroups(needs);
    needs.push_back(last_pid());
    needs.push_back(btf());
    needs.push_back(wake_latency());
    needs.push_back(examine_pipe_size());
    needs.push_back(examine_userfaultfd());
    needs.push_back(examine_soft_dirty());
    return needs;
}

Status require(const std::vector<Need>& needs) {
    std::string missing;
    for (const Need& need : needs)
        if (need.required && !need.met)
            missing +=
                (missing.empty() ? "" : "; ") + need.name + " (" + need.found + "): " + need.mend;
    if (missing.empty()) return {};
    return fail("this machine lacks " + missing);
}

std::string needs_text(const std::vector<Need>& needs) {
    size_t name = 0, found = 0;
    for (const Need& need : needs) {
        name = std::max(name, need.name.size());
        found = std::max(found, std::min<size_t>(need.found.size(), 44));
    }
    std::string out;
    for (const Need& need : needs) {
        out += padded(need.met        ? "ok"
                      : need.required ? "MISSING"
                                      : "without",
                      7) +
               padded(need.name, name) + padded(need.found, found) + need.use + "\n";
        if (!need.met) out += std::string(9, ' ') + "to mend: " + need.mend + "\n";
    }
    return out;
}

std::string needs_json(const std::vector<Need>& needs) {
    JsonWriter json;
    json.begin_array();
    for (const Need& need : needs) {
        json.begin_object()
            .field("name", need.name)
            .field("use", need.use)
            .field("required", need.required);
        json.field("met", need.met)
            .field("found", need.found)
            .field("mend", need.mend)
            .end_object();
    }
    json.end_array();
    return json.take();
}

}  // namespace souk
