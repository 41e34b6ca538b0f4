// SPDX-License-Identifier: GPL-2.0-or-later
// An image names credentials. These tests check which ones it may name, and whether it names those
// that the kernel has. Images are made up byte by byte, except one that is of this process.
#include "checkpoint/core_image.hpp"
#include "checkpoint/restored.hpp"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernel/base/check.hpp"
#include "tests/unit/unit.hpp"

namespace souk {
namespace {

std::string number(uint64_t n) {
    std::string out;
    for (; n > 127; n >>= 7) out += static_cast<char>((n & 127) | 128);
    return out + static_cast<char>(n);
}
std::string field(uint32_t tag, uint64_t value) { return number(tag << 3) + number(value); }
std::string message(uint32_t tag, const std::string& bytes) {
    return number(tag << 3 | 2) + number(bytes.size()) + bytes;
}
std::string u32(uint32_t n) { return {reinterpret_cast<const char*>(&n), sizeof n}; }
std::string image(uint32_t magic, const std::string& bytes) {
    return u32(0x54564319) + u32(magic) + u32(static_cast<uint32_t>(bytes.size())) + bytes;
}

std::string ids(const Credentials& c) {
    std::string out;
    for (uint32_t i = 0; i < 4; ++i)
        out += field(2 * i + 1, c.uids[i]) + field(2 * i + 2, c.gids[i]);
    return out;
}
std::string creds(const Credentials& c) {
    std::string out = ids(c);
    for (uint32_t set = 0; set < 5; ++set)
        for (const int shift : {0, 32})
            out += field(set == 4 ? 19 : 9 + set, c.capabilities[set] >> shift & UINT32_MAX);
    for (const uint32_t group : c.groups) out += field(14, group);
    return out + field(13, 0) + field(18, c.no_new_privs ? 1 : 0);
}
std::string core(const std::string& credentials, uint64_t state = 1) {
    const std::string tc = field(1, state);
    const std::string thread = credentials.empty() ? "" : message(10, credentials);
    return image(0x55053847, field(1, 1) + message(3, tc) + message(5, thread));
}

const CriuUser user{1000, 1000, {4, 24}};
Credentials of_user() {
    Credentials c;
    c.uids.fill(1000);
    c.gids.fill(1000);
    c.groups = {4, 24};
    c.no_new_privs = true;
    return c;
}
std::string refusal(const std::string& bytes) {
    const auto parsed = parse_core(bytes);
    if (!parsed) return parsed.error().message;
    const Status fits = fits_user(*parsed, user);
    return fits ? "" : fits.error().message;
}

START_TEST(an_image_of_the_users_own_credentials_is_taken_and_reads_as_it_is) {
    const auto parsed = parse_core(core(creds(of_user())));
    ck_assert(parsed && parsed->has_credentials && parsed->alive);
    ck_assert(parsed->credentials == of_user());
    ck_assert_text(refusal(core(creds(of_user()))), "");
}
END_TEST

START_TEST(each_forged_id_group_and_capability_is_refused) {
    for (size_t i = 0; i < 4; ++i) {
        Credentials c = of_user();
        c.uids[i] = 0;
        ck_assert_text(refusal(core(creds(c))), "it would be user 0");
        c = of_user();
        c.gids[i] = 42;
        ck_assert_text(refusal(core(creds(c))), "it would be of group 42");
    }
    Credentials c = of_user();
    c.groups.push_back(0);
    ck_assert_text(refusal(core(creds(c))), "it would be in group 0");
    for (const size_t set : {0, 1, 2, 4})
        for (const uint64_t bit : {uint64_t{1} << 21, uint64_t{1} << 38}) {
            c = of_user();
            c.capabilities[set] = bit;
            ck_assert_text(refusal(core(creds(c))), "it would have capabilities");
        }
    // These lists use the other encoding, which CRIU's reader takes as well.
    ck_assert_text(refusal(core(ids(of_user()) + message(10, number(0) + number(64)))),
                   "it would have capabilities");
    ck_assert_text(refusal(core(ids(of_user()) + message(14, number(4) + number(0)))),
                   "it would be in group 0");
}
END_TEST

START_TEST(who_would_stay_root_for_want_of_credentials_is_refused_unless_it_has_ended) {
    ck_assert_text(refusal(core("")), "it has no credentials, and would stay root");
    ck_assert_text(refusal(core("", 6)), "");
}
END_TEST

START_TEST(limits_above_the_nodes_are_lowered_and_others_stay) {
    const pid_t child = ::fork();
    if (child == 0) {
        ::pause();
        ::_exit(0);
    }
    const auto limit = [&](__rlimit_resource which) {
        rlimit now{};
        MUST(::prlimit(child, which, nullptr, &now) == 0);
        return now;
    };
    const rlimit wide{200, 300};
    MUST(::prlimit(child, RLIMIT_NOFILE, &wide, nullptr) == 0);
    MUST(::prlimit(child, RLIMIT_CORE, &wide, nullptr) == 0);
    ck_assert(lower_limits(child, {{RLIMIT_NOFILE, 250}, {RLIMIT_CORE, 1000}}).has_value());
    ck_assert(limit(RLIMIT_NOFILE).rlim_max == 250 && limit(RLIMIT_NOFILE).rlim_cur == 200);
    ck_assert(limit(RLIMIT_CORE).rlim_max == 300 && limit(RLIMIT_CORE).rlim_cur == 200);
    ck_assert(lower_limits(child, {{RLIMIT_NOFILE, 50}}).has_value());
    ck_assert(limit(RLIMIT_NOFILE).rlim_max == 50 && limit(RLIMIT_NOFILE).rlim_cur == 50);
    ck_assert(lower_limits(child, {{RLIMIT_CORE, no_core_bytes}}).has_value());
    ck_assert(limit(RLIMIT_CORE).rlim_max == 1 && limit(RLIMIT_CORE).rlim_cur == 1);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    ck_assert(!lower_limits(child, {{RLIMIT_NOFILE, 10}}));
}
END_TEST

START_TEST(what_stands_twice_or_is_cut_short_is_refused) {
    const std::string good = core(creds(of_user()));
    ck_assert_text(refusal(core(creds(of_user()) + field(1, 0))),
                   "core image: a field stands twice");
    for (size_t n = 0; n < good.size(); ++n) ck_assert(!parse_core(good.substr(0, n)));
    ck_assert(!parse_core(good + "x"));
    ck_assert(!parse_core(core(ids(of_user()).substr(2))));
}
END_TEST

START_TEST(a_deleted_file_is_neither_a_device_nor_set_id) {
    const auto ghost = [](uint32_t mode) {
        const auto read =
            parse_ghost(image(0x52583605, field(1, 0) + field(2, 0) + field(3, mode)) + "text");
        return read && *read == mode && fits_ghost(*read);
    };
    ck_assert(!parse_ghost("short") && !parse_ghost(image(0x52583605, field(3, 1) + field(3, 2))));
    ck_assert(ghost(0100644) && ghost(0040755) && ghost(0010600));
    for (const uint32_t mode : {0020666U, 0060660U, 0104755U, 0102755U}) ck_assert(!ghost(mode));
}
END_TEST

const std::map<int, uint64_t> limits = {{RLIMIT_RTPRIO, 0}, {RLIMIT_NICE, 0}};

START_TEST(no_priority_comes_that_the_nodes_limits_do_not_allow) {
    const auto why = [](const std::string& thread, const std::map<int, uint64_t>& most) {
        const auto read = parse_core(
            image(0x55053847, field(1, 1) + message(3, field(1, 1)) + message(5, thread)));
        const Status fits = fits_limits(*read, most);
        return fits ? "" : fits.error().message;
    };
    const std::string fifo = field(4, 1) + field(5, 50), above = field(3, 39), below = field(3, 38);
    ck_assert_text(why(fifo, limits), "it would have real-time priority 50; rtprio_max allows 0");
    ck_assert_text(why(field(4, 2), limits),
                   "it would have real-time priority 0; rtprio_max allows 0");
    ck_assert_text(why(fifo, {{RLIMIT_RTPRIO, 50}}), "");
    ck_assert_str_ne(why(fifo, {{RLIMIT_RTPRIO, 49}}).c_str(), "");
    ck_assert_text(why(fifo, {}), "");
    ck_assert_text(why(above, limits),
                   "it would have the nice value -20, which is below what nice_max allows");
    ck_assert_text(why(below, limits), "");  // 19
    ck_assert_text(why(above, {{RLIMIT_NICE, 40}}), "");
    ck_assert_str_ne(why(above, {{RLIMIT_NICE, 39}}).c_str(), "");
    ck_assert_text(why(field(4, 0) + field(5, 0), limits), "");
}
END_TEST

START_TEST(an_image_is_refused_by_what_lies_in_it) {
    ImageFacts facts;
    const auto why = [&](uint64_t deleted_bytes_max) {
        const Status fits = check_credentials(facts, user, deleted_bytes_max, limits);
        return fits ? "" : fits.error().message;
    };
    ck_assert_text(why(1 << 20), "");
    facts.cores[1] = *parse_core(core(creds(of_user())));
    ck_assert_text(why(1 << 20), "");
    facts.ghosts.push_back({"ghost-file-1.img", 0100644, 2 << 20});
    ck_assert_text(why(4 << 20), "");
    ck_assert_text(why(1 << 20),
                   "ghost-file-1.img: a deleted file of 2097152 bytes; deleted_mb allows 1048576");
    facts.ghosts.push_back({"ghost-file-2.img", 0020644, 100});
    ck_assert_text(why(4 << 20), "ghost-file-2.img: a deleted file is a device");
    facts.ghosts.pop_back();
    facts.cores[2] = *parse_core(core(creds({})));
    ck_assert_text(why(4 << 20), "core-2.img, of user 1000: it would be user 0");
    ck_assert(check_credentials(facts, {}, 1, limits).has_value());  // root's
    facts.cores[2] = facts.cores[1];
    facts.cores[2].nice = -1;
    ck_assert(why(4 << 20).starts_with("core-2.img, of user 1000: it would have the nice value"));
    facts.cores.erase(2);
    facts.namespaces = {{"ids-1.img", {{1, 2, 3, 4, 5}}}, {"inventory.img", {{1, 2, 3, 4, 5}}}};
    facts.kinds.bits = 1 << 1 | 1 << 13 | 1 << 20;
    ck_assert_text(why(4 << 20), "");
    for (size_t one = 0; one < 5; ++one) {
        ImageNamespaces& other = facts.namespaces["ids-2.img"] = {{1, 2, 3, 4, 5}};
        ck_assert_text(why(4 << 20), "");
        other.ids[one] = 0;
        ck_assert_text(why(4 << 20),
                       "ids-2.img: it would be in a namespace that is not the capsule's");
    }
    ck_assert(check_credentials(facts, {}, 1, limits).has_value());
    facts.namespaces.erase("ids-2.img");
    facts.kinds.roots = {3, 9};
    facts.roots = {{"fs-1.img", {9}}, {"fs-2.img", {3}}};
    ck_assert_text(why(4 << 20), "");
    facts.roots["fs-2.img"] = {4};
    ck_assert_text(why(4 << 20), "fs-2.img: its root directory would be none of a job's");
    facts.kinds.bits |= 1 << 10;
    ck_assert_text(why(4 << 20), "files.img: it would have a packet socket");
}
END_TEST

START_TEST(only_kinds_of_files_that_a_user_makes_are_let_in) {
    int fit = 0;
    for (unsigned kind = 0; kind < 64; ++kind)
        fit += fits_kinds({uint64_t{1} << kind, {}}).has_value();
    ck_assert_int_eq(fit, 15);
    const std::pair<unsigned, const char*> refused[] = {
        {0, "no user has"}, {12, "fanotify"},    {15, "interface"},  {16, "plugin"},
        {19, "BPF"},        {21, "no user has"}, {63, "no user has"}};
    for (const auto& [kind, what] : refused) {
        const Status fits = fits_kinds({uint64_t{1} << kind | 2, {}});
        ck_assert_msg(!fits && fits.error().message.find(what) != std::string::npos, "%u", kind);
    }
}
END_TEST

START_TEST(a_thread_with_a_real_time_policy_is_known) {
    const auto policy = [](uint64_t p) {
        return parse_core(image(0x55053847,
                                field(1, 1) + message(3, field(1, 1)) + message(5, field(4, p))))
            ->realtime;
    };
    ck_assert(!policy(0) && policy(1) && policy(2) && !policy(3) && policy(0x40000001));
    ck_assert(policy(uint64_t{1} << 32 | 2));
}
END_TEST

START_TEST(an_image_that_says_other_than_the_kernel_does_is_refused) {
    const std::string own = "/proc/self/status";
    const auto real = parse_status(*read_file(AT_FDCWD, own));
    ck_assert_msg(real.has_value(), "%s", real ? "" : real.error().message.c_str());
    ck_assert(real->uids[1] == ::geteuid() && real->gids[1] == ::getegid());
    std::string text = *read_file(AT_FDCWD, own);
    text.erase(text.find("\nCapEff:") + 8, 1);
    ck_assert(!parse_status(text));
    ImageFacts facts;
    const auto says = [&](const Credentials& c) {
        facts.cores[::getpid()] = *parse_core(core(creds(c)));
        return compare_credentials(facts, {{::getpid(), ::getpid()}}).has_value();
    };
    ck_assert(real->seccomp != 0 || says(*real));
    Credentials forged = *real;
    forged.uids[2] ^= 1;
    ck_assert(!says(forged));
    forged = *real;
    forged.capabilities[1] ^= 2;
    ck_assert(!says(forged));
    forged = *real;
    forged.groups.push_back(7777);
    ck_assert(!says(forged));
    forged = *real;
    forged.no_new_privs = !forged.no_new_privs;
    ck_assert(!says(forged));
    facts.cores[2] = *parse_core(core(creds(*real)));
    ck_assert(!says(*real));  // a thread that is none
}
END_TEST
}  // namespace

UNIT_SUITE(core_image, an_image_of_the_users_own_credentials_is_taken_and_reads_as_it_is,
           each_forged_id_group_and_capability_is_refused,
           who_would_stay_root_for_want_of_credentials_is_refused_unless_it_has_ended,
           limits_above_the_nodes_are_lowered_and_others_stay,
           what_stands_twice_or_is_cut_short_is_refused,
           a_deleted_file_is_neither_a_device_nor_set_id, an_image_is_refused_by_what_lies_in_it,
           no_priority_comes_that_the_nodes_limits_do_not_allow,
           only_kinds_of_files_that_a_user_makes_are_let_in,
           a_thread_with_a_real_time_policy_is_known,
           an_image_that_says_other_than_the_kernel_does_is_refused);

}  // namespace souk
