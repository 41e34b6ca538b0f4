// SPDX-License-Identifier: GPL-2.0-or-later
// Processes share memory copy-on-write. That memory is found and written into an image once, which
// is compared with a naive model of CRIU's restore. It is read out of processes without making a
// copy of it.
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>
#include <set>

#include "checkpoint/frozen_memory.hpp"
#include "checkpoint/resident.hpp"
#include "checkpoint/sent_pages.hpp"
#include "checkpoint/shared_pages.hpp"
#include "kernel/base/rng.hpp"
#include "tests/unit/unit.hpp"

namespace souk {
namespace {

// A page of the model: what it holds is its frame, which several processes may map.
struct Page {
    bool left_out = false;
    uint64_t frame = 0;
};
using Memory = std::map<uint64_t, Page>;  // of a process, by number of page

struct Job {
    std::vector<Memory> memory;
    std::vector<std::vector<uint64_t>> files;  // frames in pages-N.img of each
    std::vector<PagemapImage> maps;
};

PagemapImage pagemap_of(pid_t pid, const Memory& memory, std::vector<uint64_t>& file) {
    PagemapImage map{pid, static_cast<uint32_t>(pid), {}};
    for (const auto& [number, page] : memory) {
        const uint32_t flags = page.left_out ? pagemap_lazy : pagemap_present;
        const uint64_t at = number * page_bytes;
        if (!page.left_out) file.push_back(page.frame);
        auto& all = map.entries;
        if (!all.empty() && all.back().flags == flags &&
            all.back().start + all.back().pages * page_bytes == at)
            ++all.back().pages;
        else
            all.push_back({at, 1, flags});
    }
    return map;
}

// Processes that have forked from one another, then written to, dropped and mapped pages of their
// own.
Job make_job(Rng& rng) {
    Job job;
    uint64_t frame = 1;
    const size_t count = 1 + rng.below(6);
    for (size_t i = 0; i < count; ++i) {
        Memory memory = i == 0 || rng.below(5) == 0 ? Memory{} : job.memory[rng.below(i)];
        for (uint64_t changes = rng.below(12); changes > 0; --changes) {
            const uint64_t first = 1000 + rng.below(2500),
                           pages = 1 + rng.below(rng.below(3) == 0 ? 900 : 20);
            const bool left_out = rng.below(4) != 0;
            const uint64_t how = rng.below(4);
            for (uint64_t n = first; n < first + pages; ++n) {
                if (how == 0)
                    memory.erase(n);
                else
                    memory[n] = {left_out, frame++};
            }
        }
        job.memory.push_back(std::move(memory));
    }
    for (size_t i = 0; i < count; ++i)
        job.maps.push_back(
            pagemap_of(static_cast<pid_t>(i + 2), job.memory[i], job.files.emplace_back()));
    return job;
}

// An entry as /proc/PID/pagemap has it. Some pages are in swap.
uint64_t entry_of(const Job& job, size_t process, uint64_t number) {
    const auto found = job.memory[process].find(number);
    if (found == job.memory[process].end()) return 0;
    int maps = 0;
    for (const Memory& m : job.memory) {
        const auto other = m.find(number);
        maps += other != m.end() && other->second.frame == found->second.frame ? 1 : 0;
    }
    const uint64_t where = found->second.frame % 7 == 0 ? pagemap::swapped : pagemap::present;
    return found->second.frame | where |
           (maps == 1 && where == pagemap::present ? pagemap::exclusive : 0);
}

void look_at_all(const Job& job, SharedPages& shared) {
    std::vector<uint64_t> entries;
    while (shared.next()) {
        const SharedPages::Block& block = shared.block();
        entries.assign(block.processes.size() * SharedPages::block_pages, 0);
        for (size_t i = 0; i < block.processes.size(); ++i)
            for (uint64_t n = 0; n < SharedPages::block_pages; ++n)
                entries[i * SharedPages::block_pages + n] =
                    entry_of(job, block.processes[i], block.start / page_bytes + n);
        shared.take(SharedPages::any_shared(entries) ? entries : std::vector<uint64_t>{});
    }
}

// The frames of the common file, from where its runs say that they lie.
std::vector<uint64_t> common_file(const Job& job, const SharedPages& shared) {
    std::vector<uint64_t> file;
    for (const SharedPages::Run& run : shared.runs())
        for (uint64_t n = 0; n < run.pages; ++n)
            file.push_back(run.present
                               ? job.files[run.process].at(run.old_page + n)
                               : job.memory[run.process].at(run.start / page_bytes + n).frame);
    return file;
}

// Restores lazily as CRIU does (criu/mem.c): it goes in the order of the entries, skips pages that
// are lazy and present, and leaves pages that are only lazy for later.
Memory restored(const PagemapImage& map, const std::vector<uint64_t>& file) {
    Memory memory;
    uint64_t at = 0, last = 0;
    for (const PagemapImage::Entry& e : map.entries) {
        ck_assert_uint_gt(e.pages, 0);
        const bool lazy = (e.flags & pagemap_lazy) != 0, present = (e.flags & pagemap_present) != 0;
        for (uint64_t n = 0; n < e.pages && !(lazy && present); ++n) {
            const uint64_t number = e.start / page_bytes + n;
            ck_assert_uint_gt(number, last);
            last = number;
            memory[number] = {lazy, lazy ? 0 : file.at(at + n)};
        }
        if (present) at += e.pages;
    }
    ck_assert_uint_le(at, file.size());
    return memory;
}

START_TEST(shared_pages_are_in_the_image_once_and_every_process_gets_its_own_memory) {
    Rng rng(12);
    uint64_t shared_in_all = 0;
    for (int round = 0; round < 300; ++round) {
        const Job job = make_job(rng);
        auto shared = SharedPages::open(job.maps);
        ck_assert(shared.has_value());
        look_at_all(job, *shared);
        const std::vector<uint64_t> file = common_file(job, *shared);
        ck_assert_uint_eq(file.size(), shared->pages_in_file());
        const auto maps = shared->pagemaps(99);
        ck_assert_uint_eq(maps.size(), job.maps.size());

        std::set<std::pair<uint64_t, uint64_t>> wanted, once;  // page, frame
        std::set<std::pair<uint64_t, uint64_t>> left_out_and_shared;
        for (size_t i = 0; i < maps.size(); ++i) {
            ck_assert(maps[i].pid == job.maps[i].pid && maps[i].file == 99);
            const Memory got = restored(maps[i], file);
            ck_assert_uint_eq(got.size(), job.memory[i].size());
            for (const auto& [number, page] : job.memory[i]) {
                int maps_of_it = 0;
                for (const Memory& m : job.memory)
                    maps_of_it += m.contains(number) && m.at(number).frame == page.frame ? 1 : 0;
                const bool in_file = !page.left_out || maps_of_it > 1;
                ck_assert_int_eq(got.at(number).left_out, !in_file);
                if (in_file) ck_assert_uint_eq(got.at(number).frame, page.frame);
                if (in_file) wanted.emplace(number, page.frame);
                if (page.left_out && maps_of_it > 1)
                    left_out_and_shared.emplace(number, page.frame);
            }
        }
        ck_assert_uint_eq(file.size(), wanted.size());  // each once
        ck_assert_uint_eq(shared->pages_shared(), left_out_and_shared.size());
        shared_in_all += left_out_and_shared.size();
    }
    ck_assert_uint_gt(shared_in_all, 10'000);  // else it has tested nothing
}
END_TEST

START_TEST(pages_without_a_number_are_taken_for_none_that_is_shared) {
    Job job;
    job.memory.assign(3, {});
    for (Memory& memory : job.memory)
        for (uint64_t n = 1; n < 100; ++n) memory[n] = {true, 5};
    for (size_t i = 0; i < 3; ++i)
        job.maps.push_back(
            pagemap_of(static_cast<pid_t>(i + 2), job.memory[i], job.files.emplace_back()));
    auto shared = SharedPages::open(job.maps);
    ck_assert(shared.has_value());
    while (shared->next())  // without CAP_SYS_ADMIN
        shared->take(std::vector<uint64_t>(3 * SharedPages::block_pages, pagemap::present));
    ck_assert_uint_eq(shared->pages_shared(), 0);
    job.maps[0].entries.push_back(job.maps[0].entries[0]);  // not in order
    ck_assert(!SharedPages::open(job.maps).has_value());
    job.maps[0].entries.pop_back();
    job.maps[0].entries[0].flags = pagemap_parent | pagemap_present;
    ck_assert(!SharedPages::open(job.maps).has_value());
}
END_TEST

START_TEST(a_pagemap_is_written_as_it_is_read) {
    Rng rng(4);
    for (int round = 0; round < 200; ++round) {
        PagemapImage map{
            static_cast<pid_t>(1 + rng.below(100'000)), static_cast<uint32_t>(rng.below(1000)), {}};
        uint64_t at = rng.below(1 << 20);
        for (uint64_t n = rng.below(20); n > 0; --n) {
            const uint64_t pages = 1 + rng.below(uint64_t{1} << rng.below(30));
            map.entries.push_back(
                {at * page_bytes, pages, static_cast<uint32_t>(1 + rng.below(7))});
            at += pages + rng.below(1 << 20);
        }
        const auto read = parse_pagemap(encode_pagemap(map), map.pid);
        ck_assert(read.has_value() && *read == map);
    }
}
END_TEST

// A parent and three children that share memory; the children end with the first word or with their
// parent.
struct Family {
    static constexpr size_t bytes = 16 << 20;
    explicit Family() {
        memory = static_cast<char*>(
            ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        ck_assert(memory != MAP_FAILED);
        ::madvise(memory, bytes, MADV_NOHUGEPAGE);
        for (size_t i = 0; i < bytes; i += 64) memory[i] = static_cast<char>(i / 64 * 7);
        int ready[2];
        ck_assert_int_eq(::pipe(ready), 0);
        for (int n = 0; n < 3; ++n) {
            const pid_t pid = ::fork();
            ck_assert_int_ge(pid, 0);
            if (pid == 0) {
                ::prctl(PR_SET_PDEATHSIG, SIGKILL);
                // its own
                for (size_t i = 0; i < bytes / 4; i += page_bytes) memory[i] = static_cast<char>(n);
                (void)!::write(ready[1], "x", 1);
                for (;;) ::pause();
            }
            pids[pid] = pid;
        }
        for (char word, n = 0; n < 3; ++n) ck_assert_int_eq(::read(ready[0], &word, 1), 1);
        ::close(ready[0]);
        ::close(ready[1]);
    }
    ~Family() {
        for (const auto& [pid, same] : pids) {
            ::kill(pid, SIGKILL);
            ::waitpid(pid, nullptr, 0);
        }
        ::munmap(memory, bytes);
    }
    Family(const Family&) = delete;
    Family& operator=(const Family&) = delete;
    Resident resident() const {
        PidsInside all = pids;
        all[::getpid()] = ::getpid();
        return *resident_of(all);
    }
    char* memory = nullptr;
    std::map<pid_t, pid_t> pids;  // of the children, as FrozenMemory knows them
};

START_TEST(a_reading_of_frozen_memory_leaves_what_is_shared_shared) {
    Family family;
    std::string got(Family::bytes, '\1');
    const Resident before = family.resident();
    // 12 MB four times
    ck_assert_uint_gt(before.anonymous, before.anonymous_proportional + 30 * (Family::bytes / 16));
    for (const auto& [pid, same] : family.pids) {
        const PageRange range{pid, reinterpret_cast<uint64_t>(family.memory),
                              Family::bytes / page_bytes};
        auto memory = FrozenMemory::open({range}, family.pids);
        ck_assert(memory.has_value());
        const Status read = memory->read(range, got.data());
        ck_assert_msg(read.has_value(), "%s", read ? "" : read.error().message.c_str());
        for (size_t i = Family::bytes / 4; i < Family::bytes; i += 64)
            ck_assert_int_eq(got[i], family.memory[i]);
        ck_assert_int_eq(got[64], family.memory[64]);
    }
    const Resident after = family.resident();
    ck_assert_msg(after.anonymous_proportional < before.anonymous_proportional + (256 << 10),
                  "it grew from %lu to %lu kB", before.anonymous_proportional >> 10,
                  after.anonymous_proportional >> 10);
}
END_TEST

START_TEST(resident_memory_is_counted_once_however_many_have_it) {
    const auto one = parse_rollup(
        "1000-2000 ---p 0 0:0 0 [rollup]\nRss: 100 kB\nPss:      26 kB\nPss_Dirty: 1 kB\n"
        "Pss_Anon:  20 kB\nAnonymous:     80 kB\n");
    ck_assert(one.has_value() && (*one == Resident{26 << 10, 80 << 10, 20 << 10}));
    ck_assert_uint_eq(one->shared_max(), 20 << 10);
    const auto older = parse_rollup("x\nPss: 26 kB\nAnonymous: 80 kB\n");  // before Linux 5.2
    ck_assert(older.has_value() && older->shared_max() == 0);
    for (const char* bad :
         {"", "x\nPss: 26 kB\n", "x\nAnonymous: 3 kB\n", "x\nPss: kB\nAnonymous: 3 kB\n"})
        ck_assert(!parse_rollup(bad).has_value());
    ck_assert(!resident_of({}).has_value());
    Family family;
    const Resident all = family.resident();
    ck_assert_uint_ge(all.shared_max(), Family::bytes / 4 * 3);
    ck_assert_uint_le(all.proportional, all.anonymous);
}
END_TEST
}  // namespace

UNIT_SUITE(shared_pages, shared_pages_are_in_the_image_once_and_every_process_gets_its_own_memory,
           pages_without_a_number_are_taken_for_none_that_is_shared,
           a_pagemap_is_written_as_it_is_read,
           a_reading_of_frozen_memory_leaves_what_is_shared_shared,
           resident_memory_is_counted_once_however_many_have_it);
}  // namespace souk
