// SPDX-License-Identifier: GPL-2.0-or-later
// Moves take pages out of the frozen job's memory, before or while the job already runs elsewhere.
// The pure parts are compared with a naive model.
#include <sys/wait.h>

#include <functional>
#include <map>

#include "checkpoint/pages.hpp"
#include "checkpoint/plan.hpp"
#include "kernel/base/rng.hpp"
#include "tests/unit/move_rig.hpp"
#include "tests/unit/unit.hpp"

namespace souk {
namespace {
using unit::CapsuleRig;
using unit::JobOutput;
using unit::LiveOrder;

// A program that checks and changes its memory all along: each line of input is one round over all
// of it.
constexpr const char* memory_worker = R"(
import hashlib, sys
memory = bytearray(hashlib.sha256(b'seed').digest() * (8 << 15))
for n, line in enumerate(sys.stdin, 1):
    for i in range(n % 7, len(memory), 4099): memory[i] ^= n & 255
    print(n, line.strip(), hashlib.sha256(memory).hexdigest(), flush=True)
sys.exit(42))";

START_TEST(a_job_that_moves_by_its_pages_computes_what_an_unmoved_one_does) {
    UNIT_SKIP_IF(unit::pages_impossible());
    JobOutput output, still;
    auto rig = std::make_unique<CapsuleRig>(output);
    CapsuleRig other(still);
    rig->start(unit::python(memory_worker));
    other.start(unit::python(memory_worker));
    ck_assert(rig->until([&] { return rig->started; }));
    std::string lines;
    for (int hops = 0; hops < 12; ++hops) {
        rig->send_input("word " + std::to_string(hops) + "\n");
        lines += "word " + std::to_string(hops) + "\n";
        if (hops % 3 != 2)
            ck_assert(rig->until([&] { return rig->input_taken == rig->input_sent; }));
        // all of its memory is there
        if (hops == 0) ck_assert(rig->until([&] { return !output.text[0].empty(); }));
        const uint64_t bytes =
            unit::live_hop(rig, hops % 2 == 0 ? LiveOrder::pages_first : LiveOrder::run_first);
        ck_assert_uint_gt(bytes, 8 << 20);
    }
    other.send_input(lines);
    for (CapsuleRig* r : {rig.get(), &other}) {
        ck_assert(r->until([&] { return r->input_taken == r->input_sent && r->typed.empty(); }));
        ck_assert(r->client.input_eof(r->input_sent).has_value());
        ck_assert(r->until([&] { return r->ended(); }));
        ck_assert_int_eq(WEXITSTATUS(r->exit->wait_status), 42);
    }
    ck_assert_text(output.text[0], still.text[0]);
}
END_TEST

// The job does all this while pages are missing: forks, mremap, madvise, munmap, mprotect, threads
// that touch the same pages, and many processes.
// Long: the two ends of one exchange, side by side.
START_TEST(memory_that_is_forked_moved_and_dropped_while_it_is_missing_is_right) {
    UNIT_SKIP_IF(unit::pages_impossible());
    JobOutput output;
    auto rig = std::make_unique<CapsuleRig>(output);
    rig->start(unit::python(R"(
import ctypes, mmap, os, sys, threading
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = libc.mremap.restype = ctypes.c_void_p
A, Z, I = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
libc.mmap.argtypes = [A, Z, I, I, I, ctypes.c_long]
libc.mremap.argtypes = [A, Z, Z, I, A]
libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
P = 4096
N = 1024
def mark(i, salt): return (i * 2654435761 + salt) & 0xffffffff
def cell(at): return ctypes.c_uint32.from_address(at)
def fresh(salt):
    at = libc.mmap(None, N * P, 3, 0x22, -1, 0)
    for i in range(N): cell(at + i * P).value = mark(i, salt)
    return at
def wrong(at, pages, salt, first=0):
    return [i for i in pages if cell(at + (i - first) * P).value != mark(i, salt)]
bad = []
for round, line in enumerate(sys.stdin):
    a, b, c, d, e, f = (fresh(round * 10 + k) for k in range(6))
    hidden = fresh(77)
    libc.mprotect(hidden, N * P, 0)
    print('ready', flush=True)
    sys.stdin.readline()  # the hop is here
    s = round * 10
    # forked at once: parent and child both see all, and their writes stay apart
    pid = os.fork()
    if pid == 0:
        w = wrong(a, range(N), s) + wrong(b, range(0, N, 3), s + 1)
        for i in range(N): cell(a + i * P).value = 0
        os._exit(1 if w else 0)
    # moved while missing
    to = libc.mmap(None, 2 * N * P, 0, 0x22, -1, 0)
    got = libc.mremap(b, N * P, N * P, 3, to)
    bad += wrong(got, range(N), s + 1) if got == to else ['mremap']
    # a part dropped reads zeros, the rest is there
    libc.madvise(c + 100 * P, 50 * P, 4)
    bad += [i for i in range(100, 150) if cell(c + i * P).value != 0]
    bad += wrong(c, list(range(100)) + list(range(150, N)), s + 2)
    # a hole
    libc.munmap(d + 10 * P, 700 * P)
    bad += wrong(d, list(range(10)) + list(range(710, N)), s + 3)
    # many threads on the same pages
    def look(): bad.extend(wrong(e, range(N), s + 4))
    threads = [threading.Thread(target=look) for _ in range(6)]
    for t in threads: t.start()
    for t in threads: t.join()
    # written before it was ever read
    for i in range(0, N, 2): cell(f + i * P).value = 5
    bad += wrong(f, range(1, N, 2), s + 5)
    bad += [i for i in range(0, N, 2) if cell(f + i * P).value != 5]
    libc.mprotect(hidden, N * P, 3)
    bad += wrong(hidden, range(N), 77)
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]): bad.append('child')
    bad += wrong(a, range(N), s)
    for at in (a, to, c, e, f, hidden): libc.munmap(at, N * P)
    print('round', round, bad[:5], flush=True)
)"));
    ck_assert(rig->until([&] { return rig->started; }));
    for (int round = 0; round < 8; ++round) {
        const std::string r = std::to_string(round);
        size_t ready = 0;
        rig->send_input("go\n");
        ck_assert(rig->until([&] {
            ready = 0;
            for (size_t at = 0; (at = output.text[0].find("ready\n", at)) != std::string::npos;
                 at += 6)
                ++ready;
            return ready > static_cast<size_t>(round);
        }));
        ck_assert(rig->until([&] { return rig->input_taken == rig->input_sent; }));
        rig->send_input("on\n");  // so that it is awake at once when it is there
        unit::live_hop(rig, round % 4 == 3 ? LiveOrder::pages_first : LiveOrder::run_first);
        ck_assert_msg(rig->until([&] {
            return output.text[0].find("round " + r + " []\n") != std::string::npos;
        }),
                      "%s%s", output.text[0].c_str(), output.text[1].c_str());
    }
}
END_TEST

START_TEST(a_tree_of_processes_moves_by_its_pages) {
    UNIT_SKIP_IF(unit::pages_impossible());
    JobOutput output;
    auto rig = std::make_unique<CapsuleRig>(output);
    // The job counts until it is told to end, so that it is there for the last hop on a busy
    // machine too.
    rig->start(unit::shell(R"(python3 -uc 'import select, sys
n = 0
while not select.select([0], [], [], 0)[0]:
    n += 1
    print(n)
print(n, file=sys.stderr)' | while read -r n; do echo $n; done | python3 -uc 'import sys
keep = bytearray(9 << 20)
for line in sys.stdin:
    keep[int(line) % len(keep)] ^= 1
    sys.stdout.write(line)' | sed 's/^/x/'; exit 5)"));
    ck_assert(rig->until([&] { return rig->started; }));
    for (int hops = 0; hops < 8; ++hops) {
        const size_t before = output.text[0].size();
        ck_assert(rig->until([&] { return output.text[0].size() > before + 10'000; }));
        unit::live_hop(rig, hops % 2 == 0 ? LiveOrder::run_first : LiveOrder::pages_first);
    }
    rig->send_input("end\n");
    ck_assert(rig->until([&] { return rig->ended(); }, 50));
    ck_assert_int_eq(WEXITSTATUS(rig->exit->wait_status), 5);
    const int lines = std::stoi(output.text[1]);
    std::string expected;
    for (int i = 1; i <= lines; ++i) expected += "x" + std::to_string(i) + "\n";
    ck_assert(output.text[0] == expected);
}
END_TEST

// A page map as plain pages: where each lies now, and where it lay in the image.
START_TEST(missing_pages_are_accounted_as_page_by_page) {
    Rng rng(11);
    for (int round = 0; round < 300; ++round) {
        MissingPages missing;
        std::map<uint64_t, uint64_t> model;  // page now -> page of the image
        const auto range = [&] { return std::pair{rng.below(200), 1 + rng.below(40)}; };
        for (int i = 0; i < 6; ++i) {
            const auto [at, n] = range();
            bool is_new = true;
            for (uint64_t p = at; p < at + n; ++p) is_new = is_new && !model.contains(p);
            if (!is_new) continue;
            missing.add(at * page_bytes, (at + n) * page_bytes);
            for (uint64_t p = at; p < at + n; ++p) model[p] = p;
        }
        for (int step = 0; step < 30; ++step) {
            const auto [at, n] = range();
            switch (rng.below(3)) {
                case 0:
                    missing.drop(at * page_bytes, (at + n) * page_bytes);
                    for (uint64_t p = at; p < at + n; ++p) model.erase(p);
                    break;
                case 1: {  // mremap's ranges do not overlap
                    const uint64_t to = 300 + rng.below(100);
                    missing.move(at * page_bytes, to * page_bytes, n * page_bytes);
                    for (uint64_t p = 0; p < n; ++p) model.erase(to + p);
                    for (uint64_t p = 0; p < n; ++p)
                        if (const auto node = model.extract(at + p); !node.empty())
                            model[to + p] = node.mapped();
                    break;
                }
                default: {
                    std::map<uint64_t, uint64_t> seen;
                    for (const MissingPages::Piece& p :
                         missing.of_image(at * page_bytes, (at + n) * page_bytes))
                        for (uint64_t k = 0; k < (p.end - p.start) / page_bytes; ++k)
                            seen[p.start / page_bytes + k] = p.image / page_bytes + k;
                    for (const auto& [now, image] : model)
                        if (image >= at && image < at + n)
                            ck_assert(seen.contains(now) && seen.extract(now).mapped() == image);
                    ck_assert(seen.empty());
                }
            }
            ck_assert_uint_eq(missing.bytes(), model.size() * page_bytes);
            const uint64_t look = rng.below(420);
            const auto there = missing.at(look * page_bytes);
            ck_assert_int_eq(there.start < there.end, model.contains(look));
            if (model.contains(look)) ck_assert_uint_eq(there.image, model.at(look) * page_bytes);
        }
    }
}
END_TEST

START_TEST(sections_of_pages_arrive_whole_however_they_are_cut_and_damage_is_refused) {
    Rng rng(3);
    std::string stream;
    std::vector<std::pair<PageRange, std::string>> sent;
    for (int i = 0; i < 20; ++i) {
        const uint64_t pages = i == 19 ? 0 : 1 + rng.below(section_pages_max);
        std::string data(pages * page_bytes, '\0');
        for (char& c : data) c = static_cast<char>(rng.next());
        const PageRange r{static_cast<pid_t>(pages == 0 ? 0 : 1 + rng.below(99)),
                          pages == 0 ? 0 : rng.below(1 << 20) * page_bytes, pages};
        std::string section(section_head_bytes + pages_text_bytes, '\0');
        section += data;
        put_pages_head(section.data(), r);
        stream += section;
        sent.emplace_back(r, data);
    }
    for (int round = 0; round < 20; ++round) {
        size_t n = 0;
        PageSections sections([&](const PageRange& r, std::string_view bytes) -> Status {
            ck_assert(n < sent.size() && sent[n].first == r && sent[n].second == bytes);
            ++n;
            return {};
        });
        for (size_t at = 0; at < stream.size();) {
            const size_t part =
                std::min<size_t>(stream.size() - at, 1 + rng.below(round < 10 ? 5000 : 400'000));
            ck_assert(sections.take(std::string_view(stream).substr(at, part)).has_value());
            at += part;
        }
        ck_assert_uint_eq(n, sent.size());
    }
    // of the first section: head, text, pages
    for (const size_t at : {size_t{0}, size_t{4}, size_t{8}, size_t{9}, size_t{11}, size_t{24},
                            size_t{31}, size_t{32}, size_t{39}, size_t{40}, size_t{40 + 4095}}) {
        std::string bad = stream;
        bad[at] ^= 0x55;
        PageSections sections([](const PageRange&, std::string_view) { return Status{}; });
        ck_assert_msg(!sections.take(bad).has_value(), "damage at %zu passes", at);
    }
    PageSections refusing(
        [](const PageRange&, std::string_view) -> Status { return fail_errno("no", EINVAL); });
    ck_assert_int_eq(refusing.take(stream).error().code, EINVAL);
}
END_TEST

START_TEST(a_damaged_pagemap_is_refused_whatever_is_wrong) {
    // magic, magic, an empty head, one entry: vaddr 0x1000, 3 pages, lazy
    const std::string good(
        "\x19\x43\x56\x54\x25\x40\x08\x56\x02\0\0\0\x08\x01\x07\0\0\0\x08\x80\x20\x10\x03\x20\x02",
        25);
    const auto ranges = lazy_ranges_of(good, 7);
    ck_assert_msg(ranges.has_value(), "%s", ranges ? "" : ranges.error().message.c_str());
    ck_assert(*ranges == (std::vector<PageRange>{{7, 0x1000, 3}}));
    for (size_t n = 0; n < good.size(); ++n)
        if (n != 8 && n != 14) ck_assert(!lazy_ranges_of(good.substr(0, n), 7).has_value());
    std::string bad = good;
    bad[20] = '\x21';  // not the start of a page: 0x1080
    bad[19] = '\x81';
    ck_assert(!lazy_ranges_of(bad, 7).has_value());
    Rng rng(8);
    for (int i = 0; i < 2000; ++i) {  // anything: refused or not, never worse
        std::string any = good;
        any[rng.below(any.size())] = static_cast<char>(rng.next());
        (void)lazy_ranges_of(any, 7);
    }
}
END_TEST

// Long: a table of cases.
START_TEST(a_move_is_planned_by_what_it_will_cost_and_what_its_owner_allows) {
    MoveFacts facts;
    facts.pages_possible = facts.post_copy_possible = true;
    facts.memory_bytes = 1 << 20;
    ck_assert(plan_move(facts).forecast.form == MoveForm::stop_and_copy);
    facts.memory_bytes = 64 << 20;
    ck_assert(plan_move(facts).forecast.form == MoveForm::pages_first);
    facts.memory_bytes = 512 << 20;
    const MoveForecast big = plan_move(facts).forecast;
    ck_assert(big.form == MoveForm::post_copy && big.pause < big.total);
    facts.own_network = true;
    ck_assert(plan_move(facts).forecast.form == MoveForm::pages_first);
    facts.own_network = false;
    facts.policy = MovePolicy::safe;
    ck_assert(plan_move(facts).forecast.form == MoveForm::pages_first &&
              plan_move(facts).forecast.pause > big.pause);
    facts.policy = MovePolicy::fast;
    facts.own_network = true;  // then it is its user's word
    facts.memory_bytes = 32 << 20;
    ck_assert(plan_move(facts).forecast.form == MoveForm::post_copy);
    facts.post_copy_possible = false;
    ck_assert(plan_move(facts).forecast.form == MoveForm::pages_first);
    facts.pages_possible = false;
    ck_assert(plan_move(facts).forecast.form == MoveForm::stop_and_copy);
    // A slow link makes less memory worth it.
    MoveFacts slow;
    slow.pages_possible = slow.post_copy_possible = true;
    slow.memory_bytes = 32 << 20;
    slow.link_bytes_per_s = 100e6;
    ck_assert(plan_move(slow).forecast.form == MoveForm::post_copy);
    // A terabyte that is reserved costs more than a copy of little memory, and less than one of
    // much; in each form.
    MoveFacts sparse;
    sparse.pages_possible = sparse.post_copy_possible = true;
    for (const MovePolicy policy : {MovePolicy::automatic, MovePolicy::safe, MovePolicy::fast}) {
        sparse.policy = policy;
        sparse.memory_bytes = 32 << 20;
        sparse.reserved_bytes = uint64_t{1} << 40;
        ck_assert(plan_move(sparse).forecast.form == MoveForm::stop_and_copy &&
                  plan_move(sparse).forecast.pause < Nanos::from_ms(100));
        ck_assert_uint_eq(dump_room_bytes(sparse, MoveForm::stop_and_copy), sparse.memory_bytes);
        ck_assert_uint_eq(dump_room_bytes(sparse, MoveForm::post_copy), uint64_t{4} << 30);
        sparse.memory_bytes = uint64_t{16} << 30;
        ck_assert(plan_move(sparse).forecast.form != MoveForm::stop_and_copy);
        sparse.memory_bytes = 32 << 20;
        sparse.reserved_bytes = uint64_t{1} << 30;
        ck_assert(plan_move(sparse).forecast.form != MoveForm::stop_and_copy);
    }
    // Memory that processes share goes with the image in any form. In a stop and copy the image has
    // it once for each process, and so becomes bigger.
    MoveFacts family;
    family.pages_possible = family.post_copy_possible = true;
    family.memory_bytes = 120 << 20;
    const MoveForecast apart = plan_move(family).forecast;
    family.shared_bytes = 100 << 20;
    family.image_bytes = 520 << 20;
    const MoveForecast together = plan_move(family).forecast;
    ck_assert(together.form != MoveForm::stop_and_copy && together.pause > apart.pause);
    ck_assert_uint_eq(dump_room_bytes(family, MoveForm::stop_and_copy), uint64_t{520} << 20);
    ck_assert_uint_eq(dump_room_bytes(family, MoveForm::post_copy), uint64_t{100} << 20);
    // little, but CRIU would write it for each
    family.memory_bytes = family.shared_bytes = 4 << 20;
    family.image_bytes = 80 << 20;
    ck_assert(plan_move(family).forecast.form != MoveForm::stop_and_copy);
    // The predicted time grows with each fact.
    for (const auto& more : std::vector<std::function<void(MoveFacts&)>>{
             [](MoveFacts& f) { f.memory_bytes *= 2; },
             [](MoveFacts& f) { f.reserved_bytes += 1 << 30; },
             [](MoveFacts& f) {
                 f.processes += 3;
                 f.threads += 3;
             },
             [](MoveFacts& f) { f.threads += 10; }}) {
        MoveFacts bigger = slow;
        more(bigger);
        ck_assert(plan_move(bigger).forecast.pause > plan_move(slow).forecast.pause &&
                  plan_move(bigger).forecast.total > plan_move(slow).forecast.total);
    }
}
END_TEST
}  // namespace

UNIT_SUITE(pages, a_job_that_moves_by_its_pages_computes_what_an_unmoved_one_does,
           memory_that_is_forked_moved_and_dropped_while_it_is_missing_is_right,
           a_tree_of_processes_moves_by_its_pages, missing_pages_are_accounted_as_page_by_page,
           sections_of_pages_arrive_whole_however_they_are_cut_and_damage_is_refused,
           a_damaged_pagemap_is_refused_whatever_is_wrong,
           a_move_is_planned_by_what_it_will_cost_and_what_its_owner_allows);
}  // namespace souk
