// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/inspect/names.hpp"

#include <algorithm>

#include "checkpoint/expected_files.hpp"
#include "checkpoint/images.hpp"
#include "checkpoint/kept_files.h"
#include "checkpoint/kept_locks.h"
#include "checkpoint/open_files.hpp"
#include "checkpoint/sent_pages.hpp"
#include "kernel/base/number.hpp"
#include "kernel/sys/process/init_protocol.h"

namespace souk::inspect {
namespace {

constexpr std::string_view end_of_name = ".img";

// CRIU criu/image-desc.c, without ".img". There is one of each in an image.
constexpr std::string_view names_of_criu[] = {
    "inventory", "pstree",   "files",       "seccomp",   "sk-queues", "pipes-data", "fifo-data",
    "tty-info",  "tty-data", "remap-fpath", "filelocks", "memfd",     "cgroup",
};
// These have the number of a process, a namespace, a list of files or an inode behind them.
constexpr std::string_view numbered_by_criu[] = {
    "core-",   "ids-",           "mm-",    "fs-",        "fdinfo-",    "pagemap-",   "pages-",
    "timens-", "pagemap-shmem-", "utsns-", "ipcns-var-", "ipcns-shm-", "ipcns-msg-", "ipcns-sem-",
};
constexpr std::string_view numbered_in_hex[] = {"ghost-file-", "tcp-stream-"};

// The last ones are those of the library that is loaded into CRIU, which has their names to itself.
constexpr std::string_view names_of_souk[] = {
    SOUK_RESIDUE_NAME,  SOUK_SHM_NAME,     SOUK_RUN_NAME,        SOUK_TMP_NAME,
    SOUK_AFFINITY_NAME, SOUK_NETWORK_NAME, SOUK_ATTRIBUTES_NAME, SOUK_OPTIONS_NAME,
    SOUK_NOTIFIED_NAME, SOUK_CUT_OFF_NAME, SOUK_KEPT_FILES_NAME, SOUK_LOCKS_NAME,
    open_files_name,    put_back_name,     expected_files_name,  page_file_name,
    frames_file_name,   precopy_file_name, "dirty-rate.img",     "souk-epolls",
    "souk-urgent",      "souk-semaphores", "souk-seals",
};

bool is_number(std::string_view text, int base) {
    constexpr std::string_view digits = "0123456789abcdef";
    const bool plain =
        text.find_first_not_of(digits.substr(0, static_cast<size_t>(base))) == text.npos;
    return plain && (text == "0" || !text.starts_with('0')) &&
           whole_number<uint64_t>(text, base).has_value();
}

}  // namespace

bool is_file_of_a_job(std::string_view name) {
    if (std::ranges::find(names_of_souk, name) != std::end(names_of_souk)) return true;
    if (!name.ends_with(end_of_name)) return false;
    name.remove_suffix(end_of_name.size());
    const auto is_numbered = [name](int base) {
        return [name, base](std::string_view before) {
            return name.starts_with(before) && is_number(name.substr(before.size()), base);
        };
    };
    return std::ranges::find(names_of_criu, name) != std::end(names_of_criu) ||
           std::ranges::any_of(numbered_by_criu, is_numbered(10)) ||
           std::ranges::any_of(numbered_in_hex, is_numbered(16));
}

std::optional<FileKind> question_about(std::string_view name) {
    if (name.starts_with("core-")) return FileKind::core;
    if (name.starts_with("ghost-file-")) return FileKind::ghost;
    if (name.starts_with("ids-")) return FileKind::ids;
    if (name.starts_with("fs-")) return FileKind::fs;
    if (name == "files.img") return FileKind::files;
    if (name == "inventory.img") return FileKind::inventory;
    return std::nullopt;
}

}  // namespace souk::inspect
