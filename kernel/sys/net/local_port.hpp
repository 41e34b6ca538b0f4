// SPDX-License-Identifier: GPL-2.0-or-later
// LocalPort: PortWork done by this process, which is root. Needs no loop: what is held lies in the
// kernel, which keeps 8 MiB of it, until look() or the next call takes it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernel/sys/net/frame_hold.hpp"
#include "kernel/sys/net/port_links.hpp"

namespace souk {

class LocalPort final : public PortWork {
  public:
    struct Made {
        std::unique_ptr<LocalPort> work;
        std::optional<Armed> armed;  // made shut
        operator MadePort() && { return {std::move(work), std::move(armed)}; }
    };
    // `network`: of this node; none: nothing is made, and what is held follows nobody.
    static Result<Made> open(const std::optional<JobNetwork>& network, const PortPlan& plan,
                             int net_namespace);
    Result<Armed> arm(Gate at_first) override { return links_.arm(at_first); }
    Status act(PortAct what) override { return links_.act(what); }
    Status hold(FrameWay way, bool follows) override;
    Status feed(Nanos since, const std::vector<std::string>& frames) override;
    Result<std::string> held() override;
    Status release(const FrameRelease& how) override;
    Status say(FrameWay way, const std::vector<std::string>& frames) override;

    // The loop waits for frames on these descriptors, and calls look() when some have come.
    std::vector<int> awaited() const;
    void look();
    const PortLinks& links() const { return links_; }

  private:
    LocalPort(PortLinks links, std::string bridge, Fd stamps)
        : links_(std::move(links)), bridge_(std::move(bridge)), stamps_(std::move(stamps)) {}

    PortLinks links_;
    const std::string bridge_;
    // The kernel notes when frames come only some time after the first socket has asked for it.
    // Until then a frame counts as come when it is read, which may be after a gate was shut or
    // opened, so that it comes twice or is lost. This socket asks as long as there is a port.
    const Fd stamps_;
    std::optional<FrameHold> heard_, spoken_;
    bool fed_ = false;  // heard_ is looked at
};

}  // namespace souk
