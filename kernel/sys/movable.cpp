// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/movable.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace souk {
namespace {
struct Kind {
    std::string_view prefix, name;
};
// CRIU 4.2 refuses each of these.
constexpr std::array kinds = {
    Kind{"anon_inode:[io_uring]", "an io_uring"},
    Kind{"anon_inode:[userfaultfd]", "a userfaultfd"},
    Kind{"anon_inode:[perf_event]", "a perf event"},
    Kind{"anon_inode:bpf", "a BPF object"},
    Kind{"anon_inode:kvm", "a virtual machine"},
    Kind{"/dev/kvm", "a virtual machine"},
    Kind{"/dev/fuse", "a FUSE server's device"},
    Kind{"/secretmem", "secret memory"},
    Kind{"/dev/nvidia", "a GPU"},
    Kind{"/dev/dri/", "a GPU"},
    Kind{"/dev/kfd", "a GPU"},
};

std::string named(const CapsuleProcess& p) { return "process " + std::to_string(p.pid) + " (" + p.name + ")"; }

bool traced(int proc, pid_t pid) {
    const auto status = read_file(proc, std::to_string(pid) + "/status");
    if (!status) return false;
    const size_t line = status->find("\nTracerPid:\t");
    return line != std::string::npos && status->compare(line + 12, 2, "0\n") != 0;
}
}  // namespace

std::string_view unmovable_file(std::string_view target) {
    for (const Kind& kind : kinds)
        if (target.starts_with(kind.prefix)) return kind.name;
    return {};
}

Status check_movable(const Capsule& capsule, pid_t root, size_t files_max) {
    TRY_ASSIGN(const auto processes, capsule_processes(capsule));
    TRY(check_movable(processes, root));
    TRY_ASSIGN(const Fd proc, capsule.open_inside("/proc", O_RDONLY | O_DIRECTORY));
    size_t files = 0;
    for (const CapsuleProcess& p : processes) {
        if (p.pid == 1 || p.parent == 0 || p.state == 'Z') continue;  // souk-init, and who came from outside
        if (traced(proc.get(), p.pid)) return fail("cannot move: " + named(p) + " is being traced");
        const std::string directory = std::to_string(p.pid) + "/fd";
        const auto names = list_dir(proc.get(), directory);
        if (!names) continue;  // it ended meanwhile
        for (const std::string& name : *names) {
            if (++files > files_max) return {};
            char target[64];
            const ssize_t n = ::readlinkat(proc.get(), (directory + "/" + name).c_str(), target, sizeof target);
            if (n <= 0) continue;
            if (const auto what = unmovable_file({target, static_cast<size_t>(n)}); !what.empty())
                return fail("cannot move: " + named(p) + " has " + std::string(what) + " open (file " + name + ")");
        }
    }
    return {};
}

Result<bool> holds_locks(const Capsule& capsule, const std::vector<CapsuleProcess>& processes) {
    TRY_ASSIGN(const Fd proc, capsule.open_inside("/proc", O_RDONLY | O_DIRECTORY));
    for (const CapsuleProcess& p : processes) {
        if (p.pid == 1 || p.parent == 0 || p.state == 'Z') continue;
        const std::string directory = std::to_string(p.pid) + "/fdinfo";
        const auto names = list_dir(proc.get(), directory);
        if (!names) continue;
        for (const std::string& name : *names) {
            const auto info = read_file(proc.get(), directory + "/" + name);
            if (info && info->find("\nlock:\t") != std::string::npos) return true;
        }
    }
    return false;
}

}  // namespace souk
