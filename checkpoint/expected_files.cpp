// SPDX-License-Identifier: GPL-2.0-or-later
#include "checkpoint/expected_files.hpp"

#include <fcntl.h>

#include <cstdio>
#include <set>
#include <string_view>

#include "kernel/sys/host/fd.hpp"
#include "kernel/sys/process/init_protocol.h"

namespace souk {
namespace {

constexpr std::string_view served_top = SOUK_FILES_ROOT;
constexpr std::string_view deleted = " (deleted)";
constexpr size_t list_bytes_max = 1 << 20;  // agentd/files/expected.hpp

class List {
  public:
    void add(std::string_view path, unsigned flags) {
        if (path.size() <= served_top.size() + 1 || !path.starts_with(served_top) ||
            path[served_top.size()] != '/' || path.ends_with(deleted))
            return;
        char octal[16];
        std::snprintf(octal, sizeof octal, "%o ", flags);
        const std::string line = octal + std::string(path.substr(served_top.size()));
        if (text_.size() + line.size() >= list_bytes_max) return;
        text_.append(line).push_back('\0');
    }
    // A library is mapped in several pieces, and by many processes.
    void add_once(std::string_view path) {
        if (mapped_.insert(std::string(path)).second) add(path, O_RDONLY);
    }
    std::string text() && { return std::move(text_); }

  private:
    std::string text_;
    std::set<std::string> mapped_;
};

}  // namespace

std::string expected_files(const PidsInside& pids, const LookAt& look) {
    const auto seen = look(pids, {.infos = true, .maps = true, .runs = true});
    if (!seen) return {};
    List list;
    for (const SeenProcess& process : *seen) {
        for (const SeenFile& f : process.files) list.add(f.target, f.flags);
        for (const MappedRange& range : mapped_ranges(process.maps))
            if (const size_t path = range.file.find(served_top); path != range.file.npos)
                list.add_once(range.file.substr(path));
    }
    return std::move(list).text();
}

void save_expected_files(int image, const std::string& list) {
    if (!list.empty()) (void)create_file(image, expected_files_name, list);
}

std::string read_expected_files(int image) {
    return read_file(image, expected_files_name, list_bytes_max).value_or("");
}

}  // namespace souk
