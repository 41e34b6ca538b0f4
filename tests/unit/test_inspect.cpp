// SPDX-License-Identifier: GPL-2.0-or-later
// What is read of an image in another process, and what agentd's side takes of one that somebody
// has taken over.
#include "agentd/inspect/inspector.hpp"

#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

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
    Result<ImageFacts> read() {
        std::optional<Result<ImageFacts>> got;
        const Status opened = inspection.open(inspectors);
        if (!opened) return tl::unexpected(opened.error());
        inspection.read(dir.fd.get(), [&](Result<ImageFacts> facts) { got = std::move(facts); });
        ck_assert(!got);
        UNTIL(loop, got.has_value());
        return std::move(*got);
    }
    std::string why() {
        const auto facts = read();
        return facts ? "" : facts.error().message;
    }
};

START_TEST(an_image_is_read_file_by_file_in_a_process_of_its_own) {
    Reading r;
    ck_assert(r.read().value().cores.empty());
    for (int thread = 1; thread <= 300; ++thread)
        (void)r.dir.write("core-" + std::to_string(thread) + ".img", dead_core());
    (void)r.dir.write("ghost-file-7.img", ghost('\x7f'));
    (void)r.dir.write("files.img", "noise");
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
    ck_assert_text(r.why(), "core-x.img: of no thread");
    ck_assert_int_eq(::unlinkat(r.dir.fd.get(), "core-x.img", 0), 0);
    (void)r.dir.write("creds-5.img", "x");
    ck_assert_text(r.why(), "creds-5.img: not of this version of CRIU");
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
    const auto said = [](std::function<void(int)> say) {
        Reading r(says_of_images(std::move(say)));
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
           what_ends_begins_anew_and_a_read_that_is_stopped_tells_nothing,
           who_has_taken_it_over_says_one_thing_of_each_file_or_is_not_heard);

}  // namespace souk::unit
