// SPDX-License-Identifier: GPL-2.0-or-later
// Guest: what becomes of signals for a job that is being dumped.
#include "tests/unit/guest_bench.hpp"

using namespace souk;
using namespace souk::unit::guests;

// CRIU stops again who was stopped when it came, so it undoes a SIGCONT of meanwhile.
START_TEST(a_sigcont_during_a_dump_is_sent_when_the_job_goes_on) {
    const auto dumping = [] {
        Bench b;
        b.running().command(GuestVerb::checkpoint).criu_ready();
        ck_assert_text(b.command(GuestVerb::signal, 1, 2, SIGTERM).text(), "signal");
        ck_assert_text(b.command(GuestVerb::signal, 1, 2, SIGCONT).text(), "");
        return b;
    };
    Bench b = dumping(), failed = dumping(), moved;
    ck_assert_text(b.dump_held().text(), "go_on");
    ck_assert_text(b.undone().text(), "signal send_checkpoint >running");
    const auto* sent = std::get_if<guest::Do>(&b.out.front());
    ck_assert(sent && sent->signal == SIGCONT && sent->to_all);
    b.ended(guest::CheckpointSent{});
    // The next dump knows nothing of it.
    b.command(GuestVerb::checkpoint).criu_ready().dump_held();
    ck_assert_text(b.undone().text(), "send_checkpoint >running");
    failed.ended(guest::DumpFailed{{"it cannot be dumped"}, true});
    ck_assert_msg(failed.text().find("signal") != std::string::npos, "%s", failed.text().c_str());
    // An image from before it is not sent.
    moved.running().command(GuestVerb::prepare_dump).criu_ready();
    moved.command(GuestVerb::ship).sent_precopy().command(GuestVerb::signal, 1, 2, SIGCONT);
    ck_assert_text(moved.dump_held().text(), "undo_dump");
    ck_assert_text(moved.undone().text(), "signal ready_criu");
}
END_TEST

START_TEST(signals_for_a_job_whose_dump_is_given_up_wait_until_it_goes_on) {
    Bench b;
    b.running().command(GuestVerb::prepare_dump).criu_ready();
    b.command(GuestVerb::ship).sent_precopy().ended(guest::DumpFroze{});
    ck_assert_text(b.command(GuestVerb::signal).text(), "");  // its home keeps it for the copy
    b.command(GuestVerb::resume);
    ck_assert_text(b.command(GuestVerb::signal, 1, 2, SIGTERM).text(), "");
    ck_assert_text(b.command(GuestVerb::signal, 1, 2, SIGCONT).text(), "");
    b.dump_held();
    ck_assert_text(b.command(GuestVerb::signal, 1, 2, SIGUSR1).text(), "");
    b.undone();
    std::vector<int32_t> heard;
    for (const auto& output : b.out)
        if (const auto* sent = std::get_if<guest::Do>(&output);
            sent && sent->what == guest::Do::What::signal)
            heard.push_back(sent->signal);
    ck_assert(heard == std::vector<int32_t>({SIGTERM, SIGCONT, SIGUSR1}));
}
END_TEST

UNIT_SUITE(guest_signals, a_sigcont_during_a_dump_is_sent_when_the_job_goes_on,
           signals_for_a_job_whose_dump_is_given_up_wait_until_it_goes_on);
