// SPDX-License-Identifier: GPL-2.0-or-later
// Finds the CRIU that this machine has, and what is loaded into it.
#include <sys/mman.h>

#include <cerrno>
#include <filesystem>

#include "checkpoint/criu.hpp"
#include "checkpoint/criu_preload.so.h"

namespace souk {
namespace {
constexpr const char* preload_name = "criu_preload.so";

// Sealed: CRIU runs it as root, and has it open beside processes of jobs.
Result<Fd> make_preload() {
    Fd preload(::memfd_create(preload_name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
    constexpr int seals = F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL;
    if (!preload ||
        ::write(preload.get(), criu_preload_so, sizeof criu_preload_so) !=
            ssize_t{sizeof criu_preload_so} ||
        ::fcntl(preload.get(), F_ADD_SEALS, seals) != 0)
        return fail_errno("keep what CRIU is loaded with", errno);
    return preload;
}
}  // namespace

Result<CriuTool> find_criu(const std::string& prefix) {
    TRY_ASSIGN(Fd preload, make_preload());
    std::error_code error;
    const std::string own = prefix + "/usr/sbin/criu";
    for (const auto& dir : std::filesystem::directory_iterator(prefix + "/usr/lib", error))
        for (const auto& file : std::filesystem::directory_iterator(dir.path(), error))
            if (prefix != "/" && file.path().filename().string().starts_with("ld-linux") &&
                ::access(own.c_str(), X_OK) == 0)
                return CriuTool{
                    .command = {file.path().string(), "--library-path", dir.path().string(), own},
                    .preload = std::move(preload)};
    for (const char* path : {"/usr/sbin/criu", "/usr/bin/criu", "/usr/local/sbin/criu"})
        if (::access(path, X_OK) == 0)
            return CriuTool{.command = {path}, .preload = std::move(preload)};
    return fail("no CRIU in " + prefix +
                " or the system: apt install souk-criu, or 'make deps' in a source tree");
}

std::string criu_user_words(const CriuUser& user) {
    std::string words = user.unchecked ? "SOUK_AS=!" : "SOUK_AS=";
    words += std::to_string(user.uid) + ":" + std::to_string(user.gid);
    char before = ':';
    for (const uint32_t group : user.groups) {
        words += before + std::to_string(group);
        before = ',';
    }
    return words;
}

bool has_criu_preload(const Pidfd& criu) {
    const auto file = open_process_file(criu, ProcessFile::maps);
    if (!file) return false;
    const auto maps = read_whole(file->get(), "what CRIU has mapped", 16 << 20);
    return maps && maps->find(std::string("/memfd:") + preload_name) != std::string::npos;
}

}  // namespace souk
