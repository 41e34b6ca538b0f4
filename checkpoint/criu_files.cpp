// SPDX-License-Identifier: GPL-2.0-or-later
// This file reads and changes CRIU's own image files.
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>

#include "checkpoint/criu.hpp"
#include "checkpoint/criu_fields.hpp"
#include "checkpoint/kept_locks.h"
#include "kernel/base/text.hpp"

namespace souk {
namespace {
// Finds the place of the nanoseconds of an expired periodic timer; 0 if the entry is no such timer.
// Returns false if the entry is damaged.
bool expired_timer(std::string_view entry, size_t base, size_t& where) {
    enum { vsec = 7, vnsec = 8, isec = 9, insec = 10 };
    uint64_t values[11] = {};
    size_t at = 0;
    ProtobufFields f(entry, base);
    while (f.next()) {
        if (f.number < 11) values[f.number] = f.value;
        if (f.number == vnsec) at = f.value_at;
    }
    where = values[vsec] == 0 && values[vnsec] == 0 && (values[isec] != 0 || values[insec] != 0)
                ? at
                : 0;
    return f.good;
}

}  // namespace

Result<std::vector<size_t>> expired_timerfds(std::string_view image) {
    constexpr uint32_t files_magic = 0x56303138;
    constexpr uint32_t timerfd_field = 12;
    std::vector<size_t> found;
    if (image.size() < 8 || criu_u32(image, 0) != criu_common_magic ||
        criu_u32(image, 4) != files_magic)
        return fail("files.img: not an image that CRIU wrote");
    for (size_t at = 8; at < image.size();) {
        if (image.size() - at < 4) return fail("files.img: cut short");
        const uint32_t length = criu_u32(image, at);
        at += 4;
        if (length > image.size() - at) return fail("files.img: cut short");
        ProtobufFields f(image.substr(at, length), at);
        size_t where = 0;
        while (f.next())
            if (f.number == timerfd_field) {
                if (!expired_timer(f.inner, f.inner_at, where))
                    return fail("files.img: a damaged timerfd");
                if (where > 0) found.push_back(where);
            }
        if (!f.good) return fail("files.img: a damaged entry");
        at += length;
    }
    return found;
}

bool image_has_locks(int images) {
    constexpr off_t header_bytes = 8;
    struct stat st {};
    return ::faccessat(images, SOUK_LOCKS_NAME, F_OK, 0) == 0 ||
           (::fstatat(images, "filelocks.img", &st, 0) == 0 && st.st_size > header_bytes);
}

// CRIU images/core.proto: core_entry, thread_core_entry.
Result<int> arm_expired_timerfds(int images) {
    const auto image = read_file(images, "files.img", 256 << 20);
    if (!image && image.error().code == ENOENT) return 0;
    if (!image) return wrap("read CRIU's image", image.error());
    TRY_ASSIGN(const std::vector<size_t> places, expired_timerfds(*image));
    if (places.empty()) return 0;
    TRY_ASSIGN(const Fd file, open_at(images, "files.img", O_WRONLY));
    for (const size_t place : places)
        if (::pwrite(file.get(), "\x01", 1, static_cast<off_t>(place)) != 1)
            return fail_errno("change files.img", errno);
    return static_cast<int>(places.size());
}

CauseCode criu_cause(std::string_view lines) {
    struct Line {
        std::string_view words;
        CauseCode code;
    };
    // CRIU 3.17 to 4.2 have these lines.
    static constexpr Line known[] = {
        {"Can't get rlimit", CauseCode::lacks_sys_resource},
        {"increase limit", CauseCode::deleted_file_too_large},
        {"half of stream unix connection", CauseCode::socket_to_outside},
        {"External socket is used", CauseCode::socket_to_outside},
        {" without peer ", CauseCode::socket_to_outside},
        {"Connected TCP socket", CauseCode::connection_open},
        {" of that type [", CauseCode::file_unsupported},
        {"Can't lookup mount=", CauseCode::file_mount_unknown},
        {"Can't dump nested", CauseCode::namespace_nested},
        {"Dumping seccomp filters not supported", CauseCode::seccomp_unsupported},
        {"PTRACE_O_SUSPEND_SECCOMP", CauseCode::seccomp_unsupported},
        {"Timeout reached", CauseCode::did_not_stop},
    };
    for (const Line& line : known)
        if (lines.find(line.words) != lines.npos) return line.code;
    return CauseCode::none;
}

std::string criu_unopened_file(std::string_view lines) {
    struct Form {
        std::string_view before, between;
    };
    // criu/files-reg.c, open_path, for a file, and for a FIFO; criu/fsnotify.c, for what is
    // watched. The path is that in the job's root, mostly without its first '/'.
    static constexpr Form forms[] = {{"Can't open file ", " on restore: "},
                                     {"Can't open file ", ": "},
                                     {"fsnotify: Unable to open ", ": "}};
    for (const Form& form : forms) {
        const size_t from = lines.find(form.before);
        if (from == lines.npos) continue;
        std::string_view line = lines.substr(from + form.before.size());
        line = line.substr(0, std::min(line.find('\n'), line.find("; Error ")));
        const size_t to = line.rfind(form.between);
        if (to == line.npos) continue;
        return std::string("cannot open ") + (line.starts_with('/') ? "" : "/") +
               std::string(line.substr(0, to)) + ": " +
               std::string(line.substr(to + form.between.size()));
    }
    return {};
}

std::string criu_other_file(std::string_view lines) {
    // The same file, validate_file and open_path: a size, a mode or a build id.
    constexpr std::string_view before = "File ", between = " has bad ";
    const size_t at = lines.find(between), from = lines.rfind(before, at);
    if (at == lines.npos || from == lines.npos) return {};
    const std::string_view path = lines.substr(from + before.size(), at - from - before.size());
    const std::string_view what = lines.substr(at + between.size());
    return "/" + std::string(path) + " is another file now, of another " +
           std::string(what.substr(0, std::min(what.find('\n'), what.find("; Error "))));
}

std::string criu_refusal(std::string_view lines) {
    constexpr std::string_view before = "Error (souk): ";  // criu_user.c, refuse
    const size_t from = lines.find(before);
    if (from != lines.npos) {
        const std::string_view line = lines.substr(from + before.size());
        return std::string(line.substr(0, std::min(line.find('\n'), line.find("; Error "))));
    }
    struct Line {
        std::string_view words, meaning;
    };
    static constexpr Line known[] = {
        {"Can't make FS id",
         "a process of it has one and the same working directory and umask as another (CLONE_FS)"},
        {"Can't make FILES id",
         "a process of it has the same descriptors as another (CLONE_FILES)"},
        {"Can't make VM id", "a process of it has the same memory as another (CLONE_VM)"},
        {"Unable too cut ",
         "a UNIX socket was bound to a relative name, and its file has another name by now"},
        {"Address already in use", "a port or an address of a socket that it has is in use there"},
        {"Cannot assign requested address", "a socket of it has an address that is not there"},
        {"ctty inheritance detected", "a process of it has the terminal of another session"},
        {"File name too long", "a path of a file that it has open is longer than 4096 bytes"},
    };
    const std::string errors = criu_error_lines(lines);
    for (const Line& line : known)
        if (errors.find(line.words) != errors.npos) return std::string(line.meaning);
    return {};
}

bool criu_trouble_passes(std::string_view error) {
    // criu/seize.c, collect_threads. Of a process whose first thread has ended for good,
    // kernel/sys/process/movable tells before. criu/sk-netlink.c: an answer that is not read yet
    // (getifaddrs).
    return error.find("Zombies with threads are not supported") != error.npos ||
           error.find("Zombie thread not supported") != error.npos ||
           error.find("netlink: The socket has data to read") != error.npos ||
           error.find("urgent data waits") != error.npos ||
           error.find("waits in a socket") != error.npos ||  // criu_in_flight.c
           error.find("waits for the rest of it") != error.npos ||
           error.find("are on their way") != error.npos ||
           error.find("is on its way ") != error.npos;
}

std::string criu_error_lines(std::string_view log, size_t lines_max) {
    constexpr size_t line_bytes_max = 240;
    std::string out;
    for (size_t at = 0, lines = 0; at < log.size() && lines < lines_max;) {
        const size_t end = std::min(log.find('\n', at), log.size());
        std::string_view line = log.substr(at, end - at);
        at = end + 1;
        const size_t error = line.find("Error ");
        // CRIU wants more open files than it may have where CAP_SYS_RESOURCE is missing, says so,
        // and works.
        if (error == std::string_view::npos ||
            line.find("setup RLIMIT_NOFILE") != std::string_view::npos)
            continue;
        const std::string said = blank_controls(line.substr(error, line_bytes_max));
        if (out.find(said) != std::string::npos) continue;
        out += (out.empty() ? "" : "; ") + said;
        ++lines;
    }
    return out;
}

}  // namespace souk
