// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/souk/doctor_trust.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "kernel/base/text.hpp"
#include "kernel/base/units.hpp"
#include "kernel/sys/host/clock.hpp"
#include "kernel/sys/host/fd.hpp"
#include "kernel/sys/host/installation.hpp"
#include "kernel/trust/identity.hpp"
#include "kernel/trust/verify.hpp"
#include "tools/souk/configured.hpp"
#include "tools/souk/doctor_daemons.hpp"
#include "tools/souk/join.hpp"

namespace souk {
namespace {

constexpr Nanos soon = Nanos::from_s(86'400), authority_soon = Nanos::from_s(90 * 86'400),
                clock_tolerance = Nanos::from_s(60);

Need trust_need(std::string name, std::string use, const std::string& wrong,
                const std::string& good, const std::string& mend) {
    const bool met = wrong.empty();
    return {std::move(name), std::move(use), false, met, met ? good : wrong, met ? "" : mend};
}

// The doctor examines a daemon that runs here by these.
struct ExaminedDaemon {
    std::string program, config, identity, renew;
};

std::string mode_trouble(const std::string& dir) {
    struct stat st {};
    if (::stat(dir.c_str(), &st) == 0 && (st.st_mode & 077) != 0)
        return dir + " can be entered by others";
    for (const char* file : {"/key.pem", "/issuing.key"})
        if (::stat((dir + file).c_str(), &st) == 0 && (st.st_mode & 077) != 0)
            return dir + file + " can be read by others";
    return {};
}

std::string date_trouble(const trust::Certificate& c, Nanos now, Nanos before_end) {
    if (now < c.begins())
        return "begins " + trust::date_text(c.begins()) + ", in " + span_text(c.begins() - now) +
               ": this machine's clock or the market's is wrong";
    if (now >= c.ends())
        return "ended " + trust::date_text(c.ends()) + ", " + span_text(now - c.ends()) + " ago";
    if (c.ends() - now < before_end) return "ends soon, " + trust::date_text(c.ends());
    return {};
}

void examine_identity(const ExaminedDaemon& d, std::vector<Need>& needs) {
    const std::string modes = mode_trouble(d.identity);
    needs.push_back(trust_need(d.program + " files", "keys are its own", modes,
                               d.identity + " is its owner's alone", "chmod -R go= " + d.identity));
    auto identity = trust::load_identity(d.identity);
    const std::string use = "connections with other hosts";
    if (!identity || !*identity) {
        needs.push_back(trust_need(
            d.program + " certificate", use,
            identity ? "there is none in " + d.identity : identity.error().message, "", d.renew));
        return;
    }
    const trust::Identity& own = **identity;
    const Nanos now = unix_now();
    needs.push_back(trust_need(d.program + " certificate", use, date_trouble(own.own(), now, soon),
                               "good until " + trust::date_text(own.own().ends()), d.renew));
    const auto holder = own.own().key();
    const bool same = holder && holder->digest() == own.key.digest();
    const bool revoked = own.revoked.has(own.key.digest());
    needs.push_back(trust_need(d.program + " key", "what proves who it is",
                               !same     ? "the certificate is of another key"
                               : revoked ? "it was revoked"
                                         : "",
                               "fits its certificate", d.renew));
    needs.push_back(trust_need("issuing authority", "renewals",
                               date_trouble(own.issuer(), now, authority_soon),
                               "good until " + trust::date_text(own.issuer().ends()),
                               "souk setup authority --root-key FILE, on the market's machine"));
}

// Lets the daemon itself check its configuration, and returns its lines or its complaint.
std::string checked(const std::string& program, const std::string& config) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return {};
    Fd out(ends[0]), in(ends[1]);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in.get(), 1);
    posix_spawn_file_actions_adddup2(&actions, in.get(), 2);
    std::string path = program_path(program.c_str());
    std::string check = "--check-config", option = "--config", file = config;
    std::array<char*, 5> words{path.data(), check.data(), option.data(), file.data(), nullptr};
    pid_t pid = 0;
    const int failed = ::posix_spawn(&pid, path.c_str(), &actions, nullptr, words.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    in.reset();
    if (failed != 0) return {};
    std::string text(1 << 16, '\0');
    size_t n = 0;
    for (ssize_t got = 1; got > 0 && n < text.size();
         n += static_cast<size_t>(std::max<ssize_t>(got, 0)))
        got = ::read(out.get(), text.data() + n, text.size() - n);
    text.resize(n);
    out.reset();  // who says more than that ends, too
    int status = 0;
    ::waitpid(pid, &status, 0);
    return text;
}

// The line of it that begins so, without that.
std::string line_of(const std::string& said, const std::string& begin) {
    const size_t at = said.find("\n" + begin);
    if (at == said.npos) return {};
    const size_t from = at + 1 + begin.size();
    return said.substr(from, said.find('\n', from) - from);
}

std::string state_of(const ExaminedDaemon& d) {
    const std::string state = configured(config_text(d.config), "state");
    return state.empty() ? "/var/lib/souk/agentd" : state;
}

// Examines agentd's user, and whether that user has the files which agentd wrote before.
void examine_owner(const ExaminedDaemon& d, const std::string& said, std::vector<Need>& needs) {
    const std::string use = "who takes agentd over is not root";
    const std::string dir = state_of(d);
    const std::string root = line_of(said, "# agentd stays root: "),
                      is = line_of(said, "# agentd is ");
    if (root.empty() && is.empty()) return;
    std::string wrong = root.empty() ? "" : "agentd stays root: " + root;
    struct stat top {
    }, one{};
    if (root.empty() && ::stat(dir.c_str(), &top) == 0)
        for (const char* below : {"/home", "/images", "/refused", "/state.db", "/identity"})
            if (::lstat((dir + below).c_str(), &one) == 0 && one.st_uid != top.st_uid)
                wrong = dir + below + " is not of the owner of " + dir;
    needs.push_back(trust_need("agentd user", use, wrong, is,
                               root.empty()
                                   ? "start agentd anew: it puts that right"
                                   : "systemd-sysusers souk-agent.conf, then start it anew"));
}

// Examines the directory that souk-root keeps for itself (agentd/who). It is not there before the
// first start.
void examine_kept(const ExaminedDaemon& d, std::vector<Need>& needs) {
    const std::string dir = beside_state(state_of(d)),
                      use = "who may have jobs is not agentd's word";
    const std::string kept = dir + kept_market;
    struct stat st {};
    if (::lstat(dir.c_str(), &st) != 0) return;
    std::string wrong, mend;
    if (!S_ISDIR(st.st_mode) || st.st_uid != 0 || (st.st_mode & 077) != 0) {
        wrong = dir + " is not root's alone";
        mend = "chown root " + dir + " && chmod 0700 " + dir;
    } else if (const auto text = read_file(AT_FDCWD, kept); text) {
        const auto known = trust::parse_chain(*text);
        const auto identity = trust::load_identity(d.identity);
        const bool joined = identity && *identity;
        if (!known || (joined && known->front().digest() != (*identity)->root.digest())) {
            wrong = kept + " is of another market than the certificates in " + d.identity;
            mend = "if the market was changed on purpose: rm " + kept + ", and start agentd anew";
        }
    }
    needs.push_back(trust_need("souk-root files", use, wrong, dir + " is root's alone", mend));
}

// Records that the daemon could not read when it started (kernel/sys/store/journal_db.hpp).
void examine_records(const std::string& program, const std::string& state,
                     std::vector<Need>& needs) {
    const std::string file = state + "/aside.txt";
    const auto text = read_file(AT_FDCWD, file);
    std::string wrong;
    if (text) {
        const auto lines = std::count(text->begin(), text->end(), '\n');
        wrong = std::to_string(lines) + (lines == 1 ? " record" : " records") +
                " cannot be read and is set aside, " + file +
                " lists them; the first: " + blank_controls(text->substr(0, text->find('\n')));
    }
    needs.push_back(trust_need(program + " records", "what it knew before its start", wrong,
                               "all can be read",
                               "see \"Records that are set aside\" in docs/state-on-disk.md"));
}

void examine_users(const ExaminedDaemon& d, const std::string& said, std::vector<Need>& needs) {
    const size_t map = said.find("# who the users of other nodes are here");
    const std::string use = "who other nodes' users are here";
    const bool wrong = said.find("of these lines name nobody") != said.npos || map == said.npos;
    if (said.find("# insecure:") != said.npos) {
        needs.push_back(trust_need("users", use, "insecure: root of other nodes is root here", "",
                                   "souk setup node --join TOKEN"));
        return;
    }
    std::string lines;
    for (size_t at = said.find("#   ", map == said.npos ? 0 : map); at != said.npos && !wrong;
         at = said.find("#   ", at + 1))
        lines += (lines.empty() ? "" : "; ") + said.substr(at + 4, said.find('\n', at) - at - 4);
    std::string why = said.substr(map == said.npos ? 0 : map);
    for (char& c : why)
        if (c == '\n' || c == '#') c = ' ';
    needs.push_back(
        trust_need("users", use, wrong ? why.substr(0, 300) : "", lines,
                   "mend user_map of " + d.config + "; agentd --check-config shows it"));
}

void examine_clock(const ExaminedDaemon& d, std::vector<Need>& needs) {
    const std::string market = configured(config_text(d.config), "market");
    auto identity = trust::load_identity(d.identity);
    if (market.empty() || !identity || !*identity) return;
    const auto theirs = market_time(market, (*identity)->root.digest());
    const std::string use = "certificates and frames of time go by it";
    if (!theirs) {
        needs.push_back(trust_need("clock", use, theirs.error().message, "",
                                   "the market at " + market + " must be reached to compare it"));
        return;
    }
    const Nanos off = unix_now() - *theirs, by{std::abs(off.ns)};
    const bool wrong = by > clock_tolerance;
    needs.push_back(trust_need("clock", use,
                               wrong ? "this machine's is " + span_text(by) +
                                           (off.ns > 0 ? " ahead of" : " behind") + " the market's"
                                     : "",
                               "as the market's", "put the wrong one right (timedatectl)"));
}

}  // namespace

// The keys that `souk setup` makes count as well as a configuration, which a package need not have.
bool keeps_a_market(const std::string& market) {
    return ::access(market.c_str(), F_OK) == 0 ||
           ::access(identity_dir(config_text(market), "marketd").c_str(), F_OK) == 0;
}
bool is_a_node(const std::string& agent) {
    return ::access(agent.c_str(), F_OK) == 0 ||
           ::access(identity_dir(config_text(agent), "agentd").c_str(), F_OK) == 0;
}

std::vector<Need> examine_trust(const std::string& agent, const std::string& market,
                                const std::string& backups) {
    std::vector<Need> needs;
    if (is_a_node(agent)) {
        const ExaminedDaemon d{
            "agentd", agent, identity_dir(config_text(agent), "agentd"),
            "souk node renew, or souk setup node --join TOKEN when it has ended"};
        const bool insecure = is_insecure(config_text(agent));
        examine_agentd(agent, d.renew, needs);
        if (!insecure) examine_identity(d, needs);
        const std::string said = checked("agentd", agent);
        examine_owner(d, said, needs);
        examine_records("agentd", state_of(d), needs);
        if (!insecure) examine_kept(d, needs);
        examine_users(d, said, needs);
        if (!insecure) examine_clock(d, needs);
    }
    if (!keeps_a_market(market)) return needs;
    const std::string state = configured(config_text(market), "state");
    examine_marketd(market, backups, needs);
    examine_records("marketd", state.empty() ? "/var/lib/souk/marketd" : state, needs);
    if (!is_insecure(config_text(market)))
        examine_identity({"marketd", market, identity_dir(config_text(market), "marketd"),
                          "start marketd anew: it renews its own"},
                         needs);
    return needs;
}

}  // namespace souk
