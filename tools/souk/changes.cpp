// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/souk/changes.hpp"

#include <fcntl.h>

#include <cstdio>

#include "kernel/sys/host/fd.hpp"
#include "kernel/trust/identity.hpp"
#include "tools/souk/configured.hpp"
#include "tools/souk/questions.hpp"

namespace souk {

Rewrite secured(const std::string& path, const std::string& more) {
    Rewrite r{path, config_text(path), {}};
    r.after = without_key(without_key(r.before, "insecure"), "insecure_until");
    if (!more.empty() && !r.after.empty() && !r.after.ends_with('\n')) r.after += '\n';
    r.after += more;
    return r;
}

Status write(const Rewrite& r) {
    if (r.after == r.before) return {};
    TRY(trust::make_private_dir(r.path.substr(0, r.path.rfind('/'))));
    return replace_file(r.path, r.after, 0644, true);
}

Status announce(bool asked, bool restarts, std::vector<std::string> steps, const Rewrite& r,
                const std::string& more, const char* unit) {
    if (r.before.find("insecure") != std::string::npos &&
        r.after.size() < r.before.size() + more.size())
        steps.push_back("take `insecure` out of " + r.path);
    for (size_t at = 0, end = 0; at < more.size(); at = end + 1) {
        end = more.find('\n', at);
        steps.push_back("write into " + r.path + ": " + more.substr(at, end - at));
    }
    if (restarts) steps.push_back(std::string("restart ") + unit + ", if it runs; jobs go on");
    std::puts("souk setup is going to");
    for (const std::string& step : steps) std::printf("  - %s\n", step.c_str());
    std::fflush(stdout);
    if (!asked) return {};
    TRY_ASSIGN(const std::string answer, ask_person("Go on? yes or no", {"yes", "no"}, "yes"));
    return answer == "yes" ? Status{} : fail("nothing is changed");
}

}  // namespace souk
