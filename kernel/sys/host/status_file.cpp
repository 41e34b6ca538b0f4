// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/host/status_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "kernel/base/text.hpp"
#include "kernel/base/version.hpp"
#include "kernel/sys/host/clock.hpp"
#include "kernel/sys/host/fd.hpp"

namespace souk {

namespace {
constexpr std::string_view plain =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:,@%+-";

std::string as_sh_word(std::string_view value) {
    value = value.substr(0, status_value_bytes_max);
    if (value.find_first_not_of(plain) == std::string_view::npos) return std::string(value);
    std::string quoted = "'";
    for (const char c : blank_controls(value)) {
        if (c == '\'')
            quoted += "'\\''";
        else
            quoted += c;
    }
    return quoted + "'";
}
}  // namespace

std::string status_text(const std::vector<StatusLine>& lines) {
    std::string text;
    for (const StatusLine& line : lines) text += line.name + "=" + as_sh_word(line.value) + "\n";
    return text;
}

StatusFile::StatusFile(Loop& loop, Log& log, std::string_view daemon, std::string path, Nanos every,
                       Collect collect, Put put)
    : loop_(loop),
      log_(log),
      daemon_(daemon),
      path_(std::move(path)),
      every_(every),
      since_(Loop::now()),
      collect_(std::move(collect)),
      put_(std::move(put)) {
    write();
}

StatusFile::~StatusFile() { (void)put_(path_, {}); }

void StatusFile::write() {
    std::vector<StatusLine> lines = {{"format", 1},
                                     {"daemon", daemon_},
                                     {"version", version()},
                                     {"pid", ::getpid()},
                                     {"time", unix_now().ns / 1'000'000'000},
                                     {"up_s", (Loop::now() - since_).ns / 1'000'000'000}};
    const std::vector<StatusLine> more = collect_();
    lines.insert(lines.end(), more.begin(), more.end());
    const Status written = put_(path_, status_text(lines));
    if (!written && !trouble_)
        log_.warning("the status file is not written until this is mended",
                     {{"WHY", written.error()}});
    if (written && trouble_) log_.info("the status file is written again", {{"file", path_}});
    trouble_ = !written;
    timer_ = loop_.after(every_, [this] { write(); });
}

Status put_status_file(const std::string& path, std::string_view text) {
    if (text.empty()) return ::unlink(path.c_str()) == 0 ? Status{} : fail_errno(path, errno);
    const std::string temporary = path + ".new";
    ::unlink(temporary.c_str());
    Status written = create_file(AT_FDCWD, temporary, text, O_EXCL, 0644);
    if (written && ::rename(temporary.c_str(), path.c_str()) != 0)
        written = fail_errno("rename " + temporary, errno);
    if (!written) ::unlink(temporary.c_str());
    return written;
}

}  // namespace souk
