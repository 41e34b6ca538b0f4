// SPDX-License-Identifier: GPL-2.0-or-later
// Another node sends an image: any bytes are refused or taken, in pieces of any length;
// with a key nothing is taken, as these bytes never hold the right tag; and nothing is written but
// plain files in the directory of the image. Of a manifest: what is taken is written again as it
// was.
#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "checkpoint/stream.hpp"
#include "kernel/base/check.hpp"
#include "kernel/sys/host/fd.hpp"

using namespace souk;

namespace {

const Fd& parent() {
    static const Fd directory = [] {
        static char name[] = "/dev/shm/souk-fuzz-XXXXXX";
        MUST(::mkdtemp(name));
        std::atexit([] {
            std::string command = "rm -rf ";
            command += name;
            (void)!std::system(command.c_str());
        });
        auto opened = open_at(AT_FDCWD, name, O_RDONLY | O_DIRECTORY);
        MUST(opened);
        return std::move(*opened);
    }();
    return directory;
}

bool taken(std::string_view bytes, size_t piece, bool with_key) {
    constexpr uint64_t bytes_max = 1 << 20;
    auto directory = create_image(parent().get(), "image");
    MUST(directory);
    auto writer = ImageWriter::open(directory->get(), bytes_max);
    MUST(writer);
    if (with_key) {
        ImageSeal seal;
        seal.key = std::string(StreamTag::key_bytes, 'k');
        seal.nonce = std::string(StreamTag::nonce_bytes, 'n');
        seal.job = {"n1", 1};
        auto tag = StreamTag::make(seal);
        MUST(tag);
        writer->want_tag(std::move(*tag));
    }
    for (size_t at = 0; at < bytes.size(); at += piece)
        if (!writer->take(bytes.substr(at, piece))) return false;
    uint64_t written = 0;
    const auto names = list_dir(directory->get(), ".");
    MUST(names);
    for (const std::string& name : *names) {
        struct stat st {};
        MUST(::fstatat(directory->get(), name.c_str(), &st, AT_SYMLINK_NOFOLLOW) == 0);
        MUST(S_ISREG(st.st_mode) && valid_image_name(name));
        written += static_cast<uint64_t>(st.st_size);
    }
    MUST(written <= bytes_max);
    return writer->done();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    if (size < 2) return 0;
    const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
    const size_t piece = size_t{data[0]} + 1;
    const bool good = taken(bytes, piece, false);
    MUST(taken(bytes, bytes.size(), false) == good);  // however it is cut
    MUST(!taken(bytes, piece, true));
    if (const auto manifest = decode_manifest(bytes))
        MUST(*decode_manifest(encode_manifest(*manifest)) == *manifest);
    return 0;
}
