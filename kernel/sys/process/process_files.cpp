// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/process/process_files.hpp"

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <optional>
#include <set>

#include "kernel/base/packing.hpp"
#include "kernel/sys/host/fd.hpp"

namespace souk {
namespace {

constexpr size_t place_bytes_max = 32, sums_bytes_max = 4096, protocol_bytes_max = 32,
                 spaces_bytes_max = 512;

bool is_queue(int process, const std::string& link, std::string_view target) {
    constexpr long mqueue_magic = 0x19800202;  // linux/magic.h has it from 6.6 on
    if (target.size() < 2 || target[0] != '/' || target.find('/', 1) != target.npos) return false;
    const Fd fd(::openat(process, link.c_str(), O_PATH | O_CLOEXEC));
    struct statx st {};
    struct statfs fs {};
    // We ask for the file system of regular files alone, because for a directory that question may
    // go to another machine.
    return fd && ::statx(fd.get(), "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &st) == 0 &&
           S_ISREG(st.stx_mode) && ::fstatfs(fd.get(), &fs) == 0 && fs.f_type == mqueue_magic;
}

void add_state(int process, const std::string& link, SeenFile& file) {
    struct statx st {};
    if (::statx(process, link.c_str(), AT_STATX_DONT_SYNC, STATX_BASIC_STATS | STATX_MNT_ID, &st) !=
        0)
        return;
    file.known = true;
    file.mode = st.stx_mode;
    file.links = st.stx_nlink;
    file.device = makedev(st.stx_dev_major, st.stx_dev_minor);
    file.inode = st.stx_ino;
    file.rdev = makedev(st.stx_rdev_major, st.stx_rdev_minor);
    if ((st.stx_mask & STATX_MNT_ID) != 0) file.mount = st.stx_mnt_id;
}

void add_info(int process, const std::string& number, SeenFile& file) {
    const auto info = read_file(process, "fdinfo/" + number);
    if (!info) return;
    (void)std::sscanf(info->c_str(), "pos: %*d flags: %o", &file.flags);
    file.locked = info->find("\nlock:\t") != std::string::npos;
    constexpr std::string_view clock = "\nclockid: ";
    const size_t at = info->find(clock);
    const int number_of_clock =
        at == std::string::npos ? -1 : std::atoi(&(*info)[at + clock.size()]);
    file.wakes = number_of_clock == CLOCK_REALTIME_ALARM || number_of_clock == CLOCK_BOOTTIME_ALARM;
}

std::string spaces_of(int process) {
    std::string all;
    for (const char* kind : {"mnt", "pid", "net", "uts", "ipc", "user", "cgroup", "time"}) {
        char name[48];
        const std::string link = std::string("ns/") + kind;
        const ssize_t n = ::readlinkat(process, link.c_str(), name, sizeof name);
        if (n > 0) all.append(all.empty() ? "" : " ").append(name, static_cast<size_t>(n));
    }
    return all;
}

// Asks by the socket's name in /proc alone, so that the socket need not be opened.
std::string protocol_of(int process, const std::string& link) {
    const std::string path = "/proc/self/fd/" + std::to_string(process) + "/" + link;
    char name[protocol_bytes_max] = {};
    const ssize_t n = ::getxattr(path.c_str(), "system.sockprotoname", name, sizeof name - 1);
    return n > 0 ? name : "";
}

// One process, by its directory in /proc.
struct Look {
    int process;
    const LookFor& what;
    struct Left {
        uint32_t open, files;  // of files_max; of all
        size_t bytes;
        bool enough = true;
    };
    Left& left;
    SeenProcess& seen;

    void add(const std::string& link, std::string place, const std::string& number = {}) const {
        if (left.files == 0) return (void)(left.enough = false);
        --left.files;
        char target[PATH_MAX];
        const ssize_t length = ::readlinkat(process, link.c_str(), target, sizeof target);
        if (length <= 0) return;
        SeenFile file;
        file.place = std::move(place);
        file.target.assign(target, static_cast<size_t>(length));
        file.queue = !number.empty() && is_queue(process, link, file.target);
        if (what.states && target[0] == '/') add_state(process, link, file);
        const bool pipe = what.kinds && file.target.starts_with("pipe:[");
        const bool pidfd = what.kinds && file.target == "anon_inode:[pidfd]";
        const bool timer = what.kinds && file.target == "anon_inode:[timerfd]";
        if (what.kinds && file.target.starts_with("socket:["))
            file.protocol = protocol_of(process, link);
        if ((what.infos || pipe || pidfd || timer) && !number.empty())
            add_info(process, number, file);
        file.packets = pipe && (file.flags & O_DIRECT) != 0;
        file.thread = pidfd && (file.flags & O_EXCL) != 0;
        seen.files.push_back(std::move(file));
    }

    void add_open() const {
        if (left.open == 0) return;
        const auto numbers = list_dir(process, "fd");
        if (!numbers) {
            seen.error = numbers.error().code;
            return;
        }
        for (const std::string& number : *numbers) {
            if (left.open == 0 || !left.enough) return;
            --left.open;
            add("fd/" + number, "fd " + number, number);
        }
    }

    // A file is often mapped in several pieces, as a library is: one look is enough.
    void add_maps() const {
        auto maps = read_file(process, "maps", maps_bytes_max);
        if (!maps) return;
        std::set<std::string_view> once;
        if (what.mapped)
            for (const MappedRange& range : mapped_ranges(*maps))
                if (once.insert(range.file).second) add("map_files/" + range.name, "map");
        if (!what.maps) return;
        if (maps->size() > left.bytes) return (void)(left.enough = false);
        left.bytes -= maps->size();
        seen.maps = std::move(*maps);
    }
};

}  // namespace

// Format: proc_pid_maps(5), where addresses have leading zeros, which the names in map_files have
// not.
std::vector<MappedRange> mapped_ranges(std::string_view maps) {
    std::vector<MappedRange> all;
    while (!maps.empty()) {
        const size_t end = std::min(maps.find('\n'), maps.size());
        std::string_view line = maps.substr(0, end);
        maps.remove_prefix(std::min(end + 1, maps.size()));
        const auto word = [&line] {
            const size_t to = std::min(line.find(' '), line.size());
            const std::string_view w = line.substr(0, to);
            line.remove_prefix(std::min(to + 1, line.size()));
            return w;
        };
        const std::string_view range = word();
        (void)word();  // what it may be used for
        (void)word();  // where it begins in its file
        const std::string_view file = line, device = word(), inode = word();
        const size_t dash = range.find('-');
        if (dash == range.npos || device.empty() || inode.empty() || inode == "0") continue;
        const auto plain = [](std::string_view number) {
            number.remove_prefix(std::min(number.find_first_not_of('0'), number.size()));
            return std::string(number.empty() ? "0" : number);
        };
        all.push_back({plain(range.substr(0, dash)) + "-" + plain(range.substr(dash + 1)), file});
    }
    return all;
}

Result<std::string> read_whole(int file, const std::string& what, size_t bytes_max) {
    constexpr size_t piece = 64 << 10;
    std::string text;
    for (size_t got = 0;;) {
        if (got > bytes_max) return fail_errno(what, EFBIG);
        text.resize(got + piece);
        const ssize_t n = ::pread(file, text.data() + got, piece, static_cast<off_t>(got));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return fail_errno(what, errno);
        got += static_cast<size_t>(n);
        text.resize(got);
        if (n == 0) return text;
    }
}

Result<std::vector<SeenProcess>> look_at_processes(int proc, const std::vector<pid_t>& pids,
                                                   const LookFor& what, LookMost most) {
    std::vector<SeenProcess> all;
    Look::Left left{what.files_max, most.files, most.maps_bytes};
    for (const pid_t pid : pids) {
        SeenProcess& seen = all.emplace_back();
        seen.pid = pid;
        const auto process = open_at(proc, std::to_string(pid), O_RDONLY | O_DIRECTORY);
        if (!process) {
            seen.error = process.error().code;
            continue;
        }
        const Look look{process->get(), what, left, seen};
        if (what.kinds) seen.spaces = spaces_of(process->get());
        if (what.states)
            for (const char* one : {"exe", "cwd", "root"}) look.add(one, one);
        look.add_open();
        if (what.mapped || what.maps) look.add_maps();
        if (what.sums)
            seen.sums = read_file(process->get(), "smaps_rollup", sums_bytes_max).value_or("");
        if (!left.enough)
            return fail_errno("its processes have more than " + std::to_string(most.files) +
                                  " files open and mapped, or " +
                                  std::to_string(most.maps_bytes >> 20) + " MB in /proc/PID/maps",
                              EFBIG);
    }
    return all;
}

Result<std::vector<SeenProcess>> look_from_here(const PidsInside& pids, const LookFor& what) {
    TRY_ASSIGN(const Fd proc, open_at(AT_FDCWD, "/proc", O_RDONLY | O_DIRECTORY));
    std::vector<pid_t> here;
    for (const auto& [inside, pid] : pids) here.push_back(pid);
    TRY_ASSIGN(auto all, look_at_processes(proc.get(), here, what));
    auto seen = all.begin();
    for (const auto& [inside, pid] : pids) (seen++)->pid = inside;
    return all;
}

std::string encode_look(const std::vector<SeenProcess>& look) {
    PackWriter w;
    w.number(look.size(), 4);
    for (const SeenProcess& p : look) {
        w.number(static_cast<uint32_t>(p.pid), 4);
        w.number(static_cast<uint32_t>(p.error), 4);
        w.text(p.maps);
        w.text(p.sums);
        w.text(p.spaces);
        w.number(p.files.size(), 4);
        for (const SeenFile& f : p.files) {
            w.text(f.place);
            w.text(f.target);
            w.text(f.protocol);
            w.number(f.queue | f.known << 1 | f.locked << 2 | f.packets << 3 | f.wakes << 4 |
                         f.thread << 5,
                     1);
            for (const uint32_t n : {f.mode, f.links, f.flags}) w.number(n, 4);
            for (const uint64_t n : {f.device, f.inode, f.rdev, f.mount}) w.number(n, 8);
        }
    }
    return w.bytes;
}

Result<std::vector<SeenProcess>> decode_look(std::string_view text) {
    PackReader r{text};
    std::vector<SeenProcess> all;
    const uint64_t processes = r.number(4);
    for (uint64_t i = 0; i < processes && r.whole; ++i) {
        SeenProcess& p = all.emplace_back();
        p.pid = static_cast<pid_t>(r.number(4));
        p.error = static_cast<int>(r.number(4));
        p.maps = r.text(maps_bytes_max);
        p.sums = r.text(sums_bytes_max);
        p.spaces = r.text(spaces_bytes_max);
        const uint64_t files = r.number(4);
        for (uint64_t n = 0; n < files && r.whole; ++n) {
            SeenFile& f = p.files.emplace_back();
            f.place = r.text(place_bytes_max);
            f.target = r.text(PATH_MAX);
            f.protocol = r.text(protocol_bytes_max);
            const uint64_t is = r.number(1);
            if (is > 63) r.whole = false;
            f.queue = (is & 1) != 0;
            f.known = (is & 2) != 0;
            f.locked = (is & 4) != 0;
            f.packets = (is & 8) != 0;
            f.wakes = (is & 16) != 0;
            f.thread = (is & 32) != 0;
            for (uint32_t* to : {&f.mode, &f.links, &f.flags})
                *to = static_cast<uint32_t>(r.number(4));
            for (uint64_t* to : {&f.device, &f.inode, &f.rdev, &f.mount}) *to = r.number(8);
        }
    }
    if (!r.good()) return fail("a look at processes that is damaged");
    return all;
}

}  // namespace souk
