// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/store/mounts.hpp"

#include <libmount/libmount.h>

#include <cstdio>
#include <memory>

#include "kernel/sys/host/fd.hpp"

namespace souk {
namespace {

constexpr size_t mountinfo_bytes_max = 16 << 20;

std::string text_of(const char* text) { return text ? text : ""; }

}  // namespace

std::vector<Mount> parse_mounts(const std::string& mountinfo) {
    std::vector<Mount> mounts;
    if (mountinfo.empty()) return mounts;
    const std::unique_ptr<FILE, int (*)(FILE*)> file(
        ::fmemopen(const_cast<char*>(mountinfo.data()), mountinfo.size(), "r"),
        [](FILE* f) { return ::fclose(f); });
    const std::unique_ptr<libmnt_table, void (*)(libmnt_table*)> table(::mnt_new_table(),
                                                                       ::mnt_unref_table);
    const std::unique_ptr<libmnt_iter, void (*)(libmnt_iter*)> at(::mnt_new_iter(MNT_ITER_FORWARD),
                                                                  ::mnt_free_iter);
    if (!file || !table || !at) return mounts;
    // go on
    (void)::mnt_table_set_parser_errcb(table.get(),
                                       [](libmnt_table*, const char*, int) { return 1; });
    (void)::mnt_table_parse_stream(table.get(), file.get(), "mountinfo");
    libmnt_fs* fs = nullptr;
    while (::mnt_table_next_fs(table.get(), at.get(), &fs) == 0)
        mounts.push_back({text_of(::mnt_fs_get_target(fs)), text_of(::mnt_fs_get_fstype(fs)),
                          text_of(::mnt_fs_get_fs_options(fs)), ::mnt_fs_get_devno(fs),
                          text_of(::mnt_fs_get_srcpath(fs)), text_of(::mnt_fs_get_root(fs))});
    return mounts;
}

Result<std::vector<Mount>> own_mounts() {
    TRY_ASSIGN(const std::string text,
               read_file(AT_FDCWD, "/proc/self/mountinfo", mountinfo_bytes_max));
    return parse_mounts(text);
}

}  // namespace souk
