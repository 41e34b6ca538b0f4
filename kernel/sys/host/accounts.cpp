// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/host/accounts.hpp"

#include <fcntl.h>
#include <grp.h>
#include <pwd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <iterator>

#include "kernel/sys/host/clock.hpp"
#include "kernel/sys/host/fd.hpp"

namespace souk {
namespace {

constexpr Nanos account_kept = Nanos::from_s(60), silent_rest = Nanos::from_s(10);
constexpr size_t accounts_max = 4096, entry_bytes_max = 1 << 20;
constexpr int groups_max = 65'536;

// Tells whether a look-up that ended with this error says nothing of the account. The other errors
// that a C library gives (ENOENT, ESRCH, EBADF, EPERM, ...) mean that the account was not found:
// getpwnam(3).
bool says_nothing(int error) {
    constexpr int all[] = {EAGAIN, EBUSY,  ECONNREFUSED, ECONNRESET,  EHOSTDOWN, EHOSTUNREACH,
                           EINTR,  EIO,    EMFILE,       ENETUNREACH, ENFILE,    ENOMEM,
                           EPIPE,  ERANGE, ETIME,        ETIMEDOUT};
    return std::ranges::find(all, error) != std::end(all);
}

tl::unexpected<Error> not_looked_up(int error) {
    return fail_errno("the accounts of this machine cannot be read", error);
}

// Fails if few descriptors are left. Without one, a name service that is loaded into this process
// may say that nobody is there, and one that is not loaded would be left out for as long as this
// process lives. So this many are tried first.
Status descriptors_left() {
    constexpr int needed = 8;
    std::array<Fd, needed> tried;
    for (Fd& one : tried) {
        one = Fd(::open("/", O_PATH | O_CLOEXEC));
        if (!one) return not_looked_up(errno);
    }
    return {};
}

// `ask(buffer, found)` as getpwnam_r: a buffer that is too small is made larger. `entry` of who is
// there, in `buffer`; false of who is not.
template <class Entry, class Ask>
Result<bool> look_up(Entry& entry, std::string& buffer, const Ask& ask) {
    TRY(descriptors_left());
    Entry* found = nullptr;
    errno = 0;  // a name service may give this back as its own
    for (buffer.resize(4096);; buffer.resize(2 * buffer.size())) {
        const int failed = ask(&entry, buffer.data(), buffer.size(), &found);
        if (failed == ERANGE && buffer.size() < entry_bytes_max) continue;
        if (says_nothing(failed)) return not_looked_up(failed);
        return failed == 0 && found != nullptr;
    }
}

std::optional<Account> account_of(const passwd& entry) {
    return Account{entry.pw_name, entry.pw_uid, entry.pw_gid};
}

}  // namespace

template <class Map, class Look>
typename Map::mapped_type::second_type SystemAccounts::kept(Map& known,
                                                            const typename Map::key_type& asked,
                                                            Look look) const {
    using Found = typename Map::mapped_type::second_type;
    const Nanos now = monotonic_now();
    const auto it = known.find(asked);
    if (it != known.end() && now < it->second.first) return it->second.second;
    Result<Found> found = fail(accounts_silent);
    if (!limit_) {
        found = look();
    } else if (now >= rest_) {
        auto answer = answers_.within<Result<Found>>(*limit_, std::move(look));
        if (answer)
            found = std::move(*answer);
        else if (answer.error().code == ETIMEDOUT)
            rest_ = monotonic_now() + silent_rest;
        else
            found = not_looked_up(answer.error().code);
    }
    if (!found && it != known.end() && it->second.second != Found{}) return it->second.second;
    if (!found) {
        silent_ = found.error().message;
        return {};
    }
    if (known.size() >= accounts_max) known.clear();
    known[asked] = {now + account_kept, *found};
    return *std::move(found);
}

std::optional<Account> SystemAccounts::named(const std::string& name) const {
    return kept(names_, name, [name]() -> Result<std::optional<Account>> {
        passwd entry{};
        std::string buffer;
        TRY_ASSIGN(const bool found,
                   look_up(entry, buffer, [&](passwd* e, char* bytes, size_t n, passwd** out) {
                       return ::getpwnam_r(name.c_str(), e, bytes, n, out);
                   }));
        return found ? std::optional(account_of(entry)) : std::nullopt;
    });
}

std::optional<Account> SystemAccounts::numbered(uint32_t uid) const {
    return kept(numbers_, uid, [uid]() -> Result<std::optional<Account>> {
        passwd entry{};
        std::string buffer;
        TRY_ASSIGN(const bool found,
                   look_up(entry, buffer, [&](passwd* e, char* bytes, size_t n, passwd** out) {
                       return ::getpwuid_r(uid, e, bytes, n, out);
                   }));
        return found ? std::optional(account_of(entry)) : std::nullopt;
    });
}

std::vector<uint32_t> SystemAccounts::groups_of(const Account& account) const {
    return kept(groups_, {account.name, account.gid}, [account]() -> Result<std::vector<uint32_t>> {
        TRY(descriptors_left());
        std::vector<gid_t> groups(64);
        int n = static_cast<int>(groups.size());
        while (::getgrouplist(account.name.c_str(), account.gid, groups.data(), &n) < 0) {
            if (n > groups_max || static_cast<size_t>(n) <= groups.size()) {
                n = 0;
                break;
            }
            groups.resize(static_cast<size_t>(n));
        }
        groups.resize(static_cast<size_t>(n));
        return std::vector<uint32_t>(groups.begin(), groups.end());
    });
}

std::string SystemAccounts::group_name(uint32_t gid) const {
    return kept(group_names_, gid, [gid]() -> Result<std::string> {
        group entry{};
        std::string buffer;
        TRY_ASSIGN(const bool found,
                   look_up(entry, buffer, [&](group* e, char* bytes, size_t n, group** out) {
                       return ::getgrgid_r(gid, e, bytes, n, out);
                   }));
        return std::string(found ? entry.gr_name : "");
    });
}

}  // namespace souk
