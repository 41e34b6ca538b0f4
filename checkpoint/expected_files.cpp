// SPDX-License-Identifier: GPL-2.0-or-later
#include "checkpoint/expected_files.hpp"

#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

#include <cstdio>
#include <set>
#include <string_view>

#include "kernel/sys/host/fd.hpp"
#include "kernel/sys/process/init_protocol.h"

namespace souk {
namespace {

constexpr std::string_view top = SOUK_FILES_ROOT;
constexpr std::string_view deleted = " (deleted)";
constexpr size_t list_bytes_max = 1 << 20;  // agentd/files/expected.hpp
constexpr size_t maps_bytes_max = 16 << 20;

class List {
  public:
    void add(std::string_view path, unsigned flags) {
        if (path.size() <= top.size() + 1 || !path.starts_with(top) || path[top.size()] != '/' ||
            path.ends_with(deleted))
            return;
        char octal[16];
        std::snprintf(octal, sizeof octal, "%o ", flags);
        const std::string line = octal + std::string(path.substr(top.size()));
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

void add_open(const std::string& proc, List& list) {
    const auto fds = list_dir(AT_FDCWD, proc + "fd");
    if (!fds) return;
    char path[PATH_MAX];
    for (const std::string& fd : *fds) {
        const ssize_t length = ::readlink((proc + "fd/" + fd).c_str(), path, sizeof path);
        if (length <= 0 || !std::string_view(path, static_cast<size_t>(length)).starts_with(top))
            continue;
        unsigned flags = 0;
        const auto info = read_file(AT_FDCWD, proc + "fdinfo/" + fd);
        if (info && std::sscanf(info->c_str(), "pos: %*d flags: %o", &flags) == 1)
            list.add({path, static_cast<size_t>(length)}, flags);
    }
}

void add_mapped(const std::string& proc, List& list) {
    const auto table = read_file(AT_FDCWD, proc + "maps", maps_bytes_max);
    if (!table) return;
    for (size_t at = 0; at < table->size();) {
        const size_t end = std::min(table->find('\n', at), table->size());
        const std::string_view line(table->data() + at, end - at);
        at = end + 1;
        if (const size_t path = line.find(top); path != line.npos) list.add_once(line.substr(path));
    }
}

}  // namespace

std::string expected_files(const std::vector<pid_t>& pids) {
    List list;
    for (const pid_t pid : pids) {
        const std::string proc = "/proc/" + std::to_string(pid) + "/";
        add_open(proc, list);
        add_mapped(proc, list);
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
