// SPDX-License-Identifier: GPL-2.0-or-later
// Memory sent ahead of a move, where the kernel tracks what is written to: on real processes that
// do everything to their memory.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <functional>

#include "checkpoint/frozen_memory.hpp"
#include "checkpoint/pages.hpp"
#include "checkpoint/precopy_source.hpp"
#include "checkpoint/precopy_store.hpp"
#include "kernel/base/rng.hpp"
#include "kernel/sys/host/probe.hpp"
#include "tests/unit/unit.hpp"

namespace souk {

namespace {
using Page = SentPages::Page;
constexpr uint64_t P = page_bytes;

const char* no_marks() {
    static const Need need = examine_soft_dirty();
    static const std::string why = "memory cannot be sent ahead here: " + need.found;
    return need.met ? nullptr : why.c_str();
}

// A child that does one thing after the other with its memory, a byte of the pipe for each.
struct Worker {
    explicit Worker(const std::function<void(char)>& step) {
        ck_assert_int_eq(::pipe(to), 0);
        ck_assert_int_eq(::pipe(from), 0);
        pid = ::fork();
        if (pid == 0) {
            ::close(to[1]);
            ::close(from[0]);
            char c = 0;
            while (::read(to[0], &c, 1) == 1) {
                step(c);
                if (::write(from[1], &c, 1) != 1) break;
            }
            ::_exit(0);
        }
        ::close(to[0]);
        ::close(from[1]);
    }
    ~Worker() {
        ::kill(pid, SIGKILL);
        ::waitpid(pid, nullptr, 0);
        ::close(to[1]);
        ::close(from[0]);
    }
    void tell(char c) const {
        char back = 0;
        ck_assert(::write(to[1], &c, 1) == 1 && ::read(from[0], &back, 1) == 1);
    }
    void stop() const {
        int status = 0;
        ::kill(pid, SIGSTOP);
        ck_assert_int_eq(::waitpid(pid, &status, WUNTRACED), pid);
    }
    void go_on() const { ::kill(pid, SIGCONT); }
    pid_t pid = 0;
    int to[2] = {}, from[2] = {};
};

// Rounds into a store, `between` after each; in the end every page that counts is compared with the
// process's own. Returns {bytes that count, bytes that do not}.
std::pair<uint64_t, uint64_t> rounds(const Worker& worker, int count,
                                     const std::function<void(int)>& between) {
    PrecopySource source;
    PrecopyStore store(uint64_t{1} << 30);
    PageSections sections([&](const PageRange& r, std::string_view bytes) {
        return r.pages > 0 ? store.put(r, bytes) : Status{};
    });
    const auto fine = [](const Status& s) {
        ck_assert_msg(s.has_value(), "%s", s ? "" : s.error().message.c_str());
    };
    for (int i = 0; i < count; ++i) {
        worker.stop();
        fine(source.look({worker.pid}));
        fine(source.mark());
        worker.go_on();
        for (auto piece = source.piece(); piece && !piece->empty(); piece = source.piece()) {
            fine(sections.take(*piece));
            source.sent(piece->size());
        }
        between(i);
    }
    ck_assert_uint_eq(store.bytes_taken(), source.bytes_sent());
    worker.stop();
    fine(source.look({worker.pid}));
    const auto valid = source.valid();
    const uint64_t good = bytes_of(valid);
    const auto pids = pids_inside({worker.pid});
    auto memory = FrozenMemory::open(valid, pids);
    ck_assert(memory.has_value());
    fine(store.use({valid, ""}));
    for (;;) {
        const auto piece = store.next();
        ck_assert(piece.has_value());
        if (piece->range.pages == 0) break;
        std::string now(piece->bytes.size(), 0);
        fine(memory->read(piece->range, now.data()));
        ck_assert_msg(now == piece->bytes, "not what it holds, at %lx", piece->range.start);
    }
    worker.go_on();
    return {good, source.left_bytes()};
}

char* fresh(size_t bytes, char with = 'x') {
    void* const at =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) ::_exit(9);
    std::memset(at, with, bytes);
    return static_cast<char*>(at);
}

START_TEST(an_idle_process_is_sent_once_and_a_busy_one_as_far_as_it_rests) {
    UNIT_SKIP_IF(no_marks());
    constexpr size_t size = 16 << 20;
    char* memory = nullptr;
    int n = 0;
    const Worker worker([&](char c) {
        if (c == 'm') memory = fresh(size);
        if (c == 'w') {
            ++n;
            for (size_t i = 0; i < size / 8; i += P) memory[i] = static_cast<char>(n);
        }
    });
    worker.tell('m');
    const auto [idle, idle_left] = rounds(worker, 2, [](int) {});
    ck_assert_uint_gt(idle, size);
    ck_assert_uint_lt(idle_left, 1 << 20);
    const auto [busy, busy_left] = rounds(worker, 3, [&](int) { worker.tell('w'); });
    ck_assert_uint_gt(busy, size / 8 * 6);
    ck_assert_uint_lt(busy, size / 8 * 7 + (4 << 20));  // with huge pages a little more
    ck_assert_uint_ge(busy_left, size / 8);
    ck_assert_uint_lt(busy_left, size / 2);
}
END_TEST

// Big enough, and aligned, for the kernel to move whole page tables, which leaves the marks as they
// are.
START_TEST(memory_that_is_moved_dropped_and_mapped_anew_is_never_what_was_sent) {
    UNIT_SKIP_IF(no_marks());
    constexpr size_t table = 2 << 20, size = 2 * table;
    char *a = nullptr, *b = nullptr, *hole = nullptr;
    int n = 0;
    const auto aligned = [&](char with) {
        const auto at = reinterpret_cast<uintptr_t>(fresh(size + table, with));
        // NOLINTNEXTLINE(performance-no-int-to-ptr)
        return reinterpret_cast<char*>((at + table - 1) / table * table);
    };
    const auto step = [&](char c) {
        ++n;
        if (c == 'm') {
            a = aligned('a');
            b = aligned('b');
            for (size_t i = 0; i < size; i += P)
                std::memcpy(a + i, &i, sizeof i), std::memcpy(b + i + 8, &i, sizeof i);
            ::madvise(a, size, MADV_NOHUGEPAGE);
            ::madvise(b, size, MADV_NOHUGEPAGE);
            hole = aligned('h');
        }
        if (c == 's') {  // a and b change places, a page table at a time
            for (size_t i = 0; i < size; i += table)
                for (const auto& [from, to] :
                     {std::pair{a, hole}, std::pair{b, a}, std::pair{hole, b}})
                    if (::mremap(from + i, table, table, MREMAP_MAYMOVE | MREMAP_FIXED, to + i) ==
                        MAP_FAILED)
                        ::_exit(8);
        }
        if (c == 'd') ::madvise(a + table, table, MADV_DONTNEED);
        if (c == 'r') {  // read where it was dropped: zeros
            volatile char sum = 0;
            for (size_t i = 0; i < table; i += P) sum = static_cast<char>(sum + a[table + i]);
        }
        if (c == 'u') {
            ::munmap(b + table, table);
            if (::mmap(b + table, table, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
                ::_exit(8);
            std::memset(b + table, n, table / 2);
        }
        if (c == 'g') (void)fresh(table, static_cast<char>(n));
        if (c == 'f' && ::fork() == 0) ::_exit(0);
        if (c == 'h') ::madvise(a, size, MADV_HUGEPAGE), std::memset(a, n, size);
    };
    const std::string kinds = "sdrugfsh";
    for (uint64_t seed = 0; seed < 5; ++seed) {
        Rng rng(seed);
        a = b = hole = nullptr;
        const Worker worker(step);
        worker.tell('m');
        rounds(worker, 3, [&](int) {
            for (uint64_t i = 1 + rng.below(3); i > 0; --i)
                worker.tell(kinds[rng.below(kinds.size())]);
        });
    }
}
END_TEST

START_TEST(a_process_that_tracks_its_own_memory_is_not_disturbed) {
    UNIT_SKIP_IF(no_marks());
    char* memory = nullptr;
    int fd = -1;
    const Worker worker([&](char c) {
        if (c == 'm') memory = fresh(1 << 20);
        if (c == 'o') fd = ::open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
    });
    worker.tell('m');
    ck_assert_uint_gt(rounds(worker, 1, [](int) {}).first, 1 << 20);
    worker.tell('o');
    const auto [used, left] = rounds(worker, 2, [](int) {});
    ck_assert_uint_eq(used, 0);
    ck_assert_uint_eq(left, 0);  // all of it goes when it stands
    (void)fd;
}
END_TEST

}  // namespace

UNIT_SUITE(sent_pages_live, an_idle_process_is_sent_once_and_a_busy_one_as_far_as_it_rests,
           memory_that_is_moved_dropped_and_mapped_anew_is_never_what_was_sent,
           a_process_that_tracks_its_own_memory_is_not_disturbed);

}  // namespace souk
