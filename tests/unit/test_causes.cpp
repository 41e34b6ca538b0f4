// SPDX-License-Identifier: GPL-2.0-or-later
// Causes (kernel/base/cause.hpp): each code has words, a cause keeps its code from where it happens
// until the market and the job's record have it, and what CRIU says becomes words for people.
#include <algorithm>
#include <functional>
#include <set>
#include <sstream>

#include "agentd/wire/codec.hpp"
#include "checkpoint/criu.hpp"
#include "kernel/base/json.hpp"
#include "kernel/sys/process/movable.hpp"
#include "market/core/reason.hpp"
#include "tests/unit/guest_bench.hpp"
#include "tests/unit/home_bench.hpp"

using namespace souk;
using enum CauseCode;

namespace {

namespace g = unit::guests;

const GuestEvent& told_of(const guest::Outputs& out) {
    for (const auto& o : out)
        if (const auto* t = std::get_if<guest::ToHome>(&o))
            if (const auto* e = std::get_if<GuestEvent>(&t->message)) return *e;
    ck_abort_msg("nothing was told");
}

std::string code_of(const Cause& cause) { return std::string(to_string(cause.code)); }

// The code of the cause that a guest's home is told after an end that states no code itself.
std::string told_after(g::Bench& b, guest::Event event) {
    b.ended(std::move(event));
    const bool told = std::any_of(b.out.begin(), b.out.end(), [](const guest::Output& o) {
        return std::holds_alternative<guest::ToHome>(o);
    });
    if (!told) b.gone();  // told when nothing of it is left
    return code_of(told_of(b.out).why);
}

std::string code_of_failed(const home::Outputs& out) {
    for (const auto& o : out)
        if (const auto* m = std::get_if<home::ToMarketMsg>(&o))
            if (const auto* f = std::get_if<OrderFailed>(&m->message)) return code_of(f->why);
    return "nothing failed";
}

}  // namespace

START_TEST(every_cause_has_a_code_of_its_own_words_and_a_meaning) {
    std::set<std::string_view> names;
    for (const auto& r : market::reason_table()) names.insert(r.name);
    for (const CauseWords& c : cause_table()) {
        if (c.code == none) continue;
        const std::string name(c.name);
        ck_assert_msg(names.insert(c.name).second, "%s twice", name.c_str());
        ck_assert_msg(!c.text.empty() && !c.means.empty(), "%s", name.c_str());
        ck_assert(to_string(c.code) == c.name);
    }
    ck_assert_text(std::string(to_string(static_cast<CauseCode>(60'000))), "unknown");
}
END_TEST

START_TEST(words_around_a_cause_leave_its_code) {
    const Cause traced = because(is_traced, {{"process", "process 7 (gdb)"}});
    ck_assert_text(traced, "cannot move: process 7 (gdb) is being traced");
    const Cause more = traced.within("the freeze failed: ");
    ck_assert(more.code == is_traced && more == "the freeze failed: " + std::string(traced));
    ck_assert(Cause("x").or_code(dump_failed).code == dump_failed);
    ck_assert(traced.or_code(dump_failed).code == is_traced && Cause().or_code(killed).empty());
    const Error wrapped = wrap("outer", fail_because(is_traced, {}, "its words").value()).value();
    ck_assert(Trouble(wrapped).code == is_traced && Trouble(wrapped).detail == "its words");
    JsonWriter w;
    w.begin_object();
    write_cause(w, "why", Cause(killed, "killed on n2"));
    write_cause(w, "none", Cause());
    write_cause(w, "plain", Cause("of before"));
    ck_assert_text(w.end_object().take(),
                   R"({"why":"killed on n2","why_code":"killed","plain":"of before"})");
}
END_TEST

START_TEST(what_a_process_has_open_gives_the_code_of_what_keeps_it) {
    const std::pair<const char*, CauseCode> known[] = {
        {"anon_inode:[io_uring]", holds_io_uring},
        {"anon_inode:[userfaultfd]", holds_userfaultfd},
        {"anon_inode:[perf_event]", holds_perf_event},
        {"anon_inode:bpf-map", holds_bpf},
        {"anon_inode:bpf_link", holds_bpf},
        {"anon_inode:kvm-vm", holds_virtual_machine},
        {"/dev/kvm", holds_virtual_machine},
        {"/dev/fuse", holds_fuse_device},
        {"/secretmem (deleted)", holds_secret_memory},
        {"/dev/nvidia0", holds_gpu},
        {"/dev/dri/renderD128", holds_gpu},
        {"anon_inode:[landlock-ruleset]", holds_unsupported},
        {"anon_inode:seccomp notify", holds_unsupported}};
    for (const auto& [target, code] : known) ck_assert(unmovable_file(target) == code);
    for (const char* name : {"MPTCP", "MPTCPv6"}) ck_assert(unmovable_socket(name) == holds_mptcp);
    for (const char* name : {"AF_VSOCK", "ALG", "SCTP", "XDP"})
        ck_assert(unmovable_socket(name) == holds_unsupported);
    for (const char* name : {"", "TCP", "UDPv6", "UNIX", "UNIX-STREAM", "NETLINK", "PACKET"})
        ck_assert(unmovable_socket(name) == none);
}
END_TEST

START_TEST(criu_lines_become_words_for_people_and_are_kept_for_who_asks) {
    const std::pair<const char*, CauseCode> known[] = {
        {"Error (criu/cr-dump.c:377): Can't get rlimit 0: Operation not permitted",
         lacks_sys_resource},
        {"Error (criu/files-reg.c:1): Can't dump ghost file /x of 99 size, increase limit",
         deleted_file_too_large},
        {"Error (criu/sk-unix.c:1): unix: Can't dump half of stream unix connection.",
         socket_to_outside},
        {"Error (criu/sk-unix.c:1): unix: External socket is used.", socket_to_outside},
        {"Error (criu/sk-unix.c:418): unix: Unix socket 7 without peer 8", socket_to_outside},
        {"Error (criu/sk-inet.c:1): inet: Connected TCP socket, consider using", connection_open},
        {"Error (criu/files.c:1): Can't dump file 3 of that type [60000] (unknown /dev/x)",
         file_unsupported},
        {"Error (criu/files-reg.c:1): Can't lookup mount=24 for fd=3 path=/x", file_mount_unknown},
        {"Error (criu/namespaces.c:1): Can't dump nested uts namespace for 5", namespace_nested},
        {"Error (criu/seccomp.c:1): Dumping seccomp filters not supported: x", seccomp_unsupported},
        {"Error (criu/cr-dump.c:1): Timeout reached. Try to interrupt: 1", did_not_stop}};
    for (const auto& [line, code] : known) ck_assert_msg(criu_cause(line) == code, "%s", line);
    ck_assert(criu_cause("Error (criu/x.c:1): of another kind") == none);
    ck_assert(
        criu_trouble_passes("Error (criu/sk-netlink.c:77): netlink: The socket has data to "
                            "read"));
    ck_assert(!criu_trouble_passes("Error (criu/sk-netlink.c:71): Netlink socket is in use"));
    ck_assert(
        criu_trouble_passes("Error (souk): a message that names its sender waits in a socket"));
    ck_assert(
        criu_trouble_passes("Error (souk): a descriptor is on its way between two processes"));
    ck_assert(
        criu_trouble_passes("Error (souk): /a with a lock of it is on its way in a socket of "
                            "process 7 (file 3); it can move when it has been taken"));
    ck_assert(
        criu_trouble_passes("Error (souk): a part of a datagram waits for the rest of it "
                            "(MSG_MORE) in a socket of process 7 (file 3); it can move when the "
                            "rest has been sent"));
    ck_assert(
        criu_trouble_passes("Error (souk): more descriptors than CRIU takes along are on their way "
                            "in a socket of process 7 (file 3)"));
    ck_assert(
        !criu_trouble_passes("Error (souk): thread 7 has the tiles of its processor (AMX) "
                             "configured; it can move when it has released them"));
    ck_assert_text(criu_other_file("Error (criu/files-reg.c:2175): File a/b has bad size 7 (expect "
                                   "6); Error (criu/files.c:1): Unable to open fd=3"),
                   "/a/b is another file now, of another size 7 (expect 6)");
    ck_assert_text(criu_other_file("File a has bad build-ID\nError (x): y"),
                   "/a is another file now, of another build-ID");
    for (const char* none_of_these : {"", "File a", "has bad size", "Error (x): a has bad b"})
        ck_assert_text(criu_other_file(none_of_these), "");
    const std::string refusal =
        criu_refusal("Error (souk): x; it can move y; Error (criu/a.c:1): z");
    ck_assert(because(dump_refused, {{"text", refusal}}) == "x; it can move y");
    ck_assert(criu_refusal("Error (criu/a.c:1): z").empty());
    // CRIU 4.2's own lines, as jobs have met them
    for (const auto& [line, words] :
         {std::pair{"Error (criu/cr-dump.c:676): Can't make FS id for 7", "(CLONE_FS)"},
          {"Error (criu/cr-dump.c:669): Can't make VM id for 7", "(CLONE_VM)"},
          {"Error (criu/util.c:484): Can't read link of fd 19: File name too long", "4096 bytes"},
          {"Error (criu/sk-unix.c:698): unix: Unable too cut first from /a/second", "another name"},
          {"Error (criu/sk-inet.c:1059): inet: Can't bind inet socket (id 329): Address already "
           "in use",
           "is in use"},
          {"Error (criu/tty.c:2286): tty: ctty inheritance detected sid/pgrp 7", "terminal"}})
        ck_assert_msg(criu_refusal(line).find(words) != std::string::npos, "%s", line);
    // everybody who runs agentd in a container meets this one
    ck_assert_text(because(lacks_sys_resource).substr(0, 64),
                   "agentd lacks CAP_SYS_RESOURCE: jobs of other users than root can");
}
END_TEST

START_TEST(a_path_that_a_restore_does_not_find_is_named) {
    ck_assert_text(criu_unopened_file("Error (criu/files-reg.c:2353): Can't open file home/a on "
                                      "restore: No such file or directory\nError (x): y"),
                   "cannot open /home/a: No such file or directory");
    ck_assert_text(criu_unopened_file("Can't open file a; b on restore: c; Error (x): y"),
                   "cannot open /a; b: c");
    ck_assert_text(criu_unopened_file("Can't open file a on restore: b on restore: c"),
                   "cannot open /a on restore: b: c");
    ck_assert_text(criu_unopened_file("Error (criu/fifo.c:98): Can't open fake fifo 0xe [a/b]: No "
                                      "such file; Error (criu/files-reg.c:2267): Can't open file "
                                      "a/b: No such file; Error (criu/files.c:1221): x"),
                   "cannot open /a/b: No such file");
    ck_assert_text(criu_unopened_file("Error (criu/fsnotify.c:510): fsnotify: Unable to open /a/b: "
                                      "No such file\nError (x): y"),
                   "cannot open /a/b: No such file");
    for (const char* none_of_these : {"", "Can't open file x", "Can't open file x\n on restore: y"})
        ck_assert_text(criu_unopened_file(none_of_these), "");
}
END_TEST

START_TEST(the_ends_of_a_guests_effects_have_a_code_each) {
    g::Bench a;
    a.command(GuestVerb::start);
    ck_assert_text(told_after(a, guest::CapsuleFailed{"no"}), "capsule_failed");
    g::Bench b;
    b.command(GuestVerb::start).ended(guest::CapsuleReady{});
    ck_assert_text(told_after(b, guest::JobNotStarted{2, false, "no"}), "start_failed");
    g::Bench lacks;
    lacks.command(GuestVerb::start).ended(guest::CapsuleReady{});
    ck_assert_text(told_after(lacks, guest::JobNotStarted{2, true, "no"}), "program_failed");
    g::Bench off;
    off.end([](Guest& m, guest::Outputs& o) { m.set_accepting(false, "node n2 is off", o); });
    off.command(GuestVerb::start);
    ck_assert_text(code_of(told_of(off.out).why), "off_market");
    g::Bench c;
    c.running().command(GuestVerb::prepare_dump);
    ck_assert_text(told_after(c, guest::CriuFailed{Cause(criu_silent, "no"), true}), "criu_silent");
    g::Bench d;
    d.running().command(GuestVerb::freeze).criu_ready();
    ck_assert_text(told_after(d, guest::DumpFailed{"no", true}), "dump_failed");
    g::Bench e;
    e.command(GuestVerb::prepare).ended(guest::CapsuleReady{}).criu_ready();
    ck_assert_text(told_after(e, guest::ImageFailed{"no"}), "receive_failed");
    g::Bench f;
    f.command(GuestVerb::prepare).ended(guest::CapsuleReady{}).criu_ready();
    f.ended(guest::ImageReceived{100, MoveForm::stop_and_copy});
    ck_assert_text(told_after(f, guest::RestoreFailed{"no"}), "restore_failed");
    g::Bench h;
    h.running();
    ck_assert_text(told_after(h, guest::CapsuleGone{}), "capsule_ended");
    g::Bench i;
    i.running();
    ck_assert_text(told_after(i, guest::Exited{9, "it may have 64 MB"}), "memory_limit");
    g::Bench j;
    j.recovered(GuestState::frozen, true, {});
    j.gone();
    j.command(GuestVerb::query);
    ck_assert_text(code_of(told_of(j.out).why), "image_incomplete");
}
END_TEST

START_TEST(what_a_guest_says_reaches_the_market_and_the_record_with_its_code) {
    unit::Bench b;
    b.running().suspend();
    GuestEvent e;
    e.id = b.job().id;
    e.epoch = {1};
    e.state = GuestState::running;
    e.why = {Cause(file_unsupported, "a file of a kind"), "Error (criu/files.c:1): 60000"};
    const auto sent = wire::unpack<GuestEvent>(wire::pack(e));
    ck_assert(sent && sent->why == e.why);
    b.out.clear();
    b.h.guest_event("n2", *sent, b.now, b.out);
    ck_assert_text(code_of_failed(b.out), "file_unsupported");
    ck_assert_text(code_of(b.job().comment), "file_unsupported");
    const StoryStep& step = b.job().story.steps().back();
    ck_assert(step.why.code == file_unsupported);
    ck_assert_text(step.why.detail, "Error (criu/files.c:1): 60000");
    ck_assert(b.job().comment.find("criu") == std::string::npos);
}
END_TEST

START_TEST(what_a_home_decides_has_a_code) {
    unit::Bench moving;
    moving.running().run_on("n3").wait(Nanos::from_s(3'600));
    ck_assert_text(code_of_failed(moving.out), "not_ready_in_time");
    unit::Bench lost;
    lost.running().event("n2", 1, GuestState::unknown);
    ck_assert_text(code_of(lost.job().why), "job_lost");
    unit::Bench image;
    image.frozen().event("n2", 1, GuestState::unknown);
    ck_assert_text(code_of(image.job().why), "image_lost");
    unit::Bench slow;
    slow.shipping().wait(Nanos::from_s(36'000));
    ck_assert_text(code_of_failed(slow.out), "transfer_too_slow");
    unit::Bench lacking;
    lacking.submit().run_on("n2");
    GuestEvent no_program;
    no_program.id = lacking.job().id;
    no_program.epoch = {1};
    no_program.state = GuestState::failed;
    no_program.error = ENOENT;
    no_program.program_error = true;
    no_program.why = "no such file";
    lacking.out.clear();
    lacking.h.guest_event("n2", no_program, lacking.now, lacking.out);
    ck_assert_text(code_of_failed(lacking.out), "program_lacks");
    unit::Bench gone;
    gone.running();
    gone.out.clear();
    gone.h.node_lost("n2", gone.now, gone.out);
    ck_assert_text(code_of(gone.job().why), "given_up_node");
    unit::Bench waits;
    waits.submit().cancel();
    ck_assert_text(code_of(waits.job().why), "cancelled");
    unit::Bench killed_there;
    killed_there.running().event("n2", 1, GuestState::killed, "its capsule is gone");
    ck_assert_text(code_of(killed_there.job().why), "killed");
}
END_TEST

UNIT_SUITE(causes, criu_lines_become_words_for_people_and_are_kept_for_who_asks,
           a_path_that_a_restore_does_not_find_is_named,
           every_cause_has_a_code_of_its_own_words_and_a_meaning,
           the_ends_of_a_guests_effects_have_a_code_each,
           what_a_guest_says_reaches_the_market_and_the_record_with_its_code,
           what_a_home_decides_has_a_code, what_a_process_has_open_gives_the_code_of_what_keeps_it,
           words_around_a_cause_leave_its_code);
