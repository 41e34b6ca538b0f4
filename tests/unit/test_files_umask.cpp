// SPDX-License-Identifier: GPL-2.0-or-later
// A file is made with the umask of the process that makes it. The client puts the umask into the
// request, and servers read it, in versions that know it and in versions that do not.
#include <algorithm>
#include <vector>

#include "agentd/files/session.hpp"
#include "agentd/files/umask.hpp"
#include "tests/unit/unit.hpp"

namespace souk::files {
namespace {

template <class T>
Bytes request(uint32_t opcode, const T& in) {
    Bytes bytes;
    fuse_in_header head{};
    head.len = sizeof head + sizeof in + 2;
    head.opcode = opcode;
    put(bytes, head);
    put(bytes, in);
    bytes.insert(bytes.end(), {'n', 0});
    return bytes;
}

template <class T>
T in_of(const Bytes& bytes) {
    T in{};
    std::memcpy(&in, bytes.data() + sizeof(fuse_in_header), sizeof in);
    return in;
}

// The modes with which servers make the file: an older server takes the mode as it comes, and a
// newer one finds the mode that was asked for.
struct Made {
    uint32_t by_older, asked, umask;
    bool operator==(const Made&) const = default;
};

template <class T>
Made made(uint32_t opcode, T in, uint32_t mode, uint32_t umask) {
    in.mode = mode;
    in.umask = umask;
    Bytes bytes = request(opcode, in);
    mask_mode(bytes.data(), bytes.size());
    const Bytes once = bytes;
    mask_mode(bytes.data(), bytes.size());  // as the next client does, if this one dies
    ck_assert(bytes == once && bytes.size() == request(opcode, in).size());
    const T after = in_of<T>(bytes);
    return {after.mode, mode_asked(after.mode, after.umask), after.umask & umask_bits};
}

START_TEST(a_mode_is_masked_on_its_way_and_what_was_asked_for_is_told) {
    for (const uint32_t mode : {0666U, 0777U, 0600U, 01777U, 06755U, 0U})
        for (const uint32_t umask : {0U, 022U, 077U, 0777U}) {
            const Made wanted{mode & ~umask, mode, umask};
            ck_assert(made(FUSE_MKDIR, fuse_mkdir_in{}, mode, umask) == wanted);
            ck_assert(made(FUSE_MKNOD, fuse_mknod_in{}, mode, umask) == wanted);
            ck_assert(made(FUSE_CREATE, fuse_create_in{}, mode, umask) == wanted);
            ck_assert(made(FUSE_TMPFILE, fuse_create_in{}, mode, umask) == wanted);
        }
}
END_TEST

START_TEST(a_request_that_makes_nothing_or_is_cut_short_stays_as_it_is) {
    fuse_mkdir_in in{0777, 022};
    for (const uint32_t opcode : {FUSE_OPEN, FUSE_SETATTR, FUSE_LOOKUP, FUSE_WRITE}) {
        Bytes bytes = request(opcode, in);
        const Bytes before = bytes;
        mask_mode(bytes.data(), bytes.size());
        ck_assert(bytes == before);
    }
    for (const uint32_t opcode : {FUSE_MKDIR, FUSE_MKNOD, FUSE_CREATE, FUSE_TMPFILE}) {
        Bytes bytes = request(opcode, in);
        for (size_t size = 0; size < sizeof(fuse_in_header) + sizeof in; ++size) {
            const Bytes before = bytes;
            mask_mode(bytes.data(), size);
            ck_assert(bytes == before);
        }
    }
}
END_TEST

START_TEST(what_an_older_client_or_kernel_says_counts_as_it_stands) {
    ck_assert(mode_asked(0644, 022) == 0644);  // masked by its kernel
    ck_assert(mode_asked(S_IFDIR | 0777, 0) == 0777);
}
END_TEST

}  // namespace
}  // namespace souk::files

namespace souk {
using namespace souk::files;
UNIT_SUITE(files_umask, a_mode_is_masked_on_its_way_and_what_was_asked_for_is_told,
           a_request_that_makes_nothing_or_is_cut_short_stays_as_it_is,
           what_an_older_client_or_kernel_says_counts_as_it_stands);
}  // namespace souk
