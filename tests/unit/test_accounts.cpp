// SPDX-License-Identifier: GPL-2.0-or-later
// The accounts of this machine, and when who should tell them is silent.
#include "kernel/sys/host/accounts.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "kernel/sys/host/clock.hpp"
#include "tests/unit/temp_dir.hpp"
#include "tests/unit/unit.hpp"

namespace souk::unit {
namespace {

constexpr Nanos limit = Nanos::from_ms(100);

START_TEST(root_is_known_and_nobody_else_by_that_number) {
    for (const auto& accounts :
         {SystemAccounts(), SystemAccounts(std::nullopt), SystemAccounts(Nanos::from_s(60))}) {
        ck_assert(accounts.named("root")->uid == 0 && accounts.numbered(0)->name == "root");
        ck_assert(!accounts.named("no such user"));
        ck_assert_text(accounts.group_name(0), "root");
        const auto nobody = accounts.told([&] { return accounts.named("no such user"); });
        ck_assert(nobody && !*nobody);
    }
}
END_TEST

// Whoever reads the file of accounts waits until somebody has written it.
START_TEST(silence_is_not_that_there_is_no_such_user) {
    UNIT_SKIP_IF(::geteuid() != 0 ? "only root mounts a file" : nullptr);
    const TempDir dir;
    const std::string silent = dir.path + "/passwd";
    ck_assert(::unshare(CLONE_NEWNS) == 0);
    ck_assert(::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0);
    const SystemAccounts accounts(limit);
    ck_assert(accounts.named("root").has_value());
    ck_assert(::mkfifo(silent.c_str(), 0600) == 0);
    ck_assert(::mount(silent.c_str(), "/etc/passwd", nullptr, MS_BIND, nullptr) == 0);
    const auto other = accounts.told([&] { return accounts.named("somebody"); });
    ck_assert(!other && other.error().code == EAGAIN);
    ck_assert(accounts.told([&] { return accounts.named("root"); }).value()->uid == 0);
    // Nobody else is looked up for a while: that needs no wait.
    const Nanos before = monotonic_now();
    for (uint32_t uid = 5000; uid < 5100; ++uid)
        ck_assert(!accounts.told([&] { return accounts.numbered(uid); }));
    ck_assert(monotonic_now() - before < Nanos::from_s(5));
    const Fd speaks(::open(silent.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));  // who waits goes on
}
END_TEST

// Nor is a process without a descriptor left told that there is no such user.
START_TEST(what_cannot_be_read_says_nothing_of_who_is_there) {
    for (const auto& accounts :
         {SystemAccounts(), SystemAccounts(std::nullopt), SystemAccounts(Nanos::from_s(60))}) {
        const std::string root =
            accounts.told([&] { return accounts.named("root"); }).value()->name;
        (void)accounts.groups_of({"daemon", 1, 1});  // all name services are loaded now
        rlimit before{};
        ck_assert(::getrlimit(RLIMIT_NOFILE, &before) == 0);
        const rlimit none{0, before.rlim_max};
        ck_assert(::setrlimit(RLIMIT_NOFILE, &none) == 0);
        const auto number = accounts.told([&] { return accounts.numbered(1); });
        const auto group = accounts.told([&] { return accounts.group_name(1); });
        const auto groups = accounts.told([&] { return accounts.groups_of({root, 0, 0}); });
        const auto again = accounts.told([&] { return accounts.named("root"); });
        const auto nobody = accounts.told([&] { return accounts.named("no such user"); });
        ck_assert(::setrlimit(RLIMIT_NOFILE, &before) == 0);
        ck_assert(!number && number.error().code == EAGAIN);
        ck_assert(number.error().message.find(std::strerror(EMFILE)) != std::string::npos);
        ck_assert(!group && !groups);
        ck_assert(again && *again);  // it is remembered
        ck_assert(!nobody);
        ck_assert(accounts.numbered(1).has_value() && !accounts.group_name(1).empty());
        ck_assert(!accounts.groups_of({root, 0, 0}).empty());
    }
}
END_TEST
}  // namespace

UNIT_SUITE(accounts, root_is_known_and_nobody_else_by_that_number,
           silence_is_not_that_there_is_no_such_user,
           what_cannot_be_read_says_nothing_of_who_is_there);
}  // namespace souk::unit
