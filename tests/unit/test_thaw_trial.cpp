// SPDX-License-Identifier: GPL-2.0-or-later
// Freezes to disk, effect by effect: each is restored for trial before its job ends.
#include "agentd/cell/thaw_trial.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "checkpoint/trial.h"
#include "tests/unit/cell_rig.hpp"

namespace souk::unit {
namespace {
using Kind = guest::Input;

// The trial and a thaw are the same but for their ends.
START_TEST(what_is_frozen_to_disk_was_restored_for_trial_and_it_thaws) {
    UNIT_SKIP_IF(moves_impossible());
    CellNode n;
    Cell& c = n.running();
    n.watch_capsules();
    n.dumps_to_disk(c);
    n.await(c, Kind::dump_held);
    ck_assert_int_eq(n.made, 1);
    n.is_alone(c, true);
    n.undone(c);  // as if nothing had been
    n.is_alone(c, false);
    n.counts_to(c, 2);
    n.dumps_to_disk(c);
    n.await(c, Kind::dump_held);
    c.finish_dump();
    n.await(c, Kind::capsule_gone);
    ck_assert_int_eq(n.made, 2);
    Cell& thawed = n.add(2);
    thawed.ready_criu(false, false);
    n.await(thawed, Kind::criu_ready);
    thawed.restore_local(&c);
    n.await(thawed, Kind::restore_held);
    thawed.finish_restore();
    n.await(thawed, Kind::restore_running);
    n.counts_to(thawed, 3);
}
END_TEST

START_TEST(a_job_that_could_not_thaw_is_not_frozen_to_disk_and_goes_on) {
    UNIT_SKIP_IF(moves_impossible());
    const auto fails = [](CellNode& n, Cell& c, CauseCode code) {
        n.dumps_to_disk(c);
        const auto& all = n.events[c.key()];
        const auto failed = [](const guest::Event& e) { return input_of(e) == Kind::dump_failed; };
        UNTIL(n.loop, std::ranges::any_of(all, failed));
        const auto why = std::get<guest::DumpFailed>(*std::ranges::find_if(all, failed));
        ck_assert_msg(why.why.starts_with("it could not thaw: ") && why.why.code == code, "%s",
                      why.why.c_str());
        ck_assert(why.of_job);
        n.events[c.key()].clear();
        n.is_alone(c, false);
    };
    {  // its working directory is gone, and something else has its name
        CellNode n;
        Cell& c = n.running("mkdir " + n.work.path + "/d; cd " + n.work.path +
                            "/d; rmdir ../d; : >" + n.work.path + "/d; ");
        fails(n, c, CauseCode::file_changed);
        n.counts_to(c, 2);
    }
    CellNode n;
    Cell& c = n.running();
    n.watch_capsules();
    // a file is taken away when its image is whole
    n.before_next = [&] { ck_assert_int_eq(::unlink((n.work.path + "/file").c_str()), 0); };
    fails(n, c, CauseCode::file_not_opened);
    n.counts_to(c, 2);
    n.dumps_to_disk(c);  // and is in the image from then on
    n.await(c, Kind::dump_held);
    n.undone(c);
    n.counts_to(c, 3);
    // CRIU has made it for a moment, and put it away.
    ck_assert(list_dir(AT_FDCWD, n.work.path)->empty());
}
END_TEST

START_TEST(a_trial_that_is_given_up_leaves_nothing_and_the_next_one_waits_for_its_end) {
    UNIT_SKIP_IF(moves_impossible());
    CellNode n;
    Cell& c = n.running();
    n.watch_capsules();
    for (int round = 1; round < 4; ++round) {
        n.dumps_to_disk(c);
        UNTIL(n.loop, n.made == round);
        n.undone(c);
        n.counts_to(c, round + 1);
    }
    n.dumps_to_disk(c);
    n.await(c, Kind::dump_held);
    n.is_alone(c, true);
    n.undone(c);
    n.dumps_to_disk(c);
    UNTIL(n.loop, n.made == 5);
    c.remove();  // its end waits for that of the trial
    n.await(c, Kind::removed);
    ck_assert(list_dir(AT_FDCWD, n.guests.path)->empty());
    ck_assert(list_dir(AT_FDCWD, n.ram.path)->empty());
    n.cells.pop_back();
}
END_TEST

START_TEST(a_trial_that_is_given_up_leaves_no_name_of_a_file_that_was_taken_away) {
    UNIT_SKIP_IF(moves_impossible());
    CellNode n;
    const std::string gone = n.work.path + "/gone";
    Cell& c = n.running("echo x >" + gone + "; exec 9<" + gone + "; rm " + gone + "; ");
    n.watch_capsules();
    const auto has_name = [&] {
        const auto all = *list_dir(AT_FDCWD, n.work.path);
        return std::ranges::any_of(
            all, [](const auto& name) { return name.find("gone") != std::string::npos; });
    };
    const auto is_held = [&] {
        return std::ranges::any_of(n.events[c.key()], [](const guest::Event& e) {
            return input_of(e) == Kind::dump_held;
        });
    };
    for (int round = 1; round < 6; ++round) {
        n.dumps_to_disk(c);
        UNTIL(n.loop, has_name() || is_held());
        n.events[c.key()].clear();
        n.undone(c);
        n.counts_to(c, round + 1);
    }
    n.dumps_to_disk(c);
    n.await(c, Kind::dump_held);
    n.undone(c);
    n.counts_to(c, 7);
    ck_assert(!has_name());
}
END_TEST

START_TEST(a_trial_puts_nothing_into_a_fifo) {
    UNIT_SKIP_IF(moves_impossible());
    CellNode n;
    const std::string path = n.work.path + "/fifo";
    Cell& c = n.running("mkfifo " + path + "; exec 9<>" + path + "; echo x >&9; ");
    n.watch_capsules();
    const Fd reader = *open_at(AT_FDCWD, path, O_RDONLY | O_NONBLOCK);
    char bytes[16];
    n.before_next = [&] { ck_assert_int_eq(::read(reader.get(), bytes, sizeof bytes), 2); };
    n.dumps_to_disk(c);
    n.await(c, Kind::dump_held);
    ck_assert_int_eq(::read(reader.get(), bytes, sizeof bytes), -1);
    n.undone(c);
    n.counts_to(c, 2);
    ck_assert_int_eq(::read(reader.get(), bytes, sizeof bytes), -1);
}
END_TEST

// A daemon that ends has no time for what it has begun.
START_TEST(what_a_daemon_has_left_of_a_trial_the_next_one_removes) {
    UNIT_SKIP_IF(moves_impossible());
    CellNode n;
    Cell& c = n.running();
    n.watch_capsules();
    n.dumps_to_disk(c);
    UNTIL(n.loop, n.made == 1 && list_dir(AT_FDCWD, n.ram.path)->size() == 1);
    GuestJob left;
    const std::string name = list_dir(AT_FDCWD, n.guests.path)->back();  // the higher number
    left.key = {c.key().id, {std::stoull(name.substr(name.rfind('.') + 1))}};
    left.memory_mb = 1;
    ck_assert(left.key.epoch.n != c.key().epoch.n);
    const GuestJob own = c.job();
    n.cells.pop_back();
    Cell& again = n.cells.emplace_back(n.site, own);
    ck_assert(again.adopt().job_alive);
    Cell& stray = n.cells.emplace_back(n.site, left);
    (void)stray.adopt();
    stray.remove();
    n.await(stray, Kind::removed);
    n.cells.pop_back();
    ck_assert(*list_dir(AT_FDCWD, n.guests.path) == std::vector<std::string>{own.key.text()});
    ck_assert(list_dir(AT_FDCWD, n.ram.path)->empty());
}
END_TEST

// An image may come with the file that asks for a trial, or agentd may say that one is to go on.
START_TEST(what_is_restored_for_trial_never_runs_though_it_is_told_to) {
    UNIT_SKIP_IF(moves_impossible());
    CellNode n;
    CriuTool& tool = *n.site.criu;
    tool.launch = [&](const CriuLaunch& how) -> Result<Pidfd> {
        const bool restores = how.ended < 0;
        const std::string capsule = n.guests.path + (restores ? "/n1.1.2" : "/n1.1.1") + "/capsule";
        const auto init = Pidfd::open(std::atoi(read_file(AT_FDCWD, capsule)->c_str()));
        TRY(lay_out_run(*init, restores, ""));
        if (restores) TRY(create_file(how.images, SOUK_TRIAL_NAME, ""));
        return launch_criu(tool.command, tool.preload.get(), how);
    };
    Cell &source = n.running(), &copy = n.held_copy_of(source);
    copy.finish_restore();
    n.await(copy, Kind::restore_failed);
    n.events[copy.key()].clear();
    copy.kill_capsule();
    n.await(copy, Kind::capsule_gone);
    ck_assert_text(n.output, "1\n");
    n.undone(source);
    n.counts_to(source, 2);
    tool.launch = nullptr;
}
END_TEST

}  // namespace

UNIT_SUITE_LONG(thaw_trial, 120, what_a_daemon_has_left_of_a_trial_the_next_one_removes,
                what_is_restored_for_trial_never_runs_though_it_is_told_to,
                what_is_frozen_to_disk_was_restored_for_trial_and_it_thaws,
                a_job_that_could_not_thaw_is_not_frozen_to_disk_and_goes_on,
                a_trial_that_is_given_up_leaves_no_name_of_a_file_that_was_taken_away,
                a_trial_puts_nothing_into_a_fifo,
                a_trial_that_is_given_up_leaves_nothing_and_the_next_one_waits_for_its_end);

}  // namespace souk::unit
