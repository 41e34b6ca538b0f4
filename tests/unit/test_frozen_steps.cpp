// SPDX-License-Identifier: GPL-2.0-or-later
// FrozenSteps with this process as the job that stands: which hook ends each step. And what
// NetworkCut and CapsuleLink do without a network and without a capsule.
#include "agentd/cell/frozen_steps.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agentd/cell/capsule_link.hpp"
#include "agentd/cell/network_cut.hpp"
#include "kernel/sys/store/network_files.hpp"
#include "tests/unit/loop_fixture.hpp"
#include "tests/unit/temp_dir.hpp"
#include "tests/unit/unit.hpp"

namespace souk::unit {
namespace {

struct Frozen {
    Loop loop = open_loop();
    TempDir dir;
    bool gone = false;
    std::string told;
    FrozenSteps steps{loop,
                      {.pids = [this]() -> Result<std::vector<pid_t>> {
                           if (gone) return tl::unexpected(Error{0, "it is gone"});
                           return std::vector<pid_t>{::getpid()};
                       },
                       .shared = [this] { told += "shared "; },
                       .flushed = [this] { told += "flushed "; },
                       .written = [this](const ImageFile&) { told += "written "; },
                       .failed = [this](const std::string& why) { told += "failed: " + why; },
                       .syncer = [this] { return start_syncer(); },
                       .home =
                           [this](std::function<void(const Result<AtHome>&)> done) {
                               home = std::move(done);
                               return waits_for_home ? std::make_shared<int>() : nullptr;
                           }}};
    bool waits_for_home = false;
    std::function<void(const Result<AtHome>&)> home;
    Fd syncer;  // its end
    Result<Fd> start_syncer() {
        int pair[2];
        ck_assert_int_eq(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
        syncer = Fd(pair[0]);
        return Fd(pair[1]);
    }
    // All that it hears.
    SyncWords heard() {
        std::string words;
        char bytes[256];
        for (ssize_t n; (n = ::read(syncer.get(), bytes, sizeof bytes)) > 0;)
            words.append(bytes, static_cast<size_t>(n));
        auto parsed = parse_sync_words(words);
        ck_assert_msg(parsed.has_value(), "%s", words.c_str());
        return *parsed;
    }
    void says(std::string_view answer) {
        ck_assert_int_eq(::write(syncer.get(), answer.data(), answer.size()),
                         static_cast<ssize_t>(answer.size()));
        syncer.reset();
    }
};

START_TEST(one_process_shares_nothing_and_its_image_is_left_alone) {
    Frozen f;
    f.steps.share(f.dir.fd.get());
    ck_assert_text(f.told, "shared ");
    ck_assert_uint_eq(list_dir(f.dir.fd.get(), ".")->size(), 0);
}
END_TEST

START_TEST(a_job_without_files_that_others_see_is_flushed_at_once) {
    Frozen f;
    f.steps.look_at_mounts([](std::string_view) { return false; });
    const Fd file = std::move(*open_at(f.dir.fd.get(), "out", O_WRONLY | O_CREAT, 0600));
    f.steps.flush();
    ck_assert_text(f.told, "flushed ");
}
END_TEST

START_TEST(what_a_job_has_open_for_writing_where_others_see_it_is_synced_first) {
    Frozen f;
    f.steps.look_at_mounts([](std::string_view) { return true; });
    f.steps.flush();
    const SyncWords words = f.heard();
    ck_assert(words.pids == std::vector<pid_t>{::getpid()} && !words.devices.empty());
    ck_assert_text(f.told, "");
    f.says("+");
    UNTIL(f.loop, !f.told.empty());
    ck_assert_text(std::exchange(f.told, ""), "flushed ");
    f.steps.forget_mounts();
    f.steps.flush();
    ck_assert_text(f.told, "flushed ");
}
END_TEST

START_TEST(who_syncs_and_fails_or_ends_fails_the_step_with_the_reason) {
    Frozen f;
    const auto flush_and_hear = [&](std::string_view answer) {
        f.told.clear();
        f.steps.look_at_mounts([](std::string_view) { return true; });
        f.steps.flush();
        (void)f.heard();
        f.says(answer);
        UNTIL(f.loop, !f.told.empty());
        return f.told;
    };
    ck_assert_text(flush_and_hear("-no space"), "failed: write its files: no space");
    ck_assert_text(flush_and_hear(""), "failed: write its files: who syncs them has ended");
}
END_TEST

START_TEST(a_job_goes_on_elsewhere_when_all_is_at_its_home_and_not_before) {
    Frozen f;
    f.waits_for_home = true;
    f.steps.flush();
    ck_assert_text(f.told, "");
    f.home(AtHome::written);
    ck_assert_text(std::exchange(f.told, ""), "flushed ");
    f.steps.flush();
    f.home(tl::unexpected(Error{0, "it is full"}));
    ck_assert_text(std::exchange(f.told, ""), "failed: write its files: it is full");
}
END_TEST

START_TEST(what_is_on_its_homes_disk_is_not_synced_file_by_file) {
    for (const AtHome at : {AtHome::synced, AtHome::written}) {
        Frozen f;
        f.steps.look_at_mounts([](std::string_view type) { return type == "proc"; });
        f.waits_for_home = true;
        f.steps.flush();
        f.home(at);
        ck_assert(f.heard().mapped_alone == (at == AtHome::synced));
        f.says("+");
        f.home = nullptr;
        UNTIL(f.loop, f.home != nullptr);  // once more: what was mapped is written by now
        ck_assert_text(f.told, "");
        f.home(AtHome::written);
        ck_assert_text(f.told, "flushed ");
    }
    Frozen f;
    f.steps.look_at_mounts([](std::string_view type) { return type == "proc"; });
    f.waits_for_home = true;
    f.steps.flush();
    f.home(tl::unexpected(Error{0, "it is full"}));
    ck_assert_text(f.told, "failed: write its files: it is full");
}
END_TEST

START_TEST(steps_that_are_stopped_say_nothing) {
    Frozen f;
    f.steps.look_at_mounts([](std::string_view) { return true; });
    f.steps.flush();
    f.steps.stop();
    (void)f.loop.run_until([] { return false; }, Nanos::from_ms(50));
    ck_assert_text(f.told, "");
}
END_TEST

START_TEST(a_job_that_is_gone_fails_its_steps_with_the_reason) {
    Frozen f;
    f.gone = true;
    f.steps.share(f.dir.fd.get());
    ck_assert_text(std::exchange(f.told, ""), "failed: it is gone");
    f.steps.write(f.dir.fd.get(), {f.dir.fd.get()});
    ck_assert_text(f.told, "failed: it is gone");
}
END_TEST

START_TEST(a_job_on_the_network_of_its_node_has_nothing_to_cut_off) {
    Loop loop = open_loop();
    Log log{{.level_max = Level::error, .program = "test_frozen_steps"}};
    const std::optional<JobNetwork> none;
    const JobLog job_log(log, JobId{"n1", 1}, Epoch{1});
    const Reach reach;
    NetworkCut shared(loop, job_log, none, {"n1.1-1", false, {}}, reach);
    OK(shared.check());
    OK(shared.shut_in());
    OK(shared.shut_within());
    OK(shared.shut_out());
    shared.open();
    shared.announce();
    shared.drop();
    ck_assert(!shared.own());
    const NetworkCut own(loop, job_log, none, {"n1.1-1", true, {}}, reach);
    const Status refused = own.check();
    ck_assert(!refused && refused.error().message.find("--net=own") != std::string::npos);
}
END_TEST

START_TEST(a_link_takes_no_message_before_it_is_open_and_tells_once_that_it_is_lost) {
    Loop loop = open_loop();
    std::string told;
    CapsuleLink link(loop, {.event = [&](CapsuleClient::Event&) { told += "event "; },
                            .read = [&] { told += "read "; },
                            .lost = [&](const std::string& why) { told += "lost: " + why + " "; }});
    ck_assert(!link && !link.answers());
    ck_assert(!link.tell(&CapsuleClient::undrain));
    int ends[2];
    ck_assert_int_eq(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    Fd capsule(ends[1]);
    OK(link.open(Fd(ends[0])));
    OK(link.tell(&CapsuleClient::undrain));
    char record[256];
    ck_assert_int_gt(::recv(capsule.get(), record, sizeof record, MSG_DONTWAIT), 0);
    ck_assert(link && !link.answers());  // no welcome came
    capsule.reset();
    UNTIL(loop, !told.empty());
    ck_assert_text(told, "lost: closed read ");
    ck_assert(!link && !link.tell(&CapsuleClient::undrain));
}
END_TEST

}  // namespace

UNIT_SUITE(cell_steps, one_process_shares_nothing_and_its_image_is_left_alone,
           a_job_without_files_that_others_see_is_flushed_at_once,
           what_a_job_has_open_for_writing_where_others_see_it_is_synced_first,
           who_syncs_and_fails_or_ends_fails_the_step_with_the_reason,
           a_job_goes_on_elsewhere_when_all_is_at_its_home_and_not_before,
           what_is_on_its_homes_disk_is_not_synced_file_by_file, steps_that_are_stopped_say_nothing,
           a_job_that_is_gone_fails_its_steps_with_the_reason,
           a_job_on_the_network_of_its_node_has_nothing_to_cut_off,
           a_link_takes_no_message_before_it_is_open_and_tells_once_that_it_is_lost);

}  // namespace souk::unit
