// SPDX-License-Identifier: GPL-2.0-or-later
// A hostile guest asks for files of a home: a list of requests, each an opcode, the file that
// it is about (the top, or one of an earlier answer) and a body of any bytes. Each is answered by
// one whole message, and what lies beside the exported directory is as it was.
#include <fcntl.h>
#include <linux/fuse.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "agentd/files/session.hpp"
#include "agentd/files/talk.hpp"

using namespace souk;
using namespace souk::files;

namespace {

struct Place {
    std::string top, shared;
    Place() {
        char name[] = "/tmp/souk-fuzz-files-XXXXXX";
        if (!::mkdtemp(name)) std::abort();
        top = name;
        shared = top + "/shared";
        ::signal(SIGXFSZ, SIG_IGN);
        const rlimit small{1 << 20, 1 << 20};
        ::setrlimit(RLIMIT_FSIZE, &small);
        if (::symlink("/etc", (top + "/beside").c_str()) != 0) std::abort();
    }
    ~Place() { std::filesystem::remove_all(top); }
};

void check_answer(const Bytes& out, uint32_t opcode) {
    if (out.empty() && (opcode == FUSE_FORGET || opcode == FUSE_BATCH_FORGET ||
                        opcode == FUSE_INTERRUPT || opcode == FUSE_DESTROY))
        return;
    fuse_out_header head{};
    if (out.size() < sizeof head) std::abort();
    std::memcpy(&head, out.data(), sizeof head);
    if (head.len != out.size() || head.error > 0 || head.error < -4095) std::abort();
    if (head.error != 0 && out.size() != sizeof head) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    static const Place place;
    Talk talk;  // the same bytes as a stream
    for (size_t at = 0; at < size;) {
        uint8_t* room = talk.room();
        const size_t part = std::min(talk.room_bytes(), size - at);
        std::memcpy(room, data + at, part);
        talk.took(part);
        at += part;
        if (!talk.next()) break;
    }
    std::filesystem::remove_all(place.shared);
    std::filesystem::create_directory(place.shared);
    auto tree = open_export(place.shared, {});
    if (!tree) std::abort();
    Session session(*tree, {.fds_max = 16, .open_max = 16, .nodes_max = 64});
    std::vector<uint64_t> known = {FUSE_ROOT_ID};
    for (size_t at = 0, requests = 0; at + 4 <= size && requests < 64; ++requests) {
        const uint32_t opcode = data[at] % 53;
        const uint64_t node = known[data[at + 1] % known.size()];
        const size_t body = std::min<size_t>(data[at + 2] | (data[at + 3] & 1) << 8, size - at - 4);
        fuse_in_header head{};
        head.len = static_cast<uint32_t>(sizeof head + body);
        head.opcode = opcode;
        head.nodeid = node;
        Bytes request;
        put(request, head);
        request.insert(request.end(), data + at + 4, data + at + 4 + body);
        at += 4 + body;
        Bytes out;
        session.handle(request, out);
        check_answer(out, opcode);
        fuse_entry_out entry{};
        if ((opcode == FUSE_LOOKUP || opcode == FUSE_MKDIR || opcode == FUSE_CREATE) &&
            out.size() >= sizeof(fuse_out_header) + sizeof entry) {
            std::memcpy(&entry, out.data() + sizeof(fuse_out_header), sizeof entry);
            if (entry.nodeid != 0) known.push_back(entry.nodeid);
        }
    }
    struct stat st {};
    if (::lstat((place.top + "/beside").c_str(), &st) != 0 || !S_ISLNK(st.st_mode)) std::abort();
    return 0;
}
