// SPDX-License-Identifier: GPL-2.0-or-later
// The client of a mount tells its kernel which files have changed, and when. A pipe stands for the
// kernel.
#include <fcntl.h>
#include <linux/fuse.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "agentd/files/held_answers.hpp"
#include "agentd/files/notices.hpp"
#include "agentd/files/talk.hpp"
#include "tests/unit/unit.hpp"

namespace souk::files {
namespace {

struct Kernel {
    Pipe pipe = std::move(*make_pipe());
    Fd file = std::move(*Slots::make());
    Slots requests = std::move(*Slots::open(file.get()));
    int looked = 0;
    Notices notices{pipe.write_end.get(), requests, [this] {
                        ++looked;
                        return Status{};
                    }};

    Kernel() { (void)::fcntl(pipe.read_end.get(), F_SETFL, O_NONBLOCK); }
    uint32_t asks(uint32_t opcode, uint64_t node) {
        fuse_in_header head{};
        head.len = sizeof head;
        head.opcode = opcode;
        head.nodeid = node;
        const auto n = static_cast<uint32_t>(requests.find_ready());
        requests.begin_reading(n);
        std::memcpy(requests.data(n), &head, sizeof head);
        const uint32_t at = requests.has_read(n, sizeof head);
        requests.take(at, 0);
        return at;
    }
    // The nodes whose attributes it was told to forget.
    std::vector<uint64_t> told() {
        struct {
            fuse_out_header head;
            fuse_notify_inval_inode_out of;
        } notice{};
        std::vector<uint64_t> nodes;
        while (::read(pipe.read_end.get(), &notice, sizeof notice) == sizeof notice) {
            ck_assert(notice.head.unique == 0 && notice.head.error == FUSE_NOTIFY_INVAL_INODE);
            ck_assert(notice.of.off == -1);
            nodes.push_back(notice.of.ino);
        }
        return nodes;
    }
};

Bytes opened(uint64_t fh) {
    fuse_out_header head{};
    fuse_open_out out{};
    out.fh = fh;
    Bytes bytes(sizeof head + sizeof out);
    std::memcpy(bytes.data(), &head, sizeof head);
    std::memcpy(bytes.data() + sizeof head, &out, sizeof out);
    return bytes;
}

fuse_open_out open_of(ByteView answer) {
    fuse_open_out out{};
    std::memcpy(&out, answer.data() + sizeof(fuse_out_header), sizeof out);
    return out;
}

}  // namespace

START_TEST(a_notice_waits_for_the_reads_of_its_file_that_are_on_their_way) {
    Kernel kernel;
    const uint32_t read = kernel.asks(FUSE_READ, 5);
    const uint32_t look = kernel.asks(FUSE_GETATTR, 7);
    for (const uint64_t node : {5, 6, 7}) kernel.notices.changed(node);
    ck_assert(*kernel.notices.tell());
    ck_assert(kernel.told() == (std::vector<uint64_t>{6, 7}));
    ck_assert(kernel.notices.is_waited_for(5) && !kernel.notices.is_waited_for(6));
    ck_assert_int_eq(kernel.looked, 1);  // what the kernel had asked for and nobody had taken

    kernel.requests.drop(look);
    ck_assert(*kernel.notices.tell() && kernel.told().empty());
    kernel.requests.drop(read);
    ck_assert(*kernel.notices.tell());
    ck_assert(kernel.told() == std::vector<uint64_t>{5} && !kernel.notices.is_waited_for(5));

    ck_assert(*kernel.notices.tell());  // nothing is to be told: nobody looks
    ck_assert_int_eq(kernel.looked, 3);
}
END_TEST

START_TEST(a_read_that_its_caller_has_given_up_is_not_waited_for) {
    Kernel kernel;
    const uint32_t read = kernel.asks(FUSE_READ, 5);
    kernel.requests.at(read).dropped = Slot::ended;
    kernel.notices.changed(5);
    ck_assert(*kernel.notices.tell() && kernel.told() == std::vector<uint64_t>{5});
}
END_TEST

START_TEST(what_goes_wrong_as_requests_are_taken_is_told) {
    Kernel kernel;
    Notices notices(kernel.pipe.write_end.get(), kernel.requests,
                    []() -> Status { return fail_errno("read", EIO); });
    ck_assert(*notices.tell());
    notices.changed(5);
    ck_assert_int_eq(notices.tell().error().code, EIO);
}
END_TEST

START_TEST(an_open_is_answered_when_the_kernel_was_told_or_reads_go_by_no_length) {
    HeldAnswers held;
    std::vector<std::pair<uint32_t, uint32_t>> given;  // slot, flags
    uint64_t waited_for = 0;
    const auto give = [&](int64_t now_ns) {
        return held.give(
            now_ns, [&](uint64_t node) { return node == waited_for; },
            [&](uint32_t slot, ByteView answer) {
                given.emplace_back(slot, open_of(answer).open_flags);
                return Status{};
            });
    };
    held.hold(1, 5, opened(11), 0);
    held.hold(2, 6, opened(12), 0);
    held.hold(3, 5, opened(13), 0);
    held.drop(3);
    waited_for = 5;
    ck_assert(give(1) && held.some());
    ck_assert(given == (std::vector<std::pair<uint32_t, uint32_t>>{{2, 0}}));
    ck_assert(give(HeldAnswers::longest_ns - 1) && held.some());
    ck_assert(give(HeldAnswers::longest_ns) && !held.some());
    ck_assert(given.back() == (std::pair<uint32_t, uint32_t>{1, FOPEN_DIRECT_IO}));
    // A stream that was made anew brings the answers again.
    held.hold(1, 5, opened(11), 0);
    held.drop_all();
    ck_assert(give(HeldAnswers::longest_ns) && given.size() == 2 && !held.some());
}
END_TEST

}  // namespace souk::files

using namespace souk::files;
UNIT_SUITE(files_notices, a_notice_waits_for_the_reads_of_its_file_that_are_on_their_way,
           a_read_that_its_caller_has_given_up_is_not_waited_for,
           what_goes_wrong_as_requests_are_taken_is_told,
           an_open_is_answered_when_the_kernel_was_told_or_reads_go_by_no_length);
