// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/srun/summary.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include "kernel/sys/host/fd.hpp"
#include "tools/common/table.hpp"

namespace souk::tools {

int exit_status(const wire::Exit& exit, int cancel_signal) {
    if (!exit.why.empty() && cancel_signal) return 128 + cancel_signal;
    if (!exit.why.empty() && exit.cancelled) return 255;
    if (!exit.why.empty() && exit.wait_status == 0) return 1;
    if (WIFSIGNALED(exit.wait_status)) return 128 + WTERMSIG(exit.wait_status);
    return WEXITSTATUS(exit.wait_status);
}

std::optional<Money> cost_of_summary(const std::string& json) {
    const auto summary = parse_object({json});
    const auto cost = summary ? parse_money(field(*summary, "cost")) : fail("");
    return cost ? std::optional(*cost) : std::nullopt;
}

Status check_summary_file(const std::string& file) {
    if (file.empty()) return {};
    TRY(open_at(AT_FDCWD, file, O_WRONLY | O_CREAT, 0666));
    return {};
}

Status write_summary(const std::string& file, const std::string& json) {
    const std::string line = json + "\n";
    if (file.empty()) return write_all(STDERR_FILENO, line, "stderr");
    return create_file(AT_FDCWD, file, line, O_TRUNC, 0666);
}

}  // namespace souk::tools
