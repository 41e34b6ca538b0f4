// SPDX-License-Identifier: GPL-2.0-or-later
// Memory to a file of an image and back (checkpoint/page_file.hpp), with this process in the place
// of a frozen job.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <optional>

#include "checkpoint/page_file.hpp"
#include "kernel/base/rng.hpp"
#include "tests/unit/loop_fixture.hpp"
#include "tests/unit/pagemap_image.hpp"
#include "tests/unit/temp_dir.hpp"

using namespace souk;
using namespace souk::unit;

namespace {
constexpr pid_t inside = pagemap_pid;  // what this process is called in the image

// 5 MB of random bytes in pieces of many sizes, with holes between them.
struct Memory {
    static constexpr size_t pages = 2000;
    char* const at = static_cast<char*>(::mmap(nullptr, pages* page_bytes, PROT_READ | PROT_WRITE,
                                               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    std::vector<PageRange> ranges;
    std::string bytes;  // of the ranges, one after the other

    Memory() {
        ck_assert(at != MAP_FAILED);
        Rng rng(5);
        for (size_t i = 0; i + 8 <= pages * page_bytes; i += 8) {
            const uint64_t word = rng.next();
            std::memcpy(at + i, &word, 8);
        }
        for (uint64_t page = 0; page < pages;) {
            const uint64_t n =
                std::min(pages - page, rng.chance(0.2) ? 1 + rng.below(300) : 1 + rng.below(4));
            ranges.push_back({inside, reinterpret_cast<uint64_t>(at) + page * page_bytes, n});
            bytes.append(at + page * page_bytes, n * page_bytes);
            page += n + rng.below(3);
        }
    }
    ~Memory() { ::munmap(at, pages * page_bytes); }
};

ImageFile written(Loop& loop, int directory) {
    std::optional<Result<ImageFile>> file;
    const auto write = PageFileWrite::start(loop, directory, {directory}, {{inside, ::getpid()}},
                                            [&](Result<ImageFile> f) { file = std::move(f); });
    ck_assert_msg(write.has_value(), "%s", write ? "" : write.error().message.c_str());
    UNTIL(loop, file.has_value());
    ck_assert_msg(file->has_value(), "%s", *file ? "" : file->error().message.c_str());
    return **file;
}

// Everything that comes, by address; the error of the end, if any.
std::string read_back(Loop& loop, int directory, const std::string& digest,
                      std::map<uint64_t, std::string>& pages) {
    auto read = PageFileRead::open(loop, *open_at(directory, page_file_name, O_RDONLY),
                                   *lazy_ranges(directory), digest);
    if (!read) return read.error().message;
    std::optional<Status> end;
    (*read)->start(
        [&](const PageRange& r, std::string_view bytes) {
            ck_assert_uint_eq(bytes.size(), r.pages * page_bytes);
            ck_assert(r.pid == inside && pages.emplace(r.start, bytes).second);
            return Status{};
        },
        [&](Status s) { end = std::move(s); });
    UNTIL(loop, end.has_value());
    return *end ? "" : end->error().message;
}
}  // namespace

START_TEST(memory_goes_to_a_file_and_comes_back_page_by_page) {
    const TempDir dir;
    Loop loop = open_loop();
    const Memory memory;
    write_pagemap(dir.fd.get(), memory.ranges);
    const ImageFile file = written(loop, dir.fd.get());
    ck_assert_text(file.name, page_file_name);
    ck_assert_uint_eq(file.bytes, memory.bytes.size());
    ck_assert(*read_file(dir.fd.get(), page_file_name, 64 << 20) == memory.bytes);
    ck_assert_text((*digest_files(dir.fd.get()))[1].digest, file.digest);
    std::map<uint64_t, std::string> pages;
    ck_assert_text(read_back(loop, dir.fd.get(), file.digest, pages), "");
    size_t at = 0;
    for (const auto& [start, bytes] : pages) {
        // NOLINTNEXTLINE(performance-no-int-to-ptr)
        ck_assert(std::memcmp(reinterpret_cast<const char*>(start), bytes.data(), bytes.size()) ==
                  0);
        at += bytes.size();
    }
    ck_assert_uint_eq(at, memory.bytes.size());
}
END_TEST

START_TEST(pages_that_are_waited_for_come_at_once_and_only_where_the_image_has_them) {
    const TempDir dir;
    Loop loop = open_loop();
    const Memory memory;
    write_pagemap(dir.fd.get(), memory.ranges);
    const ImageFile file = written(loop, dir.fd.get());
    const auto read = *PageFileRead::open(loop, *open_at(dir.fd.get(), page_file_name, O_RDONLY),
                                          memory.ranges, file.digest);
    Rng rng(6);
    for (int i = 0; i < 500; ++i) {
        const uint64_t page = rng.below(Memory::pages), wanted = 1 + rng.below(40);
        const uint64_t start = reinterpret_cast<uint64_t>(memory.at) + page * page_bytes;
        uint64_t next = start;
        const auto got =
            read->read({inside, start, wanted}, [&](const PageRange& r, std::string_view bytes) {
                ck_assert_uint_eq(r.start, next);  // without a gap from the first on
                // NOLINTNEXTLINE(performance-no-int-to-ptr)
                ck_assert(std::memcmp(reinterpret_cast<const char*>(next), bytes.data(),
                                      bytes.size()) == 0);
                next += bytes.size();
                return Status{};
            });
        ck_assert(got.has_value() && next <= start + wanted * page_bytes);
        const auto in = [&](uint64_t address) {
            return std::any_of(memory.ranges.begin(), memory.ranges.end(), [&](const PageRange& r) {
                return address >= r.start && address < r.start + r.pages * page_bytes;
            });
        };
        ck_assert(next == start + wanted * page_bytes || !in(next));
    }
    ck_assert(read->read({inside + 1, memory.ranges[0].start, 1},
                         [](const PageRange&, std::string_view) -> Status {
                             return fail_errno("none is there", ENOENT);
                         })
                  .has_value());
}
END_TEST

START_TEST(a_file_that_is_not_what_the_manifest_says_is_refused) {
    const TempDir dir;
    Loop loop = open_loop();
    const Memory memory;
    write_pagemap(dir.fd.get(), memory.ranges);
    const ImageFile file = written(loop, dir.fd.get());
    std::map<uint64_t, std::string> pages;
    const Fd out = *open_at(dir.fd.get(), page_file_name, O_RDWR);
    char byte = 0;
    ck_assert(::pread(out.get(), &byte, 1, 1 << 20) == 1);
    byte ^= 1;
    ck_assert(::pwrite(out.get(), &byte, 1, 1 << 20) == 1);
    ck_assert_text(read_back(loop, dir.fd.get(), file.digest, pages),
                   "image file souk-pages: damaged");
    pages.clear();
    byte ^= 1;
    ck_assert(::pwrite(out.get(), &byte, 1, 1 << 20) == 1);
    ck_assert_text(read_back(loop, dir.fd.get(), file.digest, pages), "");
    ck_assert(::ftruncate(out.get(), 4096) == 0);
    ck_assert_text(read_back(loop, dir.fd.get(), file.digest, pages),
                   "image file souk-pages: 4096 bytes, not " + std::to_string(memory.bytes.size()));
}
END_TEST

START_TEST(an_encrypted_file_gives_the_same_pages_and_none_of_a_damaged_chunk) {
    const TempDir dir;
    Loop loop = open_loop();
    const Memory memory;
    write_pagemap(dir.fd.get(), memory.ranges);
    const DiskKey key = *DiskKey::make(std::string(DiskKey::secret_bytes, 's'), {"n1", 1}, {2});
    std::optional<Result<ImageFile>> file;
    const auto write =
        PageFileWrite::start(loop, dir.fd.get(), {dir.fd.get(), key}, {{inside, ::getpid()}},
                             [&](Result<ImageFile> f) { file = std::move(f); });
    UNTIL(loop, file.has_value());
    ck_assert(file->has_value());
    const auto open = [&] {
        return *PageFileRead::open(
            loop,
            *EncryptedReader::open(*open_at(dir.fd.get(), page_file_name, O_RDONLY), **file, key),
            memory.ranges);
    };
    std::string all;
    const auto read = [&] {
        const auto pages = open();
        std::optional<Status> end;
        all.clear();
        const auto put = [&](const PageRange&, std::string_view bytes) {
            all += bytes;
            return Status{};
        };
        pages->start(put, [&](Status s) { end = std::move(s); });
        UNTIL(loop, end.has_value());
        return *end ? "" : end->error().message;
    };
    ck_assert_text(read(), "");
    ck_assert(all == memory.bytes);
    const std::string stored = *read_file(dir.fd.get(), page_file_name, 64 << 20);
    ck_assert_uint_eq(stored.size(), ChunkCipher::stored_bytes(memory.bytes.size()));
    for (size_t at = 0; at < memory.bytes.size(); at += page_bytes)
        ck_assert(stored.find(memory.bytes.substr(at, 16)) == std::string::npos);

    constexpr off_t chunk = ChunkCipher::chunk_bytes;
    const Fd out = *open_at(dir.fd.get(), page_file_name, O_RDWR);
    const char byte = static_cast<char>(stored[3 * chunk + 9] ^ 1);
    ck_assert(::pwrite(out.get(), &byte, 1, 3 * chunk + 9) == 1);
    ck_assert_text(read(), "image file souk-pages: damaged");
    ck_assert(all == memory.bytes.substr(0, 3 * chunk));
    std::string got;
    const auto page = open();
    const PageRange& first = memory.ranges.front();
    ck_assert(page->read({inside, first.start, 1},
                         [&](const PageRange&, std::string_view bytes) {
                             got += bytes;
                             return Status{};
                         })
                  .has_value());
    ck_assert(got == memory.bytes.substr(0, page_bytes));
}
END_TEST

START_TEST(what_cannot_be_read_or_written_is_said_and_an_end_in_the_middle_is_silent) {
    const TempDir dir;
    Loop loop = open_loop();
    Memory memory;
    write_pagemap(dir.fd.get(), memory.ranges);
    std::optional<Result<ImageFile>> file;
    const auto done = [&](Result<ImageFile> f) { file = std::move(f); };
    const auto other_process =
        PageFileWrite::start(loop, dir.fd.get(), {dir.fd.get()}, {{inside + 1, ::getpid()}}, done);
    ck_assert_text(other_process.error().message, "process 7 of the image is not there");
    {
        const auto dropped =
            PageFileWrite::start(loop, dir.fd.get(), {dir.fd.get()}, {{inside, ::getpid()}}, done);
        ck_assert(dropped.has_value());
        ck_assert(loop.run_until([] { return false; }, Nanos::from_ms(1)).has_value());
    }
    ck_assert(loop.run_until([] { return false; }, Nanos::from_ms(20)).has_value());
    ck_assert(!file);
    ck_assert(::unlinkat(dir.fd.get(), page_file_name, 0) == 0);
    ck_assert(::munmap(memory.at + 64 * page_bytes, 64 * page_bytes) == 0);
    const auto holes =
        PageFileWrite::start(loop, dir.fd.get(), {dir.fd.get()}, {{inside, ::getpid()}}, done);
    ck_assert(holes.has_value());
    UNTIL(loop, file.has_value());
    ck_assert(!file->has_value() &&
              file->error().message.starts_with("read the memory of process "));
}
END_TEST

UNIT_SUITE(page_file, memory_goes_to_a_file_and_comes_back_page_by_page,
           pages_that_are_waited_for_come_at_once_and_only_where_the_image_has_them,
           a_file_that_is_not_what_the_manifest_says_is_refused,
           an_encrypted_file_gives_the_same_pages_and_none_of_a_damaged_chunk,
           what_cannot_be_read_or_written_is_said_and_an_end_in_the_middle_is_silent);
