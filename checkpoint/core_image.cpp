// SPDX-License-Identifier: GPL-2.0-or-later
#include "checkpoint/core_image.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "kernel/base/number.hpp"
#include "kernel/sys/host/fd.hpp"

namespace souk {
namespace {
constexpr size_t core_bytes_max = 16 << 20, head_bytes_max = 64 << 10;

// N of "core-N.img".
std::optional<pid_t> core_number(std::string_view name) {
    constexpr std::string_view before = "core-", after = ".img";
    if (!name.starts_with(before) || !name.ends_with(after)) return std::nullopt;
    name.remove_prefix(before.size());
    name.remove_suffix(after.size());
    return whole_number<pid_t>(name);
}

Result<std::string> head_of(int image, const std::string& name) {
    TRY_ASSIGN(const Fd file, open_at(image, name, O_RDONLY | O_NOFOLLOW));
    std::string head(head_bytes_max, '\0');
    const ssize_t n = ::pread(file.get(), head.data(), head.size(), 0);
    if (n < 0) return fail_errno("read " + name, errno);
    head.resize(static_cast<size_t>(n));
    return head;
}

Status check_ghost(int image, const std::string& name, uint64_t bytes_max) {
    constexpr uint64_t head = 4096;  // and the list of its pieces
    struct stat st {};
    if (::fstatat(image, name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0)
        return fail_errno(name, errno);
    if (static_cast<uint64_t>(st.st_size) > bytes_max + bytes_max / 64 + head)
        return fail(name + ": a deleted file of " + std::to_string(st.st_size) +
                    " bytes; deleted_mb allows " + std::to_string(bytes_max));
    TRY_ASSIGN(const std::string text, head_of(image, name));
    return fits_ghost(text);
}
}  // namespace

Status check_credentials(int image, const CriuUser& user, uint64_t deleted_bytes_max) {
    if (user.uid == 0) return {};
    TRY_ASSIGN(const auto names, list_dir(image, "."));
    for (const std::string& name : names) {
        if (name.starts_with("ghost-file-")) TRY(check_ghost(image, name, deleted_bytes_max));
        // Older versions of CRIU had them there; what reads them now would take them.
        if (name.starts_with("creds-")) return fail(name + ": not of this version of CRIU");
        if (!name.starts_with("core-")) continue;
        TRY_ASSIGN(const std::string text, read_file(image, name, core_bytes_max));
        const auto core = parse_core(text);
        if (!core) return wrap(name, core.error());
        if (auto fits = fits_user(*core, user); !fits)
            return wrap(name + ", of user " + std::to_string(user.uid), fits.error());
    }
    return {};
}

Status compare_credentials(int image, const std::map<pid_t, pid_t>& pids) {
    std::map<pid_t, std::string> threads;  // by their numbers inside
    for (const auto& [inside, pid] : pids) {
        const std::string tasks = "/proc/" + std::to_string(pid) + "/task";
        const auto names = list_dir(AT_FDCWD, tasks);
        if (!names) continue;
        for (const std::string& name : *names) {
            auto status = read_file(AT_FDCWD, tasks + "/" + name + "/status");
            if (!status) continue;
            const size_t line = status->find("\nNSpid:");
            const size_t end = status->find('\n', line + 1);
            const size_t last = status->find_last_of("\t ", end);
            if (line == status->npos || last == status->npos || last < line) continue;
            const auto number =
                whole_number<pid_t>(std::string_view(*status).substr(last + 1, end - last - 1));
            if (number) threads[*number] = std::move(*status);
        }
    }
    TRY_ASSIGN(const auto names, list_dir(image, "."));
    for (const std::string& name : names) {
        const auto number = core_number(name);
        if (!number) continue;
        TRY_ASSIGN(const std::string text, read_file(image, name, core_bytes_max));
        const auto core = parse_core(text);
        if (!core) return wrap(name, core.error());
        if (!core->has_credentials && !core->alive) continue;
        const auto status = threads.find(*number);
        if (status == threads.end()) return fail(name + ": there is no such thread");
        TRY_ASSIGN(const Credentials real, parse_status(status->second));
        if (core->credentials != real || !core->has_credentials)
            return fail(name + ": the credentials in the image are not those of the process");
    }
    return {};
}

Status lower_limits(pid_t pid, const std::map<int, uint64_t>& limits_max) {
    for (const auto& [resource, most] : limits_max) {
        rlimit now{};
        const auto which = static_cast<__rlimit_resource>(resource);
        const std::string what =
            "limit " + std::to_string(resource) + " of process " + std::to_string(pid);
        if (::prlimit(pid, which, nullptr, &now) != 0) return fail_errno("read " + what, errno);
        if (now.rlim_max <= most) continue;
        now = {std::min<rlim_t>(now.rlim_cur, most), most};
        if (::prlimit(pid, which, &now, nullptr) != 0) return fail_errno("lower " + what, errno);
    }
    return {};
}

}  // namespace souk
