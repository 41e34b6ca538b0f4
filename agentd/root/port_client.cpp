// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/root/port_client.hpp"

#include "kernel/sys/net/packets.hpp"

namespace souk::root {
namespace {

constexpr size_t held_bytes_max = 16 << 20;

Armed armed_of(Helper::Answer& answer, size_t at) {
    auto& d = answer.descriptors;
    return {FrameGate(std::move(d[at]), std::move(d[at + 1]), {}), answer.yes};
}

Result<Fd> file_of(const std::vector<std::string>& frames) {
    return sealed_file("souk-frames", encode_frames({frames.begin(), frames.end()}));
}

class PortClient final : public PortWork {
  public:
    PortClient(Helper& helper, Fd end) : helper_(helper), end_(std::move(end)) {}
    Result<Armed> arm(Gate at_first) override {
        TRY_ASSIGN(Helper::Answer answer, helper_.ask(ArmPort{at_first}, {end_.get()}, 2));
        return armed_of(answer, 0);
    }
    Status act(PortAct what) override { return ask(ActOnPort{what}); }
    Status hold(FrameWay way, bool follows) override { return ask(HoldFrames{way, follows}); }
    Status feed(Nanos since, const std::vector<std::string>& frames) override {
        if (frames.empty()) return ask(FeedFrames{since, false});
        TRY_ASSIGN(const Fd file, file_of(frames));
        return ask(FeedFrames{since, true}, {file.get()});
    }
    Result<std::string> held() override {
        TRY_ASSIGN(const Helper::Answer answer, helper_.ask(TellHeld{}, {end_.get()}, 1));
        return bytes_of(answer.descriptors[0].get(), held_bytes_max);
    }
    Status release(const FrameRelease& how) override { return ask(ReleaseFrames{how}); }
    Status say(FrameWay way, const std::vector<std::string>& frames) override {
        TRY_ASSIGN(const Fd file, file_of(frames));
        return ask(SayFrames{way}, {file.get()});
    }

  private:
    Status ask(const Asked& asked, std::vector<int> more = {}) {
        more.insert(more.begin(), end_.get());
        TRY_ASSIGN([[maybe_unused]] const Helper::Answer done, helper_.ask(asked, more, 0));
        return {};
    }
    Helper& helper_;
    const Fd end_;
};

}  // namespace

Result<MadePort> open_port(Helper& helper, const Pidfd& init, const PortPlan& plan) {
    TRY_ASSIGN(Helper::Answer answer,
               helper.ask(MakePort{plan}, {init.get()}, plan.shut ? 3U : 1U));
    MadePort made;
    if (plan.shut) made.armed = armed_of(answer, 1);
    made.work = std::make_unique<PortClient>(helper, std::move(answer.descriptors[0]));
    return made;
}

}  // namespace souk::root
