// SPDX-License-Identifier: GPL-2.0-or-later
#include <sys/resource.h>

#include <algorithm>
#include <optional>

#include "checkpoint/core_image.hpp"
#include "kernel/base/number.hpp"
#include "kernel/base/proc_status.hpp"

namespace souk {
namespace {
Result<std::vector<uint32_t>> numbers_of(std::string_view status, const char* name) {
    const auto line = status_line(status, name);
    if (!line) return fail(std::string("the kernel does not tell ") + name);
    std::vector<uint32_t> numbers;
    for (size_t at = 0; (at = line->find_first_not_of(" \t", at)) != line->npos;) {
        const size_t end = std::min(line->find_first_of(" \t", at), line->size());
        const auto number = whole_number<uint32_t>(line->substr(at, end - at));
        if (!number) return fail(std::string("the kernel tells no numbers for ") + name);
        numbers.push_back(*number);
        at = end;
    }
    return numbers;
}
}  // namespace

std::optional<pid_t> core_number(std::string_view name) {
    constexpr std::string_view before = "core-", after = ".img";
    if (!name.starts_with(before) || !name.ends_with(after)) return std::nullopt;
    name.remove_prefix(before.size());
    name.remove_suffix(after.size());
    return whole_number<pid_t>(name);
}

Result<Credentials> parse_status(std::string_view status) {
    Credentials c;
    TRY_ASSIGN(const auto uids, numbers_of(status, "Uid"));
    TRY_ASSIGN(const auto gids, numbers_of(status, "Gid"));
    TRY_ASSIGN(c.groups, numbers_of(status, "Groups"));
    if (uids.size() != 4 || gids.size() != 4) return fail("the kernel tells no four ids");
    std::ranges::copy(uids, c.uids.begin());
    std::ranges::copy(gids, c.gids.begin());
    std::ranges::sort(c.groups);
    size_t set = 0;
    for (const char* name : {"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"}) {
        const auto line = status_line(status, name);
        const auto bits = line ? whole_number<uint64_t>(*line, 16) : std::nullopt;
        if (!bits) return fail(std::string("the kernel does not tell ") + name);
        c.capabilities[set++] = *bits;
    }
    TRY_ASSIGN(const auto gain, numbers_of(status, "NoNewPrivs"));
    TRY_ASSIGN(const auto filters, numbers_of(status, "Seccomp"));
    if (gain.size() != 1 || filters.size() != 1) return fail("the kernel tells no privileges");
    c.no_new_privs = gain[0] != 0;
    c.seccomp = filters[0];
    return c;
}

Status fits_user(const CoreImage& core, const CriuUser& user) {
    if (user.uid == 0) return {};
    if (!core.has_credentials)
        return core.alive ? Status(fail("it has no credentials, and would stay root")) : Status();
    const Credentials& c = core.credentials;
    const auto known = [&](uint32_t group) {
        return group == user.gid || std::ranges::find(user.groups, group) != user.groups.end();
    };
    for (const uint32_t uid : c.uids)
        if (uid != user.uid) return fail("it would be user " + std::to_string(uid));
    for (const uint32_t gid : c.gids)
        if (!known(gid)) return fail("it would be of group " + std::to_string(gid));
    for (const uint32_t group : c.groups)
        if (!known(group)) return fail("it would be in group " + std::to_string(group));
    constexpr size_t bounding = 3;  // gives nothing by itself to who can gain none
    for (size_t set = 0; set < c.capabilities.size(); ++set)
        if (set != bounding && c.capabilities[set] != 0) return fail("it would have capabilities");
    return {};
}

// getrlimit(2), RLIMIT_NICE: 20 less the nice value; who has a limit of 0 may not go below 0.
Status fits_limits(const CoreImage& core, const std::map<int, uint64_t>& limits_max) {
    const auto most = [&](int resource) {
        const auto limit = limits_max.find(resource);
        return limit == limits_max.end() ? UINT64_MAX : limit->second;
    };
    if (core.realtime && std::max(core.priority, 1U) > most(RLIMIT_RTPRIO))
        return fail("it would have real-time priority " + std::to_string(core.priority) +
                    "; rtprio_max allows " + std::to_string(most(RLIMIT_RTPRIO)));
    constexpr int64_t nicest = 20;
    if (core.nice < 0 && static_cast<uint64_t>(nicest - core.nice) > most(RLIMIT_NICE))
        return fail("it would have the nice value " + std::to_string(core.nice) +
                    ", which is below what nice_max allows");
    return {};
}

// linux/stat.h.
Status fits_ghost(uint32_t mode) {
    constexpr uint32_t type = 0170000, character = 0020000, block = 0060000, set_ids = 06000;
    if ((mode & type) == character || (mode & type) == block)
        return fail("a deleted file is a device");
    return (mode & set_ids) == 0 ? Status{} : fail("a deleted file has a set-ID bit");
}

Status fits_kinds(const EntryKinds& kinds) {
    // CRIU images/fdinfo.proto, fd_types.
    static constexpr unsigned of_users[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 14, 17, 18, 20};
    static constexpr std::pair<unsigned, const char*> others[] = {
        {10, "a packet socket"},
        {12, "a watch of fanotify"},
        {15, "an interface of a network (tun)"},
        {16, "a file of a plugin of CRIU"},
        {19, "a table of BPF"},
    };
    uint64_t allowed = 0;
    for (const unsigned kind : of_users) allowed |= uint64_t{1} << kind;
    if ((kinds.bits & ~allowed) == 0) return {};
    for (const auto& [kind, what] : others)
        if ((kinds.bits >> kind & 1) != 0) return fail(std::string("it would have ") + what);
    return fail("it would have a file of a kind that no user has");
}

namespace {
Status fits_namespaces(const ImageFacts& image) {
    for (const auto& [name, namespaces] : image.namespaces)
        if (namespaces != image.namespaces.begin()->second)
            return fail(name + ": it would be in a namespace that is not the capsule's");
    return {};
}

Status fits_roots(const ImageFacts& image) {
    for (const auto& [name, root] : image.roots)
        if (!std::ranges::binary_search(image.kinds.roots, root.file))
            return fail(name + ": its root directory would be none of a job's");
    return {};
}
}  // namespace

Status check_credentials(const ImageFacts& image, const CriuUser& user, uint64_t deleted_bytes_max,
                         const std::map<int, uint64_t>& limits_max) {
    constexpr uint64_t head = 4096;  // and the list of its pieces
    if (user.uid == 0) return {};
    for (const ImageFacts::Ghost& ghost : image.ghosts) {
        if (ghost.bytes > deleted_bytes_max + deleted_bytes_max / 64 + head)
            return fail(ghost.name + ": a deleted file of " + std::to_string(ghost.bytes) +
                        " bytes; deleted_mb allows " + std::to_string(deleted_bytes_max));
        if (auto fits = fits_ghost(ghost.mode); !fits) return wrap(ghost.name, fits.error());
    }
    for (const auto& [thread, core] : image.cores) {
        Status fits = fits_user(core, user);
        if (fits) fits = fits_limits(core, limits_max);
        if (!fits)
            return wrap(
                "core-" + std::to_string(thread) + ".img, of user " + std::to_string(user.uid),
                fits.error());
    }
    if (auto fits = fits_kinds(image.kinds); !fits) return wrap("files.img", fits.error());
    TRY(fits_roots(image));
    return fits_namespaces(image);
}

}  // namespace souk
