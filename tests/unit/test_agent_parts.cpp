// SPDX-License-Identifier: GPL-2.0-or-later
// The parts that an Agent is put together from, each alone.
#include <signal.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "agentd/daemon/commits.hpp"
#include "agentd/daemon/file_systems.hpp"
#include "agentd/daemon/leave_waits.hpp"
#include "agentd/daemon/ledger_mark.hpp"
#include "agentd/daemon/load_meter.hpp"
#include "agentd/daemon/node_share.hpp"
#include "tests/unit/cgroup_fixture.hpp"
#include "tests/unit/loop_fixture.hpp"
#include "tests/unit/temp_dir.hpp"

using namespace souk;
using souk::unit::CgroupFixture;
using souk::unit::limit;
using souk::unit::need_root;
using souk::unit::open_loop;
using souk::unit::TempDir;

namespace {

Log quiet() { return Log({.level_max = Level::error, .program = "test_agent_parts"}); }

}  // namespace

START_TEST(what_waits_for_a_commit_is_called_after_it_in_order_and_records_are_there_again) {
    const TempDir dir;
    Log log = quiet();
    std::string order;
    {
        Loop loop = open_loop();
        auto commits = std::move(*Commits::open(loop, log, dir.path));
        commits->put("kind", "a", "1", Durable::now);
        commits->then([&] { order += "then "; });
        commits->erase("kind", "b", Durable::later);
        ck_assert(commits->erases_wait());
        commits->after_erases([&] { order += "erased "; });
        ck_assert_text(order, "");
        UNTIL(loop, order == "erased then " && !commits->erases_wait());
        // Asked for within a call.
        commits->then([&] { commits->then([&] { order += "again"; }); });
        UNTIL(loop, order == "erased then again");
        // Not committed yet: that is done at the end.
        commits->put("kind", "c", "3", Durable::later);
    }
    Loop loop = open_loop();
    const auto commits = std::move(*Commits::open(loop, log, dir.path));
    ck_assert_text(**commits->db().get("kind", "a"), "1");
    ck_assert_text(**commits->db().get("kind", "c"), "3");
    ck_assert(!commits->db().get("kind", "b")->has_value());
}
END_TEST

START_TEST(who_waits_for_guests_to_leave_is_told_once_when_all_have_left_or_after_its_bound) {
    Loop loop = open_loop();
    LeaveWaits waits(loop);
    std::vector<int> told;
    bool gone = false;
    const auto never = [] { return false; };
    const auto left = [&] { return gone; };
    waits.add(Nanos::from_ms(20), never, [&] { told.push_back(1); });
    waits.add(limit, left, [&] {
        told.push_back(2);
        waits.add(limit, left, [&] { told.push_back(3); });  // from within
    });
    UNTIL(loop, !told.empty());
    ck_assert((told == std::vector{1}));
    ck_assert(!waits.empty());
    waits.look();
    ck_assert_uint_eq(told.size(), 1);
    gone = true;
    waits.look();
    ck_assert((told == std::vector{1, 2, 3}));
    ck_assert(waits.empty());
    (void)loop.run_until([] { return false; }, Nanos::from_ms(30));
    ck_assert_uint_eq(told.size(), 3);
}
END_TEST

START_TEST(the_newest_receipt_is_told_to_the_market_and_only_a_newer_one_is_kept) {
    Loop loop = open_loop();
    const auto mark = [](uint64_t seq, char digit) {
        return ReceiptMark{seq, std::string(64, digit)};
    };
    std::vector<std::vector<std::string>> asked;
    std::vector<std::string> kept;
    wire::CtlReply reply;
    LedgerMark ledger(loop, {},
                      {.ask =
                           [&](const wire::CtlRequest& r, const auto& answer) {
                               ck_assert_text(r.verb, "ledger-seen");
                               asked.push_back(r.args);
                               answer(reply);
                           },
                       .keep = [&](const std::string& text) { kept.push_back(text); }});
    // An older market does not know the question; another answers with what is no receipt.
    ledger.compare();
    reply.ok = true;
    for (const char* json : {"", "\"\"", "\"x\""}) {
        reply.json = json;
        ledger.compare();
    }
    ck_assert(kept.empty() && ledger.mark() == ReceiptMark{});
    reply.json = "\"" + mark(7, 'a').text() + "\"";
    ledger.compare();
    ck_assert(ledger.mark() == mark(7, 'a'));
    reply.json = "\"" + mark(6, 'b').text() + "\"";
    ledger.compare();
    ck_assert(ledger.mark() == mark(7, 'a'));
    ck_assert((kept == std::vector{mark(7, 'a').text()}));
    ck_assert(asked.front().empty() && asked.back() == kept);
    // Many receipts: one question.
    const size_t before = asked.size();
    for (int i = 0; i < 10; ++i) ledger.compare_soon();
    UNTIL(loop, asked.size() > before);
    ledger.compare_soon();
    (void)loop.run_until([] { return false; }, Nanos::from_ms(20));
    ck_assert_uint_eq(asked.size(), before + 1);
}
END_TEST

START_TEST(the_share_of_guests_is_bounded_by_what_is_offered_and_kills_nobody) {
    CgroupFixture cgroups;
    if (!need_root("making cgroups")) return;
    Log log = quiet();
    const auto share = std::move(*NodeShare::open(log, cgroups.root() + "/n1", 100));
    ck_assert(share != nullptr);
    const MachineSize all{4'000, 1'000};
    const auto offer = [&](int64_t cpus, int64_t memory_mb) {
        OK(share->bound({cpus * 1'000, memory_mb}, all, {}));
    };
    UNIT_SKIP_IF(share->limits().memory ? nullptr : "no memory controller");
    const auto bytes = [&] {
        const bool v2 = cgroups->layout().in_v2("memory");
        const std::string mount = v2 ? cgroups->layout().v2 : cgroups->layout().v1.at("memory");
        return std::stoll("0" +
                          *read_file(AT_FDCWD, mount + "/" + cgroups.root() + "/n1/jobs/" +
                                                   (v2 ? "memory.max" : "memory.limit_in_bytes")));
    };
    offer(4, 1000);
    const int64_t none = bytes();
    ck_assert(!share->memory_waits(1000, all));
    ck_assert(share->memory_waits(500, all));
    offer(2, 500);
    ck_assert(!share->memory_waits(500, all));
    ck_assert_int_eq(bytes(), (500 << 20) + (32 << 20));
    // A guest that holds more than that stays, and the bound waits until it has left.
    CapsuleGroup guest = std::move(*share->capsules().take({.memory = true}, 0));
    Pipe holds = std::move(*make_pipe());
    const Pidfd process = cgroups.spawn(guest.capsule, [&] {
        void* memory = ::mmap(nullptr, 64 << 20, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
        (void)!::write(holds.write_end.get(), memory == MAP_FAILED ? "-" : "+", 1);
        while (true) ::pause();
    });
    char byte = 0;
    ck_assert_int_eq(::read(holds.read_end.get(), &byte, 1), 1);
    ck_assert_int_eq(byte, '+');
    offer(2, 10);
    ck_assert(share->memory_waits(10, all));
    ck_assert(!*process.exited_within(Nanos::from_ms(20)));
    ck_assert_int_eq(*guest.capsule.memory_kills(), 0);
    ck_assert(share->capsules().give_back(std::move(guest), limit));
    ck_assert(process.reap());
    offer(2, 10);
    ck_assert(!share->memory_waits(10, all));
    offer(4, 1000);
    ck_assert_int_eq(bytes(), none);
}
END_TEST

START_TEST(a_part_of_a_cpu_bounds_all_guests_and_their_own_bounds_come_back_after_it) {
    CgroupFixture cgroups;
    if (!need_root("making cgroups")) return;
    Log log = quiet();
    const auto share = std::move(*NodeShare::open(log, cgroups.root() + "/n1", 100));
    ck_assert(share != nullptr);
    UNIT_SKIP_IF(share->limits().cpu ? nullptr : "no CPU controller");
    const MachineSize all{4'000, 1'000};
    const CapsuleGroup guest = std::move(*share->capsules().take({.cpu = true}, 0));
    OK(guest.capsule.set_cpus_max(2));
    int lifted = 0;
    const auto own = [&](bool on) {  // as Cell::node_bound
        lifted += !on;
        const Status set = guest.capsule.set_cpus_max(on ? 2 : 0);
        ck_assert(set || set.error().code == EINVAL);
    };
    const bool v2 = cgroups->layout().in_v2("cpu");
    const auto quota = [&](const std::string& group) {
        const std::string mount = v2 ? cgroups->layout().v2 : cgroups->layout().v1.at("cpu");
        const auto text = read_file(AT_FDCWD, mount + "/" + cgroups.root() + group +
                                                  (v2 ? "/cpu.max" : "/cpu.cfs_quota_us"));
        return std::atoll(text->c_str());
    };
    const std::string its = "/" + guest.capsule.name();
    ck_assert_int_eq(quota(its), 200'000);
    OK(share->bound({500, 1'000}, all, own));  // half a CPU
    ck_assert_int_eq(quota("/n1"), 50'000);
    const int64_t among = quota(its);
    ck_assert(v2 ? among == 200'000 : among <= 0);
    OK(share->bound({500, 1'000}, all, own));
    ck_assert_int_eq(lifted, v2 ? 0 : 1);
    OK(share->bound({3'000, 1'000}, all, own));
    ck_assert_int_eq(quota("/n1"), 300'000);
    ck_assert_int_eq(quota(its), 200'000);
    OK(share->bound({10, 1'000}, all, own));  // the least
    ck_assert_int_eq(quota("/n1"), 1'000);
    OK(share->bound(all, all, own));
    ck_assert(quota("/n1") <= 0);
    ck_assert_int_eq(quota(its), 200'000);
}
END_TEST

START_TEST(guests_that_are_lowered_come_after_the_owner_in_all_and_are_as_before_later) {
    CgroupFixture cgroups;
    if (!need_root("making cgroups")) return;
    Log log = quiet();
    const auto open = [&](const char* node) {
        return std::move(*NodeShare::open(log, cgroups.root() + "/" + node, 50));
    };
    const auto share = open("n1"), beside = open("n2");
    using Rank = NodeShare::Rank;
    UNIT_SKIP_IF(share->rank(Rank::offered, 50) ? nullptr : "no CPU controller");
    const CgroupLayout& layout = cgroups->layout();
    const auto read = [&](const char* controller, const std::string& file) -> std::string {
        const std::string mount = layout.in_v2(controller) ? layout.v2 : layout.v1.at(controller);
        const auto text = read_file(AT_FDCWD, mount + "/" + cgroups.root() + file);
        return text ? text->substr(0, text->size() - 1) : "none";
    };
    const std::string weight = layout.in_v2("cpu") ? "/cpu.weight" : "/cpu.shares";
    const std::string normal = layout.in_v2("cpu") ? "50" : "512";
    UNIT_SKIP_IF(read("cpu", "/cpu.idle") == "none" ? "no cpu.idle" : nullptr);
    for (const char* group : {"", "/n1"}) ck_assert_text(read("cpu", group + weight), normal);
    OK(share->rank(Rank::idle, 50));
    for (const char* group : {"", "/n1"})
        ck_assert_text(read("cpu", group + std::string("/cpu.idle")), "1");
    OK(share->rank(Rank::idle, 50));
    OK(beside->rank(Rank::idle, 50));
    OK(share->rank(Rank::leaving, 50));
    ck_assert_text(read("cpu", "/n1" + weight), layout.in_v2("cpu") ? "10" : "102");
    OK(share->rank(Rank::offered, 50));
    ck_assert_text(read("cpu", "/n1" + weight), normal);
    ck_assert_text(read("cpu", "/n1/cpu.idle"), "0");
    OK(beside->rank(Rank::offered, 50));
    ck_assert_text(read("cpu", "/cpu.idle"), "0");
    ck_assert_text(read("cpu", weight), normal);
    if (share->limits().memory) {
        const std::string high =
            layout.in_v2("memory") ? "/n1/jobs/memory.high" : "/n1/jobs/memory.soft_limit_in_bytes";
        const std::string none = read("memory", high);
        OK(share->rank(Rank::idle, 50));
        ck_assert(read("memory", high) != none);
        OK(share->rank(Rank::offered, 50));
        ck_assert_text(read("memory", high), none);
    }
    if (!share->v1_io_tasks().empty()) {
        OK(share->rank(Rank::idle, 50));
        ck_assert_text(read("blkio", "/n1/blkio.bfq.weight"), "1");
        OK(share->rank(Rank::offered, 50));
        ck_assert_text(read("blkio", "/n1/blkio.bfq.weight"), "100");
    }
}
END_TEST

START_TEST(the_load_is_that_of_the_nodes_guests_and_each_has_its_own_cpu_time) {
    CgroupFixture cgroups;
    if (!need_root("making cgroups")) return;
    Log log = quiet();
    LoadMeter meter(log);
    ck_assert_text(meter.read(1).source, "none");
    ck_assert_int_gt(meter.read(1).free_mb, 0);
    ck_assert(!meter.cpu_time("n1/jobs/c1"));
    const Cgroup group = std::move(*cgroups->create("n1/jobs/c1"));
    ck_assert(meter.open(*cgroups, "n1"));
    meter.capsule_came(group, Nanos{}, false);
    (void)meter.read(1);
    const Pidfd busy = cgroups.spawn(group, [] {
        while (::getppid() > 0) {
        }
    });
    for (Nanos end = Loop::now() + limit;
         meter.cpu_time("n1/jobs/c1").value_or(Nanos{}) < Nanos::from_ms(50);)
        ck_assert(Loop::now() < end);
    ck_assert_int_gt(meter.read(1).load_permille, 0);
    meter.capsule_went(group);
    ck_assert(!meter.cpu_time("n1/jobs/c1"));
    ck_assert(busy.signal(SIGKILL));
    ck_assert(*busy.exited_within(limit));
    ck_assert(busy.reap());
}
END_TEST

START_TEST(images_of_one_user_have_a_share_of_the_disk_and_are_refused_in_words_above_it) {
    const TempDir dir;
    constexpr uint64_t mb = 1 << 20;
    ck_assert_uint_eq(*image_share_left(dir.fd.get(), 100, 0), 100 * mb);
    ck_assert_uint_eq(*image_share_left(dir.fd.get(), 100, 100 * mb - 1), 1);
    for (const uint64_t taken : {100 * mb, 300 * mb}) {
        const auto left = image_share_left(dir.fd.get(), 100, taken);
        ck_assert(!left);
        ck_assert_text(left.error().message, "no room for its image: those of its user here have " +
                                                 std::to_string(taken / mb) +
                                                 " MB, of 100 that they may have (user_images_mb)");
    }
    struct statvfs fs {};
    ck_assert_int_eq(::fstatvfs(dir.fd.get(), &fs), 0);
    const uint64_t half = fs.f_blocks * fs.f_frsize / 2;
    ck_assert_uint_eq(*image_share_left(dir.fd.get(), -1, 0), half);
    ck_assert(!image_share_left(dir.fd.get(), -1, half));
}
END_TEST

UNIT_SUITE(agent_parts,
           images_of_one_user_have_a_share_of_the_disk_and_are_refused_in_words_above_it,
           what_waits_for_a_commit_is_called_after_it_in_order_and_records_are_there_again,
           who_waits_for_guests_to_leave_is_told_once_when_all_have_left_or_after_its_bound,
           the_newest_receipt_is_told_to_the_market_and_only_a_newer_one_is_kept,
           the_share_of_guests_is_bounded_by_what_is_offered_and_kills_nobody,
           a_part_of_a_cpu_bounds_all_guests_and_their_own_bounds_come_back_after_it,
           guests_that_are_lowered_come_after_the_owner_in_all_and_are_as_before_later,
           the_load_is_that_of_the_nodes_guests_and_each_has_its_own_cpu_time);
