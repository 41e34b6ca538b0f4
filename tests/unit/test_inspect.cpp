// SPDX-License-Identifier: GPL-2.0-or-later
// Images are read in another process. agentd's side must cope with such a process that somebody has
// taken over.
#include "agentd/inspect/inspector.hpp"

#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agentd/inspect/names.hpp"
#include "checkpoint/trial.h"
#include "tests/unit/inspect_rig.hpp"
#include "tests/unit/loop_fixture.hpp"
#include "tests/unit/temp_dir.hpp"
#include "tests/unit/unit.hpp"

namespace souk::unit {
namespace {
using namespace souk::inspect;

std::string u32(uint32_t n) { return {reinterpret_cast<const char*>(&n), sizeof n}; }
std::string image(uint32_t magic, const std::string& message) {
    return u32(0x54564319) + u32(magic) + u32(static_cast<uint32_t>(message.size())) + message;
}
// A process that has ended: without credentials.
std::string dead_core() { return image(0x55053847, {"\x1a\x02\x08\x06", 4}); }
std::string ghost(char mode) { return image(1, {'\x18', mode}) + "text"; }

struct Reading {
    Loop loop = open_loop();
    TempDir dir;
    Inspectors inspectors;
    Inspection inspection{loop};
    explicit Reading(Inspectors::Start start = reads_images()) : inspectors(std::move(start)) {
        OK(inspectors.begin());
    }
    Result<ImageFacts> read(std::string_view made_here = {}) {
        std::optional<Result<ImageFacts>> got;
        const Status opened = inspection.open(inspectors);
        if (!opened) return tl::unexpected(opened.error());
        inspection.read(
            dir.fd.get(), [&](Result<ImageFacts> facts) { got = std::move(facts); }, made_here);
        ck_assert(!got);
        UNTIL(loop, got.has_value());
        return std::move(*got);
    }
    std::string why(std::string_view made_here = {}) {
        const auto facts = read(made_here);
        return facts ? "" : facts.error().message;
    }
};

START_TEST(an_image_is_read_file_by_file_in_a_process_of_its_own) {
    Reading r;
    ck_assert(r.read().value().cores.empty());
    for (int thread = 1; thread <= 300; ++thread)
        (void)r.dir.write("core-" + std::to_string(thread) + ".img", dead_core());
    (void)r.dir.write("ghost-file-7.img", ghost('\x7f'));
    (void)r.dir.write("mm-7.img", "noise");
    const auto facts = r.read();
    ck_assert_msg(facts.has_value(), "%s", facts ? "" : facts.error().message.c_str());
    ck_assert_uint_eq(facts->cores.size(), 300);
    ck_assert(!facts->cores.at(300).alive && !facts->cores.at(300).has_credentials);
    ck_assert_uint_eq(facts->ghosts.size(), 1);
    ck_assert(facts->ghosts[0].mode == 0x7f && facts->ghosts[0].name == "ghost-file-7.img" &&
              facts->ghosts[0].bytes == ghost('\x7f').size());
}
END_TEST

START_TEST(what_is_no_image_is_refused_with_its_name) {
    Reading r;
    (void)r.dir.write("core-5.img", dead_core() + "x");
    ck_assert_text(r.why(), "core-5.img: core image: not one that CRIU wrote");
    (void)r.dir.write("core-5.img", dead_core());
    (void)r.dir.write("core-x.img", dead_core());
    ck_assert_text(r.why(), "core-x.img: no file of a job's image");
    ck_assert_int_eq(::unlinkat(r.dir.fd.get(), "core-x.img", 0), 0);
    (void)r.dir.write("core-99999999999.img", dead_core());
    ck_assert_text(r.why(), "core-99999999999.img: of no thread");
    ck_assert_int_eq(::unlinkat(r.dir.fd.get(), "core-99999999999.img", 0), 0);
    (void)r.dir.write("inventory.img", dead_core());
    ck_assert_text(r.why(), "inventory.img: core image: not one that CRIU wrote");
}
END_TEST

START_TEST(a_file_that_no_image_of_a_job_has_is_refused_before_any_is_read) {
    for (const char* name :
         {"inventory.img",      "pstree.img",         "files.img",      "core-1.img",
          "core-4194304.img",   "ids-7.img",          "mm-7.img",       "fs-7.img",
          "fdinfo-2.img",       "pagemap-7.img",      "pages-1.img",    "pagemap-shmem-98765.img",
          "ghost-file-a0f.img", "tcp-stream-3c4.img", "timens-0.img",   "utsns-9.img",
          "ipcns-var-10.img",   "souk-files",         "souk-residue",   "souk-run",
          "souk-seals",         "sent-ahead.img",     "dirty-rate.img", "souk-pages"})
        ck_assert_msg(is_file_of_a_job(name), "%s", name);
    for (const char* name : {"apparmor.img",
                             "creds-5.img",
                             "rlimit-5.img",
                             "vmas-5.img",
                             "sigacts-5.img",
                             "reg-files.img",
                             "packetsk.img",
                             "tunfile.img",
                             "ns-files.img",
                             "userns-1.img",
                             "pidns-1.img",
                             "netns-1.img",
                             "netdev-1.img",
                             "iptables-1.img",
                             "route-1.img",
                             "mountpoints-1.img",
                             "tmpfs-1.tar.gz",
                             "autofs-1.img",
                             "binfmt-misc.img",
                             "bpfmap-file.img",
                             "irmap-cache",
                             "parent",
                             "souk-sockets",
                             "souk-made-again",
                             "core-05.img",
                             "core-+5.img",
                             "core--5.img",
                             "core-5",
                             "core-.img",
                             "core-5.img.img",
                             "core-0x5.img",
                             "ghost-file-0a.img",
                             "ghost-file-A.img",
                             "pages-shmem-1.img",
                             "Inventory.img",
                             "inventory.img.",
                             "souk-",
                             "souk-files2",
                             ".img",
                             ""})
        ck_assert_msg(!is_file_of_a_job(name), "%s", name);
    Reading r;
    (void)r.dir.write("core-5.img", "this is not read");
    (void)r.dir.write("core-05.img", dead_core());  // one of the two would count
    ck_assert_text(r.why(), "core-05.img: no file of a job's image");
    (void)r.dir.write("lazy-pages.socket", "x");
    ck_assert_text(r.why(), "core-05.img: no file of a job's image");
    ck_assert_int_eq(::unlinkat(r.dir.fd.get(), "core-05.img", 0), 0);
    ck_assert_text(r.why(), "lazy-pages.socket: no file of a job's image");
    ck_assert_int_eq(::unlinkat(r.dir.fd.get(), "lazy-pages.socket", 0), 0);
    ck_assert_int_eq(::mknodat(r.dir.fd.get(), "lazy-pages.socket", S_IFSOCK | 0600, 0), 0);
    for (const char* name : {"restore.log", "stats-restore", "MANIFEST"})
        (void)r.dir.write(name, "x");
    (void)r.dir.write("core-5.img", dead_core());
    ck_assert_text(r.why(), "");
    (void)r.dir.write("apparmor.img", "x");
    ck_assert_text(r.why(), "apparmor.img: no file of a job's image");
}
END_TEST

START_TEST(an_image_may_ask_for_a_trial_only_where_this_node_has_asked_for_it) {
    Reading r;
    (void)r.dir.write("core-5.img", dead_core());
    (void)r.dir.write(SOUK_TRIAL_NAME, "");
    ck_assert_text(r.why(SOUK_TRIAL_NAME), "");
    ck_assert_text(r.why(), "souk-trial: no file of a job's image");
}
END_TEST

std::string inventory(const std::string& message) {
    return u32(0x58313116) + u32(static_cast<uint32_t>(message.size())) + message;
}
std::string entries(std::initializer_list<std::string> all) {
    std::string image = u32(0x54564319) + u32(0x56303138);
    for (const std::string& one : all) image += u32(static_cast<uint32_t>(one.size())) + one;
    return image;
}
// Makes one entry of a files.img: its kind, its number, and that message in that field.
std::string entry(char kind, int field, const std::string& message = "", char number = 1) {
    const int tag = field << 3 | 2;
    std::string bytes = {'\x08', kind, '\x10', number};
    if (tag >= 0x80) bytes += static_cast<char>((tag & 0x7f) | 0x80);
    bytes += static_cast<char>(tag >= 0x80 ? tag >> 7 : tag);
    return bytes + static_cast<char>(message.size()) + message;
}
std::string named(const std::string& name) {
    return std::string("\x32") + static_cast<char>(name.size()) + name;
}

START_TEST(the_kinds_of_its_files_and_its_namespaces_are_read) {
    Reading r;
    // pid, net, mnt, user and cgroup; one of IPC between them
    (void)r.dir.write("ids-5.img", image(0x54432030,
                                         "\x28\x01\x30\x02\x38\x63\x48\x04\x50\x05"
                                         "\x58\x06"));
    (void)r.dir.write("inventory.img",
                      inventory("\x08\x02\x1a\x0a\x28\x01\x30\x02\x48\x04\x50\x05\x58\x06"));
    (void)r.dir.write("files.img", entries({entry(1, 3), entry(2, 18), entry(20, 22)}));
    const auto facts = r.read();
    ck_assert_msg(facts.has_value(), "%s", facts ? "" : facts.error().message.c_str());
    const ImageNamespaces same{{1, 2, 4, 5, 6}};
    ck_assert_uint_eq(facts->namespaces.size(), 2);
    ck_assert(facts->namespaces.at("ids-5.img") == same);
    ck_assert(facts->namespaces.at("inventory.img") == same);
    ck_assert_uint_eq(facts->kinds.bits, 1 << 1 | 1 << 2 | 1 << 20);
    ck_assert(facts->kinds.roots.empty());
    (void)r.dir.write("files.img",
                      entries({entry(1, 3, named("/run/souk-root"), 9), entry(1, 3, named("/"), 4),
                               entry(1, 3, named("/a"), 5), entry(17, 12, named("/"), 6)}));
    (void)r.dir.write("fs-5.img", image(0x51403912, "\x08\x05\x10\x04"));
    const auto roots = r.read();
    ck_assert_msg(roots.has_value(), "%s", roots ? "" : roots.error().message.c_str());
    ck_assert((roots->kinds.roots == std::vector<uint32_t>{4, 9}));
    ck_assert_uint_eq(roots->roots.at("fs-5.img").file, 4);
    const std::string two = "files.img: core image: a file of two kinds",
                      none = "files.img: core image: a file of no kind";
    const auto why = [&](std::initializer_list<std::string> all) {
        (void)r.dir.write("files.img", entries(all));
        return r.why();
    };
    ck_assert_text(why({entry(1, 3) + entry(2, 18).substr(4)}), two);
    ck_assert_text(why({entry(1, 18)}), none);
    ck_assert_text(why({entry(1, 3, named("/")), entry(1, 3, named("/a"))}),
                   "files.img: core image: two files of one number");
    ck_assert_text(why({entry(21, 3)}), none);
    ck_assert_text(why({entry(1, 3).substr(0, 4)}), none);
    ck_assert_text(why({entry(1, 3), "x"}), "files.img: core image: not whole");
    (void)r.dir.write("files.img", entries({entry(1, 3)}) + "abc");
    ck_assert_text(r.why(), "files.img: core image: cut short");
}
END_TEST

START_TEST(what_ends_begins_anew_and_a_read_that_is_stopped_tells_nothing) {
    Reading r;
    (void)r.dir.write("core-5.img", dead_core());
    for (int i = 0; i < 3; ++i) {
        const pid_t before = r.inspectors.pid();
        ck_assert_int_eq(::kill(before, SIGKILL), 0);
        const Pidfd old = std::move(*Pidfd::open(before));
        ck_assert(*old.exited_within(limit));
        ck_assert_text(r.why(), "");
        ck_assert_int_ne(r.inspectors.pid(), before);
    }
    OK(r.inspection.open(r.inspectors));
    r.inspection.read(r.dir.fd.get(), [](const Result<ImageFacts>&) { ck_abort(); });
    r.inspection.stop();
    ck_assert_text(r.why(), "");
    r.inspection.read(r.dir.fd.get(), [](const Result<ImageFacts>& facts) { ck_assert(!facts); });
    (void)r.loop.run_until([] { return false; }, Nanos::from_ms(1));
}
END_TEST

START_TEST(who_has_taken_it_over_says_one_thing_of_each_file_or_is_not_heard) {
    const auto said = [](const std::function<void(int)>& say) {
        Reading r(says_of_images([say](int socket, FileKind) { say(socket); }));
        (void)r.dir.write("core-5.img", dead_core());
        (void)r.dir.write("ghost-file-1.img", ghost('\x01'));
        return r.why();
    };
    const auto packet = [&](const std::string& bytes) {
        return said([bytes](int socket) { (void)send_packet(socket, bytes); });
    };
    const std::string none = "a packet that is not one of souk-inspect";
    ck_assert_text(packet("x"), none);
    CoreImage core;
    core.credentials.groups = {2, 1};
    ck_assert_text(packet(pack(Answer(core))), none);
    const std::string good = pack(Answer(CoreImage{}));
    for (size_t n = 1; n < good.size(); ++n) ck_assert(!parse_answer(good.substr(0, n)));
    ck_assert_text(packet(good + "x"), none);
    ck_assert_text(packet(std::string(answer_bytes_max + 1, 'x')), "too long a packet");
    ck_assert(packet(good).ends_with(": the answer to another question"));
    ck_assert(packet(pack(Answer(Refusal{"a\nb\x1b"}))).ends_with(".img: a b "));
    ck_assert_text(said([](int socket) { (void)send_packet(socket, "x", 0); }),
                   "an answer with a file");
    ck_assert_text(said([](int socket) { ::shutdown(socket, SHUT_RDWR); }),
                   "the other end is gone");
}
END_TEST
}  // namespace

UNIT_SUITE(inspect, an_image_is_read_file_by_file_in_a_process_of_its_own,
           what_is_no_image_is_refused_with_its_name,
           a_file_that_no_image_of_a_job_has_is_refused_before_any_is_read,
           an_image_may_ask_for_a_trial_only_where_this_node_has_asked_for_it,
           the_kinds_of_its_files_and_its_namespaces_are_read,
           what_ends_begins_anew_and_a_read_that_is_stopped_tells_nothing,
           who_has_taken_it_over_says_one_thing_of_each_file_or_is_not_heard);

}  // namespace souk::unit
