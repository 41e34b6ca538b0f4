// SPDX-License-Identifier: GPL-2.0-or-later
// agentd: the daemon of one node: home of the jobs submitted here, host of guests, and the owner's
// word.
#include <fcntl.h>

#include <cstdio>

#include "agentd/daemon/agent.hpp"
#include "agentd/daemon/as_root.hpp"
#include "agentd/daemon/guest_users.hpp"
#include "checkpoint/doctor.hpp"
#include "kernel/sys/host/calibrate.hpp"
#include "kernel/sys/host/clock.hpp"
#include "kernel/sys/host/complain.hpp"
#include "kernel/sys/host/daemon.hpp"
#include "kernel/sys/host/fd.hpp"
#include "kernel/sys/host/installation.hpp"
#include "kernel/sys/host/notify.hpp"
#include "kernel/sys/process/own_rights.hpp"
#include "kernel/trust/openssl.hpp"

namespace souk {
namespace {

std::string speed_file(const Config& config) { return config.state + "/speed"; }

bool guests_are_here(const Config& config) {
    const auto guests = list_dir(AT_FDCWD, config.state + "/guests");
    return guests && !guests->empty();
}

// The speed is the owner's word, else as measured at the first start. CPU time that guests use
// would spoil the measure, so with guests here the speed is the reference's until it is measured.
int64_t own_speed(Log& log, const Config& config) {
    if (config.speed > 0) return config.speed;
    if (const auto kept = kept_speed(speed_file(config))) return *kept;
    if (guests_are_here(config)) {
        log.warning("the speed of this machine is not known: it counts as 100",
                    {{"WHY", "guests run here; agentd --calibrate measures it without them"}});
        return 100;
    }
    const Calibration measured = calibrate();
    const Status kept = keep_speed(speed_file(config), measured.speed);
    log.info("speed measured", {{"speed", measured.speed}, {"runs", measured.runs}});
    if (!kept) log.warning("the speed is not kept", {{"WHY", kept.error()}});
    return measured.speed;
}

// agentd --calibrate: also for the daemon that runs, which takes it at SIGHUP or its next start.
int calibrate_anew(const Config& config) {
    if (guests_are_here(config)) {
        complain("agentd",
                 Error{0, "guests run here, and what they use would count: pvdctl market off first",
                       CauseCode::not_possible});
        return 1;
    }
    const Calibration measured = calibrate();
    const Status kept = keep_speed(speed_file(config), measured.speed);
    if (!kept) {
        complain("agentd", kept.error());
        return 1;
    }
    std::printf("speed %ld, kept in %s\n", static_cast<long>(measured.speed),
                speed_file(config).c_str());
    if (config.speed > 0)
        std::printf("the configuration says %ld, which holds\n", static_cast<long>(config.speed));
    return 0;
}

void reload(Log& log, Agent& agent, root::Helper& root, ConfigText& text, const std::string& file) {
    (void)notify_reloading();
    ConfigText read;
    auto now = load_config(file, &read, [&](const std::string& path) { return root.read(path); });
    if (now) now->speed = own_speed(log, *now);
    if (now && !now->frames_trouble.empty()) now = fail(file + ": " + now->frames_trouble);
    const Result<ConfigChange> taken =
        now.and_then([&](const Config& config) { return agent.reload(config, text, read); });
    if (taken)
        tell_reload(log, file, *taken);
    else
        log.error("the configuration is not read again", {{"WHY", taken.error()}});
    (void)notify_ready();
}

// Until then it runs as insecure; then it ends, and whoever started it starts it anew, with its
// certificate. Looked at each minute at least, so that a clock that is set is seen.
class InsecureTime {
  public:
    InsecureTime(Loop& loop, Log& log, Config& config)
        : loop_(loop), log_(log), until_(config.insecure_until) {
        if (until_ <= unix_now()) return;
        config.insecure = true;
        log.warning("until then this node talks without certificates",
                    {{"until", trust::date_text(until_)}});
        look();
    }

  private:
    void look() {
        constexpr Nanos often = Nanos::from_s(60);
        const Nanos left = until_ - unix_now();
        if (left.ns > 0) {
            timer_ = loop_.after(std::min(left, often), [this] { look(); });
            return;
        }
        log_.notice("the time without certificates is over: agentd begins anew with its own");
        loop_.stop();
    }
    Loop& loop_;
    Log& log_;
    const Nanos until_;
    Timer timer_;
};

Status serve(Log& log, Config& config, ConfigText& text, const std::string& file) {
    if (config.criu.empty()) config.criu = settled_criu_root(config.state + "/criu");
    TRY(require_for_agent(config.criu));
    TRY_ASSIGN(Loop loop, Loop::open());
    const Watchdog watchdog(loop);
    const InsecureTime without(loop, log, config);
    bool lost = false;
    root::Helper root(loop, [&](const std::string& why) {
        log.error("souk-root is lost, and agentd ends with it", {{"WHY", why}});
        lost = true;
        loop.stop();
    });
    TRY_ASSIGN(AsRoot as_root, begin_as_root(log, config, file, root));
    config.speed = own_speed(log, config);
    Agent agent(loop, log, config, std::move(as_root), root);
    const auto end = [&](std::string_view signal) {
        log.info("asked to end", {{"signal", signal}});
        loop.stop();
    };
    TRY_ASSIGN(const EndSignals signals,
               watch_end_signals(loop, end, [&] { reload(log, agent, root, text, file); }));
    TRY(agent.begin([&] {
        if (auto told = notify_ready(); !told)
            log.warning("the service manager is not told", {{"WHY", told.error()}});
        log.info("ready",
                 {{"NODE", config.node}, {"listen", config.listen}, {"configuration", file}});
    }));
    if (auto given = give_up_starting(); !given)
        log.warning("agentd keeps rights that it does not need", {{"WHY", given.error()}});
    Status ran = loop.run();
    (void)notify_stopping();
    if (ran && lost) return fail("without souk-root no job can be started or moved");
    return ran;
}

int run(int argc, char** argv) {
    DaemonArguments arguments;
    const DaemonProgram daemon{"agentd",
                               "The daemon of one node: its jobs, its guests, its owner's word.",
                               config_reference, true};
    if (const auto status = parse_daemon_arguments(daemon, argc, argv, arguments)) return *status;
    // A node does not run without one: its market is named there.
    const std::string file = arguments.config.empty() ? usual_config("agentd") : arguments.config;
    ConfigText text;
    auto config = load_config(file, &text);
    if (!config) {
        complain("agentd", caused_by(CauseCode::invalid, config.error()));
        return 2;
    }
    if (arguments.calibrate) return calibrate_anew(*config);
    if (arguments.check_only) {
        if (!config->frames_trouble.empty()) {
            complain("agentd", Error{0, file + ": " + config->frames_trouble, CauseCode::invalid});
            return 2;
        }
        std::fputs((text.text + own_user_text(*config) + user_map_text(*config)).c_str(), stdout);
        return std::fflush(stdout) == 0 ? 0 : 1;
    }
    no_core_dumps();
    Log log({.fd = 2,
             .level_max = arguments.verbose ? Level::debug : Level::info,
             .program = "agentd"});
    if (!config->frames_trouble.empty())
        log.warning("the time frames hold together as they stand: write them apart",
                    {{"configuration", file}, {"WHY", config->frames_trouble}});
    if (const Status served = serve(log, *config, text, file); !served) {
        log.error(served.error().message);
        return 1;
    }
    return 0;
}

}  // namespace
}  // namespace souk

int main(int argc, char** argv) { return souk::run(argc, argv); }
