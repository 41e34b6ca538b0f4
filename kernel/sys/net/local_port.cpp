// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/net/local_port.hpp"

#include <sys/socket.h>

#include <cerrno>

namespace souk {
namespace {

Result<Fd> open_stamps() {
    Fd fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    const int on = 1;
    if (!fd || ::setsockopt(fd.get(), SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on) != 0)
        return fail_errno("ask for the times of frames", errno);
    return fd;
}

}  // namespace

Result<LocalPort::Made> LocalPort::open(const std::optional<JobNetwork>& network,
                                        const PortPlan& plan, int net_namespace) {
    if (!plan.found && !network) return fail("this node has no network for jobs");
    Made made;
    TRY_ASSIGN(PortLinks links, plan.found
                                    ? PortLinks::find(plan, net_namespace)
                                    : PortLinks::make(*network, plan, net_namespace, made.armed));
    TRY_ASSIGN(Fd stamps, open_stamps());
    made.work.reset(
        new LocalPort(std::move(links), network ? network->bridge : "", std::move(stamps)));
    return made;
}

Status LocalPort::hold(FrameWay way, bool follows) {
    if (way == FrameWay::from_job) {
        TRY_ASSIGN(Fd socket, open_packet_socket(links_.net_namespace()));
        TRY_ASSIGN(spoken_, FrameHold::open_inside(links_.place(), std::move(socket)));
        return {};
    }
    if (follows && bridge_.empty()) return fail("this node has no network for jobs any more");
    TRY_ASSIGN(heard_, FrameHold::open(links_.place(), follows ? bridge_ : ""));
    fed_ = !follows;
    return {};
}

Status LocalPort::feed(Nanos since, const std::vector<std::string>& frames) {
    if (!heard_) return fail("nothing is held");
    if (!fed_) heard_->shut_since(since);
    fed_ = true;
    heard_->on_readable();
    heard_->put_first(frames);
    return {};
}

Result<std::string> LocalPort::held() {
    if (!heard_ || !fed_) return fail("nothing is held");
    return heard_->text();
}

Status LocalPort::release(const FrameRelease& how) {
    if (heard_ && fed_ && how.gives) heard_->give_back(how.heard);
    Status announced = links_.act(PortAct::announce);
    if (spoken_) spoken_->give_back(how.spoke);
    heard_.reset();
    spoken_.reset();
    return announced;
}

Status LocalPort::say(FrameWay way, const std::vector<std::string>& frames) {
    if (way == FrameWay::within) {
        for (const std::string& frame : frames) links_.say_within(frame);
        return {};
    }
    TRY_ASSIGN(FrameHold hold, FrameHold::open(links_.place(), ""));
    hold.put_first(frames);
    hold.give_back({});
    return {};
}

std::vector<int> LocalPort::awaited() const {
    std::vector<int> all;
    if (heard_ && fed_) all.push_back(heard_->fd());
    if (spoken_) all.push_back(spoken_->fd());
    return all;
}

void LocalPort::look() {
    if (heard_ && fed_) heard_->on_readable();
    if (spoken_) spoken_->on_readable();
}

}  // namespace souk
