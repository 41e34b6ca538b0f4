// SPDX-License-Identifier: GPL-2.0-or-later
// A home tells the contents of programs that it has open for a job.
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "agentd/files/contents.hpp"
#include "tests/unit/temp_dir.hpp"
#include "tests/unit/unit.hpp"

namespace souk::files {
namespace {

using unit::TempDir;

// The state of a file whose inode seems to have changed long ago.
struct stat old_stat(int fd) {
    struct stat st {};
    ck_assert(::fstat(fd, &st) == 0);
    return st;
}

struct Program {
    TempDir dir;
    Fd fd;
    struct stat st {};
    explicit Program(size_t bytes) {
        const std::string path = dir.write("program", std::string(bytes, 'x'));
        fd = *open_at(AT_FDCWD, path, O_RDONLY);
        st = old_stat(fd.get());
    }
    void settle() {
        for (struct timespec now{};; ::usleep(100'000)) {
            ::clock_gettime(CLOCK_REALTIME_COARSE, &now);
            if (now.tv_sec > st.st_ctim.tv_sec + 2) return;
        }
    }
};

ContentId id_of(const Prove& prove, const std::string& text) {
    ContentHash hash(prove);
    hash.update({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
    return hash.finish();
}

START_TEST(a_content_is_told_with_a_proof_by_the_nonce_once_it_is_read) {
    Program big((2 << 20) + 5), small(5000), tiny(100);
    big.settle(), small.settle();
    Prove one, other;
    one.nonce[0] = 1;
    Contents contents;
    contents.opened(7, small.fd.get(), small.st);  // nobody asked
    ck_assert(contents.take_ready().empty());
    contents.begin(one);
    contents.opened(7, small.fd.get(), small.st);
    contents.opened(8, big.fd.get(), big.st);
    contents.opened(9, tiny.fd.get(), tiny.st);
    auto ready = contents.take_ready();
    ck_assert_uint_eq(ready.size(), 1);
    ck_assert(ready[0].node == 7 && ready[0].id == id_of(one, std::string(5000, 'x')));
    ck_assert(ready[0].id.digest == id_of(other, std::string(5000, 'x')).digest);
    ck_assert(ready[0].id.proof != id_of(other, std::string(5000, 'x')).proof);
    ck_assert(ready[0].mtime_s == static_cast<uint64_t>(small.st.st_mtim.tv_sec));
    int slices = 1;
    while (contents.work()) ++slices;
    ck_assert_int_eq(slices, 3);
    ready = contents.take_ready();
    ck_assert(ready.size() == 1 && ready[0].node == 8 && ready[0].id.size == (2 << 20) + 5);
    contents.opened(8, big.fd.get(), big.st);  // is known
    ck_assert_uint_eq(contents.take_ready().size(), 1);
    contents.begin(other);  // another store
    contents.opened(8, big.fd.get(), big.st);
    ck_assert(contents.take_ready().empty() && contents.work());
}
END_TEST

START_TEST(what_is_expected_is_read_ahead_and_told_with_its_open) {
    Program big((2 << 20) + 5), small(5000), other((3 << 20) + 1);
    big.settle(), small.settle(), other.settle();
    Contents contents;
    contents.expect(big.fd.get(), big.st);  // nobody asked
    ck_assert(!contents.work());
    contents.begin(Prove{});
    for (const Program* p : {&big, &small, &other, &big}) contents.expect(p->fd.get(), p->st);
    ck_assert(contents.work());
    contents.opened(9, other.fd.get(), other.st);  // while it waits for its turn: it is told then
    ck_assert(contents.take_ready().empty());
    while (contents.work()) {
    }
    auto ready = contents.take_ready();
    ck_assert(ready.size() == 1 && ready[0].node == 9);
    contents.opened(7, big.fd.get(), big.st);
    contents.opened(8, small.fd.get(), small.st);
    ready = contents.take_ready();
    ck_assert(ready.size() == 2 && ready[0].node == 7 && ready[1].node == 8);
    ck_assert(ready[0].id == id_of(Prove{}, std::string((2 << 20) + 5, 'x')));
    contents.expect(big.fd.get(), big.st);  // is known
    ck_assert(!contents.work());
}
END_TEST

START_TEST(what_is_open_when_the_store_is_ready_is_told_in_its_turn) {
    Program small(5000), next(6000);
    next.settle(), small.settle();
    Contents contents;
    contents.opened(7, small.fd.get(), small.st);  // nobody could be told
    contents.begin(Prove{});
    contents.expect(small.fd.get(), small.st, 7);
    contents.expect(next.fd.get(), next.st);  // of another session
    ck_assert(contents.take_ready().empty());
    while (contents.work()) {
    }
    const auto ready = contents.take_ready();
    ck_assert(ready.size() == 1 && ready[0].node == 7 && ready[0].id.size == 5000);
}
END_TEST

START_TEST(a_file_that_was_just_written_or_changes_meanwhile_is_not_told) {
    Program fresh(5000), changing(3 << 20);
    Contents contents;
    contents.begin(Prove{});
    contents.opened(7, fresh.fd.get(), fresh.st);
    ck_assert(contents.take_ready().empty() && !contents.work());
    changing.settle();
    contents.opened(8, changing.fd.get(), changing.st);
    ck_assert(contents.work());
    (void)changing.dir.write("program", std::string(3 << 20, 'y'));
    while (contents.work()) {
    }
    ck_assert(contents.take_ready().empty());
}
END_TEST

}  // namespace
}  // namespace souk::files

using namespace souk::files;
UNIT_SUITE(files_contents, a_content_is_told_with_a_proof_by_the_nonce_once_it_is_read,
           what_is_open_when_the_store_is_ready_is_told_in_its_turn,
           what_is_expected_is_read_ahead_and_told_with_its_open,
           a_file_that_was_just_written_or_changes_meanwhile_is_not_told);
